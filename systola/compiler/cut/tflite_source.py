# SPDX-License-Identifier: Apache-2.0
"""A .tflite file as operators, called parts, that can run on the machine or in LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any, cast

from systola.compiler.cut.source import Part, Source, Tensor
from systola.compiler.interpreted import Interpreter
from systola.compiler.network import Network, make_network
from systola.compiler.operations import Value
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.graph import NUMPY_TYPES, Graph, Operator
from systola.compiler.tflite.reader import IDENTIFIER, read_tflite
from systola.compiler.tflite.translate import (
    INPUT_TYPES,
    check_order,
    refused_operators,
    translate,
)
from systola.compiler.tflite.variables import OPENING
from systola.runtime.interpreters import Session

_CALLS = ("CALL", "IF", "WHILE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE")
"""Kinds of operators that run other subgraphs of the file, such as the branches of IF."""


class TfliteSource(Source):
    """A .tflite file that can be cut into parts; LiteRT's reference kernels define the right
    results of each part.
    """

    def __init__(self, content: bytes) -> None:
        self.semantics, self.interpreter = Semantics.LITERT_2, Interpreter.LITERT
        self._content = content
        self._graph = read_tflite(content, main=True)
        check_order(self._graph)
        self.inputs, self.outputs = self._graph.inputs, self._graph.outputs
        self._describe()

    def _describe(self) -> None:
        graph = self._graph
        calculated = {*graph.inputs, *(each for it in graph.operators for each in it.outputs)}
        self.values = {
            number: Value(tensor.name, tensor.shape, tensor.dtype)
            for number, tensor in enumerate(graph.tensors)
            if number in calculated and tensor.size and not tensor.open
            if tensor.dtype in NUMPY_TYPES
        }
        self.of_int16 = any(value.dtype == "int16" for value in self.values.values())
        variable = set(graph.inputs)
        variables = self._variables()
        self.parts: Sequence[Part] = []
        for operator in graph.operators:
            inputs = tuple(each for each in operator.inputs if each in calculated)
            states = {variables[each] for each in (*inputs, *operator.outputs) if each in variables}
            if operator.kind in _CALLS:
                states.update(variables.values())
            opening = operator.kind == OPENING
            depends = bool(variable & {*inputs}) or bool(states) or opening
            if depends:
                variable.update(operator.outputs)
            self.parts.append(
                Part(
                    index=operator.index,
                    name=str(operator),
                    kind=operator.kind,
                    inputs=inputs,
                    outputs=operator.outputs,
                    macs=_macs(graph, operator),
                    copied=not depends and not {*operator.outputs} & {*graph.outputs},
                    states=frozenset(states),
                    opening=opening,
                )
            )

    def _variables(self) -> dict[int, Tensor]:
        """Return the variable that each tensor of type resource or variant refers to.

        The key is the tensor's number in the file. Equal values stand for the same variable: the
        container and name that a VAR_HANDLE gives, else the tensor's number.
        """
        graph = self._graph
        return {
            number: (operator.options.get("Container"), operator.options.get("SharedName"))
            if operator.kind == "VAR_HANDLE"
            else number
            for operator in graph.operators
            for number in operator.outputs
            if graph.tensors[number].dtype in ("resource", "variant")
        }

    def refused(self) -> Mapping[str, str]:
        """Return the operators that the machine cannot run.

        The key is an operator's text, such as "operator 3 (CONV_2D)", and the value is the reason.
        """
        return refused_operators(self._graph, self.semantics)

    def network(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Network:
        """Return a network for the machine that calculates `outputs` from `inputs` with operators
        `parts`.
        """
        graph = self._graph
        self.check_given(parts, inputs, INPUT_TYPES)
        chosen = tuple(graph.operators[part.index] for part in parts)
        piece = Graph(graph.tensors, chosen, _numbers(inputs), _numbers(outputs))
        return make_network(translate(piece, self.semantics, repeat=1))

    def piece(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> bytes:
        """Return the content of a .tflite file that calculates `outputs` from `inputs` with
        operators `parts`.
        """
        chosen = [part.index for part in parts]
        return _piece(self._content, chosen, _numbers(inputs), _numbers(outputs))

    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of the tensor with number `tensor` in the file, counted from 0."""
        return self._graph.tensors[cast("int", tensor)].name

    def check_interpreter(self) -> None:
        """Update `parts` and `values` with the shapes that LiteRT finds for tensors.

        Raises ModelError if LiteRT is not installed, or refuses the file.
        """
        # Some sizes depend on data, for example sizes of the results of IF and WHILE. LiteRT knows
        # them only after a run, so the session then runs the model once, on zeros.
        unsure = any(tensor.open for tensor in self._graph.tensors) or any(
            operator.kind in _CALLS for operator in self._graph.operators
        )
        with Session(self.interpreter, self._content, probe=unsure) as session:
            found = session.tensors
        tensors = tuple(
            replace(tensor, shape=found[number][1], open=False)
            if number in found and tensor.data is None
            else tensor
            for number, tensor in enumerate(self._graph.tensors)
        )
        self._graph = replace(self._graph, tensors=tensors)
        self._describe()


def _numbers(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(cast("Sequence[int]", tensors))


def _piece(
    content: bytes, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """Return the content of a .tflite file with only some operators of the first subgraph of
    `content`.

    `operators` has their positions; `inputs` and `outputs` have numbers of tensors, all counted
    from 0. Other subgraphs stay as they are.
    """
    # LiteRT's own schema classes can write a changed file. The classes come without type
    # information, so their objects have type Any.
    schema: Any = import_module("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    graph.operators = [graph.operators[index] for index in operators]
    graph.inputs, graph.outputs = list(inputs), list(outputs)
    model.signatureDefs, model.metadata, model.metadataBuffer = None, None, None
    used = {*inputs, *outputs}
    for operator in graph.operators:
        for numbers in (operator.inputs, operator.outputs, operator.intermediates):
            used.update(() if numbers is None else map(int, numbers))
    for number, tensor in enumerate(graph.tensors):
        if number not in used:
            tensor.buffer = 0
    kept = {tensor.buffer for each in model.subgraphs for tensor in each.tensors or ()}
    for number, buffer in enumerate(model.buffers):
        if number not in kept:
            buffer.data = None
        elif buffer.data is None and buffer.offset > 1:
            buffer.data = list(content[buffer.offset : buffer.offset + buffer.size])
        buffer.offset = buffer.size = 0
    builder: Any = import_module("flatbuffers").Builder(1024)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def _macs(graph: Graph, operator: Operator) -> int:
    """Return the number of multiply-accumulates of an operator in one sample; 0 for kinds without
    products.
    """

    def shape(position: int) -> tuple[int, ...]:
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        return graph.tensors[number].shape if number >= 0 else ()

    if not operator.outputs:
        return 0
    result = graph.tensors[operator.outputs[0]].size
    weights = shape(1)
    match operator.kind:
        case "CONV_2D" | "FULLY_CONNECTED":
            return result * prod(weights[1:])
        case "DEPTHWISE_CONV_2D":
            return result * prod(weights[1:3])
        case "TRANSPOSE_CONV":
            return prod(shape(2)) * prod(weights[:3])
        case "CONV_3D":
            return result * prod(weights[:-1])
        case "BATCH_MATMUL":
            return result * shape(0)[-1] if shape(0) else 0
        case "UNIDIRECTIONAL_SEQUENCE_LSTM":
            return prod(shape(0)[:-1]) * 4 * (prod(shape(2)) + prod(shape(6)))
        case _:
            return 0
