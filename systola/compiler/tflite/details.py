# SPDX-License-Identifier: Apache-2.0
"""Facts in a .tflite file that only LiteRT's interface for users needs, not the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# The package `tflite` has no type information, so its objects have the type Any here.
_schema: Any = import_module("tflite")


@dataclass(frozen=True)
class Signature:
    """A signature of a model: for each named argument and result, the number of its tensor."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Details:
    """Facts about a file's first subgraph, as users of LiteRT's interface see them."""

    names: tuple[str, ...]
    """Names of all tensors, in the order of the file."""
    shape_signatures: tuple[tuple[int, ...], ...]
    """Shape of each tensor with -1 for sizes that are not fixed; () if all sizes are fixed."""
    has_variables: bool
    """True if operators read and write variables, which keep values from one run to the next."""
    has_state: bool
    """True if operators such as LSTMs keep a state from one run to the next, until a reset."""
    signatures: Mapping[str, Signature]
    """Signatures of the file, by name. The names are sorted, as in LiteRT."""


def read_details(content: bytes) -> Details:
    """Return the facts in the bytes of a file that read_tflite has already accepted."""
    model = _schema.Model.GetRootAs(content, 0)
    subgraph = model.Subgraphs(0)
    tensors = [subgraph.Tensors(number) for number in range(subgraph.TensorsLength())]
    kinds = {
        model.OperatorCodes(subgraph.Operators(number).OpcodeIndex()).BuiltinCode()
        for number in range(subgraph.OperatorsLength())
    }
    signatures = {
        (each.SignatureKey() or b"").decode(errors="replace"): Signature(
            _tensor_map(each.InputsLength(), each.Inputs),
            _tensor_map(each.OutputsLength(), each.Outputs),
        )
        for each in map(model.SignatureDefs, range(model.SignatureDefsLength()))
        if each.SubgraphIndex() == 0
    }
    return Details(
        names=tuple((each.Name() or b"").decode(errors="replace") for each in tensors),
        shape_signatures=tuple(
            tuple(int(each.ShapeSignature(n)) for n in range(each.ShapeSignatureLength()))
            for each in tensors
        ),
        has_variables=_schema.BuiltinOperator.VAR_HANDLE in kinds,
        has_state=any(each.IsVariable() for each in tensors),
        signatures=dict(sorted(signatures.items())),
    )


def _tensor_map(length: int, item: Any) -> dict[str, int]:
    """Return the tensor number of each argument or result, by its name. The names are sorted."""
    pairs = ((item(n).Name() or b"", item(n).TensorIndex()) for n in range(length))
    return {name.decode(errors="replace"): int(number) for name, number in sorted(pairs)}
