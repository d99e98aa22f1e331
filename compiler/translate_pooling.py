# SPDX-License-Identifier: Apache-2.0
"""Pooling and means as operations."""

from __future__ import annotations

import math

import numpy as np

from systola.arch.isa import Reduction
from systola.compiler.errors import ModelError
from systola.compiler.fully_connected import fused_activation, multiplier
from systola.compiler.graph import Operator
from systola.compiler.operations import (
    Convolution,
    Pooling,
    Reshape,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.quantise import relu_limits
from systola.compiler.scope import (
    Scope,
    check_maps,
    one_result,
    same_quantisation,
)
from systola.compiler.translate_convolution import check_shape, read_window

MAX_COUNT = 1 << 22
"""Elements whose sum stays within 32 bits, with a margin."""


def translate_pool(scope: Scope, operator: Operator) -> None:
    """MAX_POOL_2D and AVERAGE_POOL_2D."""
    one_result(operator, 1)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    same_quantisation(source_tensor, result_tensor)
    check_maps(source, result)
    options = operator.options
    kernel = (int(options.get("FilterHeight", 0)), int(options.get("FilterWidth", 0)))
    window = read_window(operator, source, kernel)
    check_shape(result, (1, *window.out, source.channels))
    floor, ceiling = relu_limits(
        fused_activation(operator), result_tensor.scale, result_tensor.zero_point
    )
    scope.add(
        Pooling(
            operator=str(operator),
            result=result,
            source=source,
            reduction=Reduction.MAX if operator.kind == "MAX_POOL_2D" else Reduction.AVERAGE,
            window=window,
            floor=floor,
            ceiling=ceiling,
        )
    )


def translate_mean(scope: Scope, operator: Operator) -> None:
    """MEAN along any axes: along that of channels a product with ones, else a pool."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    rank = len(source.shape)
    if rank == 0:
        raise ModelError("its input has no axes")
    axes = {int(axis) % rank for axis in scope.constant(operator, 1, "int32").reshape(-1)}
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
    if (
        not axes
        or math.prod(kept) != math.prod(result.shape)
        or (0 in axes and source.shape[0] > 1)
    ):
        raise ModelError(f"a mean of shape {result.shape} of shape {source.shape} is not supported")
    count = math.prod(source.shape[axis] for axis in axes)
    if count > MAX_COUNT:
        raise ModelError(f"a mean of {count} elements is not supported")
    q, shift = _mean_multiplier(source_tensor.scale / result_tensor.scale, count)
    bias = -source_tensor.zero_point * count
    window = _mean_window(source, axes)
    total = Value(f"{result.name} kept", kept)
    zero_point = result_tensor.zero_point
    output = scalar_requantisation(q, shift, bias=bias, zero_point=zero_point)
    if rank - 1 in axes:
        ones = np.ones((*window.kernel, source.channels, 1), np.int8)
        scope.add(
            Convolution(
                operator=str(operator),
                result=total,
                source=source,
                weights=ones,
                counts=False,
                window=window,
                fill=0,
                output=output,
            )
        )
    else:
        scope.add(
            Pooling(
                operator=str(operator),
                result=total,
                source=source,
                reduction=Reduction.SUM,
                window=window,
                output=output,
            )
        )
    scope.add(Reshape(operator=str(operator), result=result, source=total))


def _mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """LiteRT divides the multiplier by the count, with as many more bits as fit."""
    q, shift = multiplier(scale)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    if bits < 0 or shift - bits < -31:
        raise ModelError(f"its effective scale {scale:.6g} is too small")
    return (q << bits) // count, shift - bits


def _mean_window(source: Value, axes: set[int]) -> Window:
    """A window as large as the map along the dimensions that are averaged."""
    height, width = source.grid
    if len(source.shape) == 4 and source.shape[0] == 1:
        along = (1 in axes, 2 in axes)
    else:
        dimensions = {axis for axis, size in enumerate(source.shape[:-1]) if size > 1}
        if dimensions & axes and not dimensions <= axes:
            raise ModelError(f"a mean along axes {sorted(axes)} of {source.shape} is not supported")
        along = (False, bool(dimensions & axes))
    kernel = (height if along[0] else 1, width if along[1] else 1)
    return Window(kernel=kernel, out=(height // kernel[0], width // kernel[1]))
