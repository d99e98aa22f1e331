# SPDX-License-Identifier: Apache-2.0
"""Facts in a .tflite file that users of LiteRT's interface can see, and no program depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# The package comes without type information: from here on its objects are Any.
_schema: Any = import_module("tflite")


@dataclass(frozen=True)
class Signature:
    """A signature of a model: the tensor numbers of a function's named arguments and results."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Details:
    """Facts about the first subgraph of a file that users can see."""

    names: tuple[str, ...]
    """Names of the tensors as they stand in the file."""
    shape_signatures: tuple[tuple[int, ...], ...]
    """Shape of each tensor with -1 for open sizes; empty for a tensor without open sizes."""
    has_variables: bool
    """True if operators read and write variables, which keep values from one run to the next."""
    has_state: bool
    """True if operators such as LSTMs have state inside them, which a reset clears."""
    signatures: Mapping[str, Signature]
    """Signatures of the file by their names, which are in LiteRT's order."""


def read_details(content: bytes) -> Details:
    """Return the facts in a file's content, which read_tflite must have accepted before."""
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
    """Return the numbers of a signature's tensors by names, sorted by name as in LiteRT."""
    pairs = ((item(n).Name() or b"", item(n).TensorIndex()) for n in range(length))
    return {name.decode(errors="replace"): int(number) for name, number in sorted(pairs)}
