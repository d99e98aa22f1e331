# SPDX-License-Identifier: Apache-2.0
"""What the host does with a network's data before and behind the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.graph import Operator, Tensor, need_type
from systola.compiler.quantise import to_float, to_int8
from systola.runtime.softmax import softmax

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True)
class HostStage:
    """Something that the host does with an array of samples x shape."""

    name: str
    function: Callable[[NDArray[Any]], NDArray[Any]]
    shape: tuple[int, ...]
    """Of one sample, before and after."""


def softmax_stage(operator: Operator, source: Tensor, result: Tensor) -> HostStage:
    """SOFTMAX; raises ModelError for what is not supported, as the others do."""
    need_type("input", source, "int8")
    need_type("result", result, "int8")
    if result.scale != 1 / 256 or result.zero_point != -128:
        raise ModelError("its result must have the scale 1/256 and the zero point -128")
    scale, beta = source.scale, float(operator.options.get("Beta", 0.0))
    if not 2.0**-26 < beta * scale < 2.0**26:
        raise ModelError(f"its beta of {beta} is not supported")
    return HostStage(operator.kind, lambda x: softmax(x, scale, beta), source.shape)


def quantize_stage(operator: Operator, source: Tensor, result: Tensor) -> HostStage:
    """QUANTIZE from float32."""
    need_type("input", source, "float32")
    need_type("result", result, "int8")
    scale, zero_point = result.scale, result.zero_point
    return HostStage(operator.kind, lambda x: to_int8(x, scale, zero_point), source.shape)


def dequantize_stage(operator: Operator, source: Tensor, result: Tensor) -> HostStage:
    """DEQUANTIZE to float32."""
    need_type("input", source, "int8")
    need_type("result", result, "float32")
    scale, zero_point = source.scale, source.zero_point
    return HostStage(operator.kind, lambda x: to_float(x, scale, zero_point), source.shape)
