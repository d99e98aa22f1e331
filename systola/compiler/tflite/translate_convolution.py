# SPDX-License-Identifier: Apache-2.0
"""The translation of TensorFlow Lite's convolutions and products."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.moves import MAX_LEFT, check_size, moved
from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Product,
    Requantisation,
    Reshape,
    Slice,
    Value,
    Window,
)
from systola.compiler.tflite.dilated import EXPLICIT
from systola.compiler.tflite.fully_connected import centred, fully_connected
from systola.compiler.tflite.graph import Operator, Tensor, need_type
from systola.compiler.tflite.scope import Scope, channel_requantisation, check_maps, one_result
from systola.compiler.wide_weights import repeated, weight_parts, widened

DEPTHWISE_BLOCK = 32
"""Largest number of channels in a block with weights of more than 8 bits.

The channels of a depthwise convolution are cut into blocks. A block with such weights becomes a
full convolution, most weights of which are 0, so larger blocks would cost more.
"""
MOST_WEIGHTS = 1 << 25
"""Largest number of weights of a convolution in groups, with the zeros between groups."""


def translate_convolution(scope: Scope, operator: Operator) -> None:
    """Translate CONV_2D of int8 to one convolution. If each result channel takes only one group of
    the source's channels, its weights for the channels of all other groups become 0.
    """
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    check_maps(source, result)
    weights = _weights(scope, operator)
    n, height, width, channels = weights.shape
    groups = source.channels // channels if channels else 0
    if groups == 0 or source.channels % channels or n % groups:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    window = read_window(operator, source, result, (height, width))
    check_shape(result, (1, *window.out, n))
    values = centred(weights).transpose(1, 2, 3, 0)
    output = channel_requantisation(
        operator,
        source_tensor,
        result_tensor,
        weights,
        scope.optional(operator, 2),
        values.sum(axis=(0, 1, 2), dtype=np.int64),
        axis=0,
    )
    _add_convolution(scope, operator, result, source_tensor, source, window, values, output, groups)


def translate_depthwise(scope: Scope, operator: Operator) -> None:
    """Translate DEPTHWISE_CONV_2D of int8 to a depthwise convolution. If several channels of the
    result take the same channel of the source, this channel is first copied for each of them.

    A source of one channel gets a full convolution instead.
    """
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    check_maps(source, result)
    weights = _weights(scope, operator)
    one, height, width, channels = weights.shape
    if one != 1 or channels == 0 or channels % source.channels:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    window = read_window(operator, source, result, (height, width))
    check_shape(result, (1, *window.out, channels))
    values = centred(weights)[0]
    output = channel_requantisation(
        operator,
        source_tensor,
        result_tensor,
        weights,
        scope.optional(operator, 2),
        values.sum(axis=(0, 1), dtype=np.int64),
        axis=3,
    )
    if source.channels == 1:
        each = values[:, :, np.newaxis]
        _add_convolution(scope, operator, result, source_tensor, source, window, each, output, 1)
        return
    source, window = _without_padding(scope, source, source_tensor, window)
    if channels != source.channels:
        copies = Value(f"{source.name} for {operator}", (*source.shape[:-1], channels))
        check_size(copies)
        origin = np.arange(source.channels * source.pixels).reshape(source.shape)
        origin = np.repeat(origin, channels // source.channels, axis=3)
        scope.add(*moved(str(operator), source, copies, origin))
        source = copies
    _add_blocks(scope, operator, result, source_tensor, source, window, values, output)


def _add_blocks(
    scope: Scope,
    operator: Operator,
    result: Value,
    source_tensor: Tensor,
    source: Value,
    window: Window,
    values: NDArray[np.int64],
    output: Requantisation,
) -> None:
    """Add a depthwise convolution to the scope, some weights of which may have more than 8 bits.

    A block of channels with such weights becomes a full convolution, each other block stays
    depthwise. In most models only one channel has such weights: the channel with the least or the
    largest weight of all.
    """
    made: list[Value] = []
    for start, stop, parts in _blocks(values):
        here = slice(start, stop)
        count = stop - start
        some, target = source, result
        if count < source.channels:
            some = Value(f"{source.name} from {start}", (*source.shape[:-1], count))
            target = Value(f"{result.name} from {start}", (*result.shape[:-1], count))
            scope.add(
                Slice(operator=str(operator), source=source, result=some, axis=3, start=start)
            )
        own = replace(
            output,
            bias=output.bias[here],
            multiplier=output.multiplier[here],
            shift=output.shift[here],
        )
        if len(parts) == 1:
            scope.add(
                DepthwiseConvolution(
                    operator=str(operator),
                    result=target,
                    source=some,
                    weights=parts[0],
                    window=window,
                    fill=source_tensor.zero_point,
                    output=own,
                )
            )
        else:
            own_values = values[..., here, np.newaxis] * np.eye(count, dtype=np.int64)
            some, items, weights = widened(str(operator), some, own_values)
            scope.add(*items)
            scope.add(
                Convolution(
                    operator=str(operator),
                    result=target,
                    source=some,
                    weights=weights,
                    window=window,
                    fill=source_tensor.zero_point,
                    output=own,
                )
            )
        made.append(target)
    if len(made) > 1:
        scope.add(Concatenation(operator=str(operator), result=result, parts=tuple(made), axis=3))


def _blocks(values: NDArray[np.int64]) -> list[tuple[int, int, list[NDArray[np.int8]]]]:
    """Return the blocks of channels into which the weights of a depthwise convolution are cut.

    An item has the block's first channel, its last channel + 1, and int8 arrays that add up to the
    block's weights. Neighbouring blocks are joined to one if each needs only a single array.
    """
    count = values.shape[-1]
    starts = range(0, count, DEPTHWISE_BLOCK)
    narrow = [
        len(weight_parts(values[..., start : start + DEPTHWISE_BLOCK])) == 1 for start in starts
    ]
    first = [
        start
        for number, start in enumerate(starts)
        if not (number and narrow[number] and narrow[number - 1])
    ]
    return [
        (start, stop, weight_parts(values[..., start:stop]))
        for start, stop in pairwise((*first, count))
    ]


def translate_transpose_conv(scope: Scope, operator: Operator) -> None:
    """Translate TRANSPOSE_CONV to a convolution over the source with zeros between its pixels."""
    one_result(operator, 3)
    source, source_tensor = scope.source(operator, 2)
    result, result_tensor = scope.result(operator)
    check_maps(source, result)
    weights = _weights(scope, operator)
    origin, window = upsampled(scope, operator, source, result, weights)
    if origin.shape != source.shape:
        spread = Value(f"{source.name} spread", origin.shape)
        scope.add(*moved(str(operator), source, spread, origin, source_tensor.zero_point))
        source = spread
    values = centred(weights)[:, ::-1, ::-1].transpose(1, 2, 3, 0)
    output = channel_requantisation(
        operator,
        source_tensor,
        result_tensor,
        weights,
        scope.optional(operator, 3),
        values.sum(axis=(0, 1, 2), dtype=np.int64),
        axis=0,
    )
    scope.add(
        Convolution(
            operator=str(operator),
            result=result,
            source=source,
            weights=np.ascontiguousarray(values.astype(np.int8)),
            window=window,
            fill=source_tensor.zero_point,
            output=output,
        )
    )


def upsampled(
    scope: Scope, operator: Operator, source: Value, result: Value, weights: Tensor
) -> tuple[NDArray[np.int64], Window]:
    """Return how a TRANSPOSE_CONV spreads its source, and the window over the spread map.

    The spread map has zeros between the pixels of the source. It is returned as an array for the
    function `moved`: for each element the position in the source, or -1 for a zero.
    """
    n, *kernel, channels = weights.shape
    if channels != source.channels:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    check_shape(result, tuple(scope.whole_numbers(operator, 0).reshape(-1).tolist()))
    padding = operator.options.get("Padding")
    if padding not in ("SAME", "VALID") or result.channels != n:
        raise ModelError(f"its padding {padding} or its result of {result.shape} is not supported")
    strides = [int(operator.options.get(name, 1)) for name in ("StrideH", "StrideW")]
    if min(*strides, *kernel) < 1:
        raise ModelError("its window and strides must be at least 1")
    first: list[int] = []
    for size, taps, step in zip(result.grid, kernel, strides, strict=True):
        total = max((-(-size // step) - 1) * step + taps - size, 0)
        first.append((total // 2 if padding == "SAME" else 0) - (taps - 1))
    sizes = [(size - 1) * step + 1 for size, step in zip(source.grid, strides, strict=True)]
    shape = (1, *sizes, channels)
    check_size(Value(f"{source.name} spread", shape))
    origin = np.full(shape, -1)
    positions = np.arange(source.pixels * channels).reshape(source.shape)
    origin[:, :: strides[0], :: strides[1]] = positions
    window = Window(kernel=(kernel[0], kernel[1]), first=(first[0], first[1]), out=result.grid)
    return origin, window


def _weights(scope: Scope, operator: Operator) -> Tensor:
    weights = scope.tensor(operator, 1)
    need_type("weights", weights, "int8")
    if weights.data is None or len(weights.shape) != 4:
        raise ModelError("its weights must be constants of four dimensions")
    return weights


def _add_convolution(
    scope: Scope,
    operator: Operator,
    result: Value,
    source_tensor: Tensor,
    source: Value,
    window: Window,
    values: NDArray[np.int64],
    output: Requantisation,
    groups: int,
) -> None:
    """Add a convolution, in which each result channel takes all channels, to the scope.

    `values` are the weights, height x width x channels of one group x channels of the result. They
    may have more than 8 bits. Weights between different groups are added as zeros.
    """
    height, width, channels, n = values.shape
    if groups > 1:
        if values.size * groups > MOST_WEIGHTS:
            raise ModelError(f"{groups} groups of {channels} channels are not supported")
        whole = np.zeros((height, width, groups, channels, groups, n // groups), np.int64)
        each = values.reshape(height, width, channels, groups, n // groups)
        for group in range(groups):
            whole[:, :, group, :, group] = each[:, :, :, group]
        values = whole.reshape(height, width, groups * channels, n)
    source, window = _without_padding(scope, source, source_tensor, window)
    source, items, weights = widened(str(operator), source, values)
    scope.add(*items)
    scope.add(
        Convolution(
            operator=str(operator),
            result=result,
            source=source,
            weights=weights,
            window=window,
            fill=source_tensor.zero_point,
            output=output,
            groups=groups,
        )
    )


def _without_padding(
    scope: Scope, source: Value, tensor: Tensor, window: Window
) -> tuple[Value, Window]:
    """Return the input of the PAD that made `source`, and a window that does the padding itself.

    Returns `source` and `window` unchanged if no PAD made `source`, or if a window cannot pad in
    the same way.
    """
    padded = scope.padded.get(source)
    if padded is None or padded.fill != tensor.zero_point or padded.before[0]:
        return source, window
    inner = padded.source
    if len(inner.shape) != 4 or inner.shape[0] != 1 or inner.channels != source.channels:
        return source, window
    first = (window.first[0] - padded.before[1], window.first[1] - padded.before[2])
    if first[1] < -MAX_LEFT:
        return source, window
    return inner, replace(window, first=first)


def translate_fully_connected(scope: Scope, operator: Operator) -> None:
    """Translate FULLY_CONNECTED of int8 to a matrix product."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    layer, inexact = fully_connected(
        scope.graph, operator, source_tensor, result_tensor, scope.semantics
    )
    scope.inexact_channels += inexact
    k = scope.tensor(operator, 1).shape[1]
    copies = layer.k // k
    keep = bool(operator.options.get("KeepNumDims"))
    shape = (*source_tensor.shape[:-1], layer.n) if keep else (source_tensor.size // k, layer.n)
    if result_tensor.shape != shape:
        raise ModelError(f"it makes shape {shape}, not {result_tensor.shape}")
    rows = source.pixels * source.channels // k
    if k % source.channels or copies > 1:
        # A row of the product must be one pixel or several, so the source is reshaped to rows.
        matrix = Value(f"{source.name} for {operator}", (rows, k))
        scope.add(Reshape(operator=str(operator), result=matrix, source=source))
        source, items = repeated(str(operator), matrix, copies)
        scope.add(*items)
    product = result
    if result.channels != layer.n:
        product = Value(f"{result.name} of {operator}", (rows, layer.n))
    scope.add(Product(operator=str(operator), result=product, source=source, layer=layer))
    if product is not result:
        scope.add(Reshape(operator=str(operator), result=result, source=product))


def read_window(
    operator: Operator, source: Value, result: Value, kernel: tuple[int, int]
) -> Window:
    """Return the operator's window over `source`, with padding as LiteRT calculates it.

    The file states padding as SAME or VALID. Operators that dilated_convolutions has rewritten have
    EXPLICIT padding instead, with the first window's row and column.
    """
    options = operator.options
    padding = options.get("Padding")
    if padding not in ("SAME", "VALID", EXPLICIT):
        raise ModelError(f"padding {padding} is not supported")
    stride = (int(options.get("StrideH", 1)), int(options.get("StrideW", 1)))
    dilation = (int(options.get("DilationHFactor", 1)), int(options.get("DilationWFactor", 1)))
    if min(*stride, *dilation, *kernel) < 1:
        raise ModelError("its window, strides and dilation must be at least 1")
    first: list[int] = []
    out: list[int] = []
    if padding == EXPLICIT:
        return Window(
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            first=(int(options["FirstH"]), int(options["FirstW"])),
            out=result.grid,
        )
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
    """Raise ModelError unless the result has the shape `shape`."""
    if result.shape != shape:
        raise ModelError(f"its result should have the shape {shape}, not {result.shape}")
