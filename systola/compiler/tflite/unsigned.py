# SPDX-License-Identifier: Apache-2.0
"""A rewrite of networks of uint8, as converters wrote them until 2021, as networks of int8.

All codes and zero points become less by 128. This changes no sum of products, as in these a zero
point is subtracted from each code. The host converts the network's inputs to int8 and its outputs
back to uint8. Weights that were uint8 may have a zero point, unlike other weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from systola.compiler.tflite.graph import Graph, Operator, Tensor

FLIP_SIGN = "FLIP_SIGN"
"""Kind of an operator that converts an input of the network from uint8 to int8, or an output from
int8 to uint8. Only this rewrite adds such operators; no file has them.
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

LiteRT's arithmetic for the other kinds differs between the types. If it differs for a kind in this
list, the translation allows for it where `Tensor.unsigned` is True.
"""


def without_unsigned(graph: Graph) -> Graph:
    """Return `graph` with int8 in place of uint8, and FLIP_SIGN at inputs and outputs.

    Returns `graph` unchanged if one of its operators on uint8 cannot become an operator on int8.
    """
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
    """Return `graph` without its unlike operators, and a list of the operators left out.

    An operator on uint8 is unlike if it cannot become an operator on int8; then the whole graph
    would have to stay uint8. The results of an operator that is left out become inputs. If all
    operators on uint8 are unlike, `graph` is returned unchanged, with an empty list.
    """
    _, touching = _touching(graph)
    unlike = [operator for operator in touching if not _is_alike(graph, operator)]
    if len(unlike) == len(touching):
        return graph, []
    results = (number for operator in unlike for number in operator.outputs)
    rest = tuple(operator for operator in graph.operators if operator not in unlike)
    return replace(graph, operators=rest, inputs=(*graph.inputs, *results)), unlike


def _touching(graph: Graph) -> tuple[set[int], list[Operator]]:
    """Return the numbers of all uint8 tensors, and the operators that take or make one of them."""
    bytes_ = {number for number, tensor in enumerate(graph.tensors) if tensor.dtype == "uint8"}
    return bytes_, [each for each in graph.operators if bytes_ & {*each.inputs, *each.outputs}]


def _is_alike(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator on uint8 can become an operator on int8.

    The operator's kind must be in _ALIKE, and it must have no int8 tensor. LiteRT refuses an
    operator on both types, or clamps its results to other limits than if both were int8.
    """
    numbers = {*operator.inputs, *operator.outputs} - {-1}
    return operator.kind in _ALIKE and all(graph.tensors[n].dtype != "int8" for n in numbers)


def _as_int8(tensor: Tensor) -> Tensor:
    data = None if tensor.data is None else (tensor.data ^ np.uint8(128)).view(np.int8)
    zero_points = tensor.zero_points - 128
    return replace(tensor, dtype="int8", zero_points=zero_points, data=data, unsigned=True)
