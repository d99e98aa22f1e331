# SPDX-License-Identifier: Apache-2.0
"""An .onnx file as operators, called parts, that can run on the machine or in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any, cast

from systola.compiler.cut.source import Part, Source, Tensor
from systola.compiler.interpreted import Interpreter
from systola.compiler.network import Network, make_network
from systola.compiler.onnx.model import OnnxInput, OnnxNode
from systola.compiler.onnx.reader import ELEMENT_TYPES, read_onnx
from systola.compiler.onnx.translate import refused_nodes, translate_model
from systola.compiler.operations import Value
from systola.compiler.semantics import Semantics
from systola.runtime.interpreters import Session

_CONVERSIONS = ("DequantizeLinear",)
"""Kinds of operators that each segment with a user of their results gets a copy of. ONNX Runtime
may join such an operator to its user, so both must be in the same segment.
"""
_RUNTIME_TYPES = {f"tensor({kind.lower()})": dtype for kind, dtype in ELEMENT_TYPES.items()}
"""Names of element types in numpy. The key is the type's name in ONNX Runtime, such as
"tensor(float)".
"""
_INPUT_TYPES = ("float32", "int8", "uint8", "int32", "int64")


class OnnxSource(Source):
    """An .onnx file that can be cut into parts; ONNX Runtime defines the right results of each
    part.
    """

    def __init__(self, content: bytes) -> None:
        self.semantics, self.interpreter = Semantics.ONNX, Interpreter.ONNX_RUNTIME
        self._model = read_onnx(content)
        # The package `onnx` comes without type information, so its objects have type Any.
        self._onnx: Any = import_module("onnx")
        self._proto: Any = self._onnx.ModelProto.FromString(content)
        sizes = {each.name: each.shape for each in self._model.inputs}
        for each in self._proto.graph.input:
            for place, size in zip(
                each.type.tensor_type.shape.dim, sizes.get(each.name, ()), strict=False
            ):
                place.dim_value = size
        self.inputs = tuple(each.name for each in self._model.inputs)
        self.outputs = self._model.outputs
        shape_inference = self._onnx.shape_inference
        inferred = self._proto
        with suppress(shape_inference.InferenceError):
            inferred = shape_inference.infer_shapes(inferred)
        infos = (*inferred.graph.value_info, *inferred.graph.output)
        self._describe(found for each in infos if (found := _tensor_type(self._onnx, each)))

    def _describe(self, results: Iterable[OnnxInput]) -> None:
        """Store a Part for each operator of the file, and a Value for each tensor of known shape.

        `results` has the names, types and shapes of calculated tensors, as far as these are known.
        """
        model = self._model
        self._tensors = {each.name: each for each in (*model.inputs, *results)}
        self.values = {
            each.name: Value(each.name, each.shape, each.dtype) for each in self._tensors.values()
        }
        shapes = {name: each.shape for name, each in self._tensors.items()}
        shapes |= {name: each.shape for name, each in model.constants.items()}
        variable = set(self.inputs)
        self.parts: Sequence[Part] = []
        for node, proto in zip(model.nodes, self._proto.graph.node, strict=True):
            inputs = tuple(
                name for name in dict.fromkeys(_taken(proto)) if name not in model.constants
            )
            outputs = tuple(name for name in node.outputs if name)
            depends = not variable.isdisjoint(inputs)
            if depends:
                variable.update(outputs)
            copied = not depends or node.kind in _CONVERSIONS
            self.parts.append(
                Part(
                    index=node.index,
                    name=str(node),
                    kind=node.kind,
                    inputs=inputs,
                    outputs=outputs,
                    macs=_macs(node, shapes),
                    copied=copied and not {*outputs} & {*self.outputs},
                )
            )

    def refused(self) -> Mapping[str, str]:
        """Return the operators that the machine cannot run.

        The key is an operator's text, such as "node 3 (Conv)", and the value is the reason.
        """
        return refused_nodes(self._model, self._tensors)

    def network(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Network:
        """Return a network for the machine that calculates `outputs` from `inputs` with operators
        `parts`.
        """
        model = self._model
        self.check_given(parts, inputs, _INPUT_TYPES)
        nodes = tuple(model.nodes[part.index] for part in parts)
        taken = {name for node in nodes for name in node.inputs}
        piece = replace(
            model,
            inputs=tuple(self._tensors[name] for name in _names(inputs)),
            outputs=_names(outputs),
            constants={name: each for name, each in model.constants.items() if name in taken},
            nodes=nodes,
        )
        return make_network(translate_model(piece, repeat=1))

    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of a tensor in the file, for messages."""
        return str(tensor)

    def piece(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> bytes:
        """Return the content of an .onnx file that calculates `outputs` from `inputs` with
        operators `parts`.
        """
        helper, graph = self._onnx.helper, self._proto.graph
        nodes = [graph.node[part.index] for part in parts]
        taken = {name for node in nodes for name in _taken(node)}
        piece = helper.make_graph(
            nodes,
            graph.name or "piece",
            [self._info(name) for name in _names(inputs)],
            [self._info(name) for name in _names(outputs)],
            [each for each in graph.initializer if each.name in taken],
        )
        proto = self._proto
        model = helper.make_model(
            piece, opset_imports=proto.opset_import, ir_version=proto.ir_version
        )
        return cast("bytes", model.SerializeToString())

    def _info(self, name: str) -> Any:
        tensor = self._tensors[name]
        kind = self._onnx.TensorProto.DataType.Value(
            next(kind for kind, dtype in ELEMENT_TYPES.items() if dtype == tensor.dtype)
        )
        return self._onnx.helper.make_tensor_value_info(name, kind, tensor.shape)

    def check_interpreter(self) -> None:
        """Update `parts` and `values` with the types and shapes that ONNX Runtime finds for
        tensors.

        Raises ModelError if ONNX Runtime is not installed, or refuses the file.
        """
        probe = self._onnx.ModelProto.FromString(self._proto.SerializeToString())
        given = {each.name for each in probe.graph.output}
        results = (name for part in self.parts for name in part.outputs if name not in given)
        # ONNX Runtime reports types and shapes of outputs only, so all results become outputs.
        # Their names are enough, as ONNX Runtime finds the types and shapes by itself.
        probe.graph.output.extend(self._onnx.ValueInfoProto(name=name) for name in results)
        content = probe.SerializeToString()
        with Session(self.interpreter, content, optimised=False) as session:
            found = session.tensors
        if not all(_is_known(shape) for _, shape in found.values()):
            with Session(self.interpreter, content, optimised=False, probe=True) as session:
                found = session.tensors
        self._describe(
            OnnxInput(str(name), _RUNTIME_TYPES[kind], shape)
            for name, (kind, shape) in found.items()
            if kind in _RUNTIME_TYPES and _is_known(shape)
        )


def _names(tensors: Sequence[Tensor]) -> tuple[str, ...]:
    return tuple(cast("Sequence[str]", tensors))


def _taken(node: Any) -> Iterator[str]:
    """Yield the names of the tensors that a node takes.

    A node such as If has graphs inside it. It also takes the tensors from outside of these graphs
    that they use.
    """
    yield from (str(name) for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {each.name for each in (*graph.input, *graph.initializer)}
            own.update(name for each in graph.node for name in each.output)
            inner = (name for each in graph.node for name in _taken(each))
            outer = (each.name for each in graph.output)
            yield from (name for name in (*inner, *outer) if name not in own)


def _is_known(shape: Sequence[int]) -> bool:
    """Return whether all sizes of a shape are above 0, that is, known and possible.

    An unknown size is 0. A size below 0 is calculated for a window that does not fit its map.
    """
    return all(size > 0 for size in shape)


def _tensor_type(onnx: Any, info: Any) -> OnnxInput | None:
    """Return the name, type and shape of a tensor; None if type or shape is not known."""
    tensor = info.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
    if not tensor.HasField("shape") or kind not in ELEMENT_TYPES:
        return None
    shape = tuple(int(each.dim_value) for each in tensor.shape.dim)
    if not _is_known(shape):
        return None
    return OnnxInput(str(info.name), ELEMENT_TYPES[kind], shape)


def _macs(node: OnnxNode, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of multiply-accumulates of a node in one sample; 0 if the node has no
    products.
    """

    def shape(position: int) -> tuple[int, ...]:
        name = node.inputs[position] if position < len(node.inputs) else ""
        return shapes.get(name, ())

    result = prod(shapes.get(node.outputs[0], (0,)))
    match node.kind:
        case "Conv" | "ConvInteger":
            return result * prod(shape(1)[1:])
        case "QLinearConv":
            return result * prod(shape(3)[1:])
        case "ConvTranspose":
            return prod(shape(0)) * prod(shape(1)[1:])
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return result * (shape(0)[-1] if shape(0) else 0)
        case "Gemm" | "QGemm":
            turned = node.attributes.get("transA", 0)
            return result * (shape(0)[0 if turned else -1] if shape(0) else 0)
        case "LSTM" | "GRU" | "RNN":
            return prod(shape(0)[:-1]) * (prod(shape(1)) + prod(shape(2))) if shape(0) else 0
        case _:
            return 0
