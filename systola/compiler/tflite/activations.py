# SPDX-License-Identifier: Apache-2.0
"""A rewrite of fused activations that the machine cannot fuse: each becomes a separate operator."""

from __future__ import annotations

from dataclasses import replace

from systola.compiler.tflite.graph import Graph, Operator

_OPTION = "FusedActivationFunction"
_ALONE = ("RELU_N1_TO_1",)
"""Fused activations that become separate operators; the kind of operator has the same name."""


def without_rare_activations(graph: Graph) -> Graph:
    """Return `graph` with a separate operator in place of each fused activation in _ALONE."""
    tensors = list(graph.tensors)
    operators: list[Operator] = []
    for operator in graph.operators:
        activation = operator.options.get(_OPTION)
        if activation not in _ALONE or len(operator.outputs) != 1:
            operators.append(operator)
            continue
        (result,) = operator.outputs
        tensors.append(tensors[result])
        inner = len(tensors) - 1
        options = {**operator.options, _OPTION: "NONE"}
        operators.append(replace(operator, outputs=(inner,), options=options))
        operators.append(Operator(operator.index, activation, (inner,), (result,), {}))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))
