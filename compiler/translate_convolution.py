# SPDX-License-Identifier: Apache-2.0
"""Convolutions, products and padding as operations."""

from __future__ import annotations

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.fully_connected import fully_connected
from systola.compiler.graph import Operator, need_type
from systola.compiler.operations import Convolution, DepthwiseConvolution, Product, Value, Window
from systola.compiler.scope import (
    Scope,
    channel_requantisation,
    check_maps,
    check_moves,
    gathered,
    one_result,
    same_quantisation,
)


def translate_convolution(scope: Scope, operator: Operator) -> None:
    """CONV_2D."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    check_maps(source, result)
    weights = scope.tensor(operator, 1)
    need_type("weights", weights, "int8")
    if weights.data is None or len(weights.shape) != 4:
        raise ModelError("its weights must be constants of four dimensions")
    n, height, width, channels = weights.shape
    if channels != source.channels:
        raise ModelError(
            f"weights of {channels} channels do not fit {source.channels}: "
            "grouped convolutions are not supported"
        )
    window = read_window(operator, source, (height, width))
    check_shape(result, (1, *window.out, n))
    values = weights.data.transpose(1, 2, 3, 0)
    scope.add(
        Convolution(
            operator=str(operator),
            result=result,
            source=source,
            weights=values,
            window=window,
            fill=source_tensor.zero_point,
            output=channel_requantisation(
                operator,
                source_tensor,
                result_tensor,
                weights,
                scope.optional(operator, 2),
                values.sum(axis=(0, 1, 2), dtype=np.int64),
                axis=0,
            ),
        )
    )


def translate_depthwise(scope: Scope, operator: Operator) -> None:
    """DEPTHWISE_CONV_2D; where it makes several channels of each, they are copied first."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    check_maps(source, result)
    weights = scope.tensor(operator, 1)
    need_type("weights", weights, "int8")
    if weights.data is None or len(weights.shape) != 4 or weights.shape[0] != 1:
        raise ModelError("its weights must be constants of the shape 1 x H x W x C")
    values = weights.data[0]
    height, width, channels = values.shape
    if channels == 0 or channels % source.channels:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    window = read_window(operator, source, (height, width))
    check_shape(result, (1, *window.out, channels))
    if channels != source.channels:
        copies = Value(f"{source.name} for {operator}", (*source.shape[:-1], channels))
        each = np.arange(source.channels, dtype=np.int64)
        origin = np.repeat(each, channels // source.channels)
        scope.add(gathered(str(operator), source, copies, origin, source_tensor.zero_point))
        source = copies
    scope.add(
        DepthwiseConvolution(
            operator=str(operator),
            result=result,
            source=source,
            weights=values,
            window=window,
            fill=source_tensor.zero_point,
            output=channel_requantisation(
                operator,
                source_tensor,
                result_tensor,
                weights,
                scope.optional(operator, 2),
                values.sum(axis=(0, 1), dtype=np.int64),
                axis=3,
            ),
        )
    )


def translate_fully_connected(scope: Scope, operator: Operator) -> None:
    """FULLY_CONNECTED."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    layer, inexact = fully_connected(
        scope.graph, operator, source_tensor, result_tensor, scope.semantics
    )
    scope.inexact_channels += inexact
    scope.add(Product(operator=str(operator), result=result, source=source, layer=layer))


def translate_pad(scope: Scope, operator: Operator) -> None:
    """PAD with the zero point: a convolution that moves the map."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    same_quantisation(source_tensor, result_tensor)
    check_maps(source, result)
    padding = scope.constant(operator, 1, "int32")
    if padding.shape != (4, 2) or bool((padding < 0).any()) or bool(padding[0].any()):
        raise ModelError("its padding is not one of rows, columns and channels")
    before, after = padding[:, 0].astype(np.int64), padding[:, 1].astype(np.int64)
    check_shape(result, tuple((np.array(source.shape) + before + after).tolist()))
    check_moves(source.channels, result.channels)
    channels = np.full(result.channels, -1, np.int64)
    channels[before[3] : before[3] + source.channels] = np.arange(source.channels)
    window = Window(kernel=(1, 1), first=(-int(before[1]), -int(before[2])), out=result.grid)
    fill = source_tensor.zero_point
    scope.add(gathered(str(operator), source, result, channels, fill, window))


def read_window(operator: Operator, source: Value, kernel: tuple[int, int]) -> Window:
    """The window of an operator over `source`, padding as LiteRT calculates it."""
    options = operator.options
    padding = options.get("Padding")
    if padding not in ("SAME", "VALID"):
        raise ModelError(f"padding {padding} is not supported")
    stride = (int(options.get("StrideH", 1)), int(options.get("StrideW", 1)))
    dilation = (int(options.get("DilationHFactor", 1)), int(options.get("DilationWFactor", 1)))
    if min(*stride, *dilation, *kernel) < 1:
        raise ModelError("its window, strides and dilation must be at least 1")
    first: list[int] = []
    out: list[int] = []
    for size, taps, step, spread in zip(source.grid, kernel, stride, dilation, strict=True):
        extent = (taps - 1) * spread + 1
        if padding == "SAME":
            count = -(-size // step)
            first.append(-(max((count - 1) * step + extent - size, 0) // 2))
        else:
            count = (size - extent) // step + 1
            first.append(0)
        if count < 1:
            raise ModelError(f"its window does not fit a map of shape {source.shape}")
        out.append(count)
    return Window(
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        first=(first[0], first[1]),
        out=(out[0], out[1]),
    )


def check_shape(result: Value, shape: tuple[int, ...]) -> None:
    """Raises ModelError unless the result has that shape."""
    if result.shape != shape:
        raise ModelError(f"its result should have the shape {shape}, not {result.shape}")
