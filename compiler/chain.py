# SPDX-License-Identifier: Apache-2.0
"""A chain of FULLY_CONNECTED as stages: layers for the machine, small things for the host.

Activations go into the layer before them; what comes in front of the first layer, and softmax, the
host does on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function
from systola.compiler.errors import ModelError, located
from systola.compiler.fully_connected import fully_connected
from systola.compiler.graph import Graph, Operator, Tensor, need_type
from systola.compiler.host_stage import (
    VIEWS,
    HostStage,
    dequantize_stage,
    quantize_stage,
    softmax_stage,
)
from systola.compiler.layer import Layer
from systola.compiler.quantise import (
    INT8,
    curve_table,
    relu_limits,
    requantise_table,
    table_bytes,
)

CURVES = ("LOGISTIC", "TANH")
KINDS = frozenset(
    ("FULLY_CONNECTED", "SOFTMAX", "QUANTIZE", "DEQUANTIZE", "RELU", "RELU6", *CURVES, *VIEWS)
)
"""Kinds of operators that a chain may have."""


@dataclass(frozen=True)
class DeviceStage:
    """Layers that the machine calculates, one fed by the other."""

    layers: tuple[Layer, ...]
    rows: int
    """Input vectors of one sample."""


def is_chain(graph: Graph) -> bool:
    """Whether the operators take only the result of the one before, with a FULLY_CONNECTED."""
    current = graph.inputs[0]
    for operator in graph.operators:
        if operator.kind not in KINDS or operator.inputs[:1] != (current,) or not operator.outputs:
            return False
        current = operator.outputs[0]
    return any(operator.kind == "FULLY_CONNECTED" for operator in graph.operators)


def build_chain(graph: Graph) -> tuple[tuple[HostStage | DeviceStage, ...], int]:
    """The stages of a graph that is a chain, and its inexact channels, see fully_connected.

    Raises ModelError, with number and kind of the operator, for what is not supported.
    """
    builder = _Builder(graph)
    for operator in graph.operators:
        with located(operator, ModelError):
            builder.add(operator)
    return tuple(builder.stages), builder.inexact


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.stages: list[HostStage | DeviceStage] = []
        self.inexact = 0

    def add(self, operator: Operator) -> None:
        """Appends one operator."""
        actions: dict[str, Callable[[Operator, Tensor, Tensor], None]] = {
            "FULLY_CONNECTED": self._fully_connected,
            "SOFTMAX": self._softmax,
            "QUANTIZE": self._quantize,
            "DEQUANTIZE": self._dequantize,
            **dict.fromkeys(CURVES, self._curve),
            **dict.fromkeys(("RELU", "RELU6"), self._relu),
            **dict.fromkeys(VIEWS, self._view),
        }
        tensors = self._graph.tensors
        if len(operator.outputs) != 1:
            raise ModelError("the numbers of its inputs and outputs are wrong")
        if any(number >= 0 and tensors[number].data is None for number in operator.inputs[1:]):
            raise ModelError("all its inputs but the first must be constants")
        source, result = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
        if operator.kind != "FULLY_CONNECTED" and source.size != result.size:
            raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
        actions[operator.kind](operator, source, result)

    def _fully_connected(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        layer, inexact = fully_connected(self._graph, operator, source, result)
        self.inexact += inexact
        rows = source.size // layer.k
        last = self.stages[-1] if self.stages else None
        if isinstance(last, DeviceStage) and last.rows == rows and last.layers[-1].n == layer.k:
            self.stages[-1] = DeviceStage((*last.layers, layer), rows)
        else:
            self.stages.append(DeviceStage((layer,), rows))

    def _softmax(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        self.stages.append(softmax_stage(operator, source, result))

    def _quantize(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        if source.dtype == "float32":
            self.stages.append(quantize_stage(operator, source, result))
        else:
            self._requantise(operator, source, result, None)

    def _dequantize(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        self.stages.append(dequantize_stage(operator, source, result))

    def _curve(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        self._elementwise(
            operator,
            source,
            result,
            curve_table(
                operator.kind, source.scale, source.zero_point, result.scale, result.zero_point
            ),
        )

    def _relu(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        limits = relu_limits(operator.kind, result.scale, result.zero_point)
        self._requantise(operator, source, result, limits)

    def _view(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        need_type("result", result, source.dtype)

    def _requantise(
        self, operator: Operator, source: Tensor, result: Tensor, limits: tuple[int, int] | None
    ) -> None:
        table = requantise_table(
            source.scale, source.zero_point, result.scale, result.zero_point, limits
        )
        self._elementwise(operator, source, result, table)

    def _elementwise(
        self, operator: Operator, source: Tensor, result: Tensor, table: NDArray[np.int8]
    ) -> None:
        """A function of each int8 code, given in the order of INT8."""
        need_type("input", source, "int8")
        need_type("result", result, "int8")
        stage = self.stages[-1] if self.stages else None
        if isinstance(stage, DeviceStage):
            # Nothing else takes the result of the layer before: Activate looks it up in passing.
            *others, layer = stage.layers
            self.stages[-1] = DeviceStage((*others, _with_table(layer, table)), stage.rows)
        else:

            def function(x: NDArray[Any]) -> NDArray[Any]:
                return table[x.astype(np.int64) + 128]

            self.stages.append(HostStage(operator.kind, function, source.shape))


def _with_table(layer: Layer, table: NDArray[np.int8]) -> Layer:
    """`layer` followed by `table`, which is in the order of INT8."""
    codes = INT8
    if layer.function in (Function.RELU, Function.RELU6):
        codes = np.maximum(codes, layer.zero_point)
    if layer.function == Function.RELU6:
        codes = np.minimum(codes, layer.ceiling)
    if layer.table is not None:
        codes = np.roll(np.frombuffer(layer.table, np.int8), 128).astype(np.int64)
    return replace(layer, function=Function.TABLE, table=table_bytes(table[codes + 128]))
