# SPDX-License-Identifier: Apache-2.0
"""A rewrite of networks of uint8, as converters wrote them until 2021, as networks of int8.

All codes and zero points become less by 128, which changes no sum. The host converts inputs and
outputs in the same way. Weights of uint8 may have a zero point, unlike other weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from systola.compiler.tflite.graph import Graph, Operator, Tensor

FLIP_SIGN = "FLIP_SIGN"
"""Kind of an operator that converts inputs from uint8 to int8, and outputs back. Only this rewrite
adds such operators.
"""
_ALIKE = (
    "ADD",
    "ARG_MAX",
    "ARG_MIN",
    "AVERAGE_POOL_2D",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "MAX_POOL_2D",
    "RESHAPE",
    "SOFTMAX",
    "SQUEEZE",
    "SUM",
)
"""Kinds of operators on uint8 that can become operators on int8.

Either their arithmetic is the same for both types, or the translation looks at `Tensor.unsigned`.
"""


def without_unsigned(graph: Graph) -> Graph:
    """Return `graph` with int8 instead of uint8, if all its operators on uint8 can become int8."""
    bytes_, touching = _touching(graph)
    if not touching or not all(_is_alike(graph, operator) for operator in touching):
        return graph
    tensors = [_as_int8(tensor) if tensor.dtype == "uint8" else tensor for tensor in graph.tensors]
    before: list[Operator] = []
    after: list[Operator] = []
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    for ends in (inputs, outputs):
        for place, number in enumerate(ends):
            if number in bytes_:
                outer = ends[place] = len(tensors)
                tensors.append(graph.tensors[number])
                if ends is inputs:
                    before.append(Operator(0, FLIP_SIGN, (outer,), (number,), {}))
                else:
                    after.append(Operator(len(graph.operators), FLIP_SIGN, (number,), (outer,), {}))
    operators = (*before, *graph.operators, *after)
    return replace(
        graph,
        tensors=tuple(tensors),
        operators=operators,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def without_unlike(graph: Graph) -> tuple[Graph, list[Operator]]:
    """Return `graph` without the operators that force all others to uint8, and a list of these
    operators.

    An operator on uint8 forces the others if it cannot become an operator on int8. The results of
    an operator that is left out become inputs.
    """
    _, touching = _touching(graph)
    unlike = [operator for operator in touching if not _is_alike(graph, operator)]
    if len(unlike) == len(touching):
        return graph, []
    results = (number for operator in unlike for number in operator.outputs)
    rest = tuple(operator for operator in graph.operators if operator not in unlike)
    return replace(graph, operators=rest, inputs=(*graph.inputs, *results)), unlike


def _touching(graph: Graph) -> tuple[set[int], list[Operator]]:
    """Return the numbers of all tensors of uint8, and the operators that take or make such a
    tensor.
    """
    bytes_ = {number for number, tensor in enumerate(graph.tensors) if tensor.dtype == "uint8"}
    return bytes_, [each for each in graph.operators if bytes_ & {*each.inputs, *each.outputs}]


def _is_alike(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator on uint8 can become an operator on int8.

    An operator with tensors of int8 besides cannot: LiteRT clamps the results to other codes, or
    refuses the operator.
    """
    numbers = {*operator.inputs, *operator.outputs} - {-1}
    return operator.kind in _ALIKE and all(graph.tensors[n].dtype != "int8" for n in numbers)


def _as_int8(tensor: Tensor) -> Tensor:
    data = None if tensor.data is None else (tensor.data ^ np.uint8(128)).view(np.int8)
    zero_points = tensor.zero_points - 128
    return replace(tensor, dtype="int8", zero_points=zero_points, data=data, unsigned=True)
