# SPDX-License-Identifier: Apache-2.0
"""Operations with windows on long sequences, rewritten in forms that the machine can do.

A sequence is a map of one row. There is a form for each of four causes:

- If the row is too long and the stride of a convolution's windows allows, several pixels become one
pixel of more channels.
- If the row is still too long, or has too many windows, the sequence is cut into parts.
- If taps of a window are too far apart, the sequence becomes a map with rows as long as this
distance. The taps are then one above another.
- If the kernel has more taps in a row than the machine allows, the sequence becomes a map of one
column.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from systola.compiler.moves import MAX_KERNEL, moved
from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Pooling,
    Reshape,
    Slice,
    Value,
    Window,
)
from systola.compiler.partition import Item, Translation, needs_host

MAX_WIDTH = 4095
MAX_DILATION = 15
"""Largest width of a map in pixels (MAX_WIDTH), and largest distance between neighbouring taps of a
window (MAX_DILATION), that Set_Config_Window can express.
"""
MOST_WINDOWS = 1024
"""Largest number of windows along a row of one convolution. The accumulators of preset `base` have
room for as many results.
"""

Windowed = Convolution | DepthwiseConvolution | Pooling


def with_short_windows(translation: Translation) -> Translation:
    """Return `translation` with operations on sequences that the machine can do.

    An operation that the machine cannot do is replaced by several smaller ones, or by one in
    another form.
    """
    items: list[Item] = []
    for item in translation.items:
        items += _short(item) if isinstance(item, Windowed) else [item]
    return replace(translation, items=tuple(items))


def _short(node: Windowed) -> list[Item]:
    height, width = node.source.grid
    if height != 1 or node.window.kernel[0] != 1 or node.window.out[0] != 1:
        return [node]
    if node.window.first[0] != 0:
        return [node]
    if width > MAX_WIDTH and isinstance(node, Convolution):
        steps = _steps_that_fold(node)
        if steps > 1:
            return _folded(node, steps)
    most = MAX_WIDTH if isinstance(node, Pooling) else MOST_WINDOWS
    if width > MAX_WIDTH or node.window.out[1] > most:
        return _in_parts(node, most)
    if node.window.dilation[1] > MAX_DILATION and not isinstance(node, Pooling):
        return _in_rows(node)
    if node.window.kernel[1] > MAX_KERNEL and not isinstance(node, Pooling):
        return _in_column(node)
    return [node]


def _in_column(node: Convolution | DepthwiseConvolution) -> list[Item]:
    """Return operations that do `node` on a map of one column in place of its sequence.

    In a column, the first window may begin further outside the map than in a row.
    """
    window, shape = node.window, node.weights.shape
    source = _value(node.source, (1, node.source.pixels, 1, node.source.channels))
    result = _value(node.result, (1, node.result.pixels, 1, node.result.channels))
    column = replace(
        node,
        source=source,
        result=result,
        weights=node.weights.reshape(shape[1], 1, *shape[2:]),
        window=Window(
            kernel=(window.kernel[1], 1),
            stride=(window.stride[1], 1),
            dilation=(window.dilation[1], 1),
            first=(window.first[1], 0),
            out=(window.out[1], 1),
        ),
    )
    return [
        Reshape(operator=node.operator, source=node.source, result=source),
        column,
        Reshape(operator=node.operator, source=result, result=node.result),
    ]


def _steps_that_fold(node: Convolution) -> int:
    """Return the largest number of neighbouring pixels that can become one pixel of more channels.

    The number must divide both the stride of the windows and the width of the sequence. It is 1 if
    windows have gaps between their taps.
    """
    width, stride = node.source.grid[1], node.window.stride[1]
    if node.window.dilation[1] != 1:
        return 1
    return max(n for n in range(1, stride + 1) if stride % n == width % n == 0)


def _folded(node: Convolution, steps: int) -> list[Item]:
    """Return operations that do convolution `node` with each `steps` pixels joined to one pixel.

    The new pixel has the channels of all these pixels. A change of shape comes before the
    convolution.
    """
    window = node.window
    _, taps, channels, n = node.weights.shape
    first, lead = divmod(window.first[1], steps)
    count = -(-(lead + taps) // steps)
    weights = np.zeros((1, count * steps, channels, n), np.int8)
    weights[:, lead : lead + taps] = node.weights
    source = _value(node.source, (1, 1, node.source.pixels // steps, channels * steps))
    folded = replace(
        node,
        source=source,
        weights=weights.reshape(1, count, steps * channels, n),
        window=replace(
            window,
            kernel=(1, count),
            stride=(1, window.stride[1] // steps),
            first=(0, first),
        ),
    )
    view = Reshape(operator=node.operator, source=node.source, result=source)
    return [view, *_short(folded)]


def _in_parts(node: Windowed, most: int) -> list[Item]:
    """Return operations that do `node` on parts of its sequence, each with at most `most` windows.

    The last windows of a part can reach into the next part, so a part also has the pixels that its
    windows reach there. Returns `node` itself if even one window is too wide.
    """
    window, width, out = node.window, node.source.grid[1], node.window.out[1]
    extent = (window.kernel[1] - 1) * window.dilation[1] + 1
    size = min(most, (MAX_WIDTH - extent) // window.stride[1] + 1)
    if size < 1:
        return [node]
    channels, results = node.source.channels, node.result.channels
    sequence = _value(node.source, (node.source.pixels, channels))
    items: list[Item] = [Reshape(operator=node.operator, source=node.source, result=sequence)]
    parts: list[Value] = []
    for start in range(0, out, size):
        count = min(size, out - start)
        first = window.first[1] + start * window.stride[1]
        low = min(max(first, 0), width - 1)
        high = max(min(first + (count - 1) * window.stride[1] + extent, width), low + 1)
        cut = _value(node.source, (high - low, channels))
        taken = _value(node.source, (1, 1, high - low, channels))
        parts.append(_value(node.result, (1, 1, count, results)))
        items += [
            Slice(operator=node.operator, source=sequence, result=cut, axis=0, start=low),
            Reshape(operator=node.operator, source=cut, result=taken),
            *_short(
                replace(
                    node,
                    source=taken,
                    result=parts[-1],
                    window=replace(window, first=(0, first - low), out=(1, count)),
                )
            ),
        ]
    joined = _value(node.result, (1, 1, out, results))
    items += [
        Concatenation(operator=node.operator, result=joined, parts=tuple(parts), axis=2),
        Reshape(operator=node.operator, source=joined, result=node.result),
    ]
    return items


def _in_rows(node: Convolution | DepthwiseConvolution) -> list[Item]:
    """Return operations that do `node` on a map with rows as long as the distance between taps.

    Returns `node` itself if its windows have a stride above 1, or if the host would have to move
    pixels.
    """
    window = node.window
    step, taps, stride = window.dilation[1], window.kernel[1], window.stride[1]
    if stride != 1:
        return [node]
    width, out, channels = node.source.grid[1], window.out[1], node.source.channels
    items: list[Item] = []
    source, first = node.source, window.first[1]
    rows = -(-out // step)
    if first % step or width % step:
        # Pad the sequence such that it consists of whole rows, and no window reaches outside.
        length = (rows + taps - 1) * step
        source = _value(node.source, (1, 1, length, channels))
        places = np.arange(length) + first
        inside = ((places >= 0) & (places < width))[:, np.newaxis]
        pixels = places[:, np.newaxis] * channels + np.arange(channels)
        origin = np.where(inside, pixels, -1)
        items += moved(node.operator, node.source, source, origin, node.fill)
        if needs_host(items):
            return [node]
        first = 0
    map_of_rows = _value(node.source, (1, source.pixels // step, step, channels))
    items.append(Reshape(operator=node.operator, source=source, result=map_of_rows))
    made = _value(node.result, (1, rows, step, node.result.channels))
    shape = (taps, 1, *node.weights.shape[2:])
    items.append(
        replace(
            node,
            source=map_of_rows,
            result=made,
            weights=node.weights.reshape(shape),
            window=Window(kernel=(taps, 1), first=(first // step, 0), out=(rows, step)),
        )
    )
    if rows * step > out:
        pixels = _value(node.result, (rows * step, node.result.channels))
        cut = _value(node.result, (out, node.result.channels))
        items += [
            Reshape(operator=node.operator, source=made, result=pixels),
            Slice(operator=node.operator, source=pixels, result=cut, axis=0, start=0),
        ]
        made = cut
    items.append(Reshape(operator=node.operator, source=made, result=node.result))
    return items


def _value(like: Value, shape: tuple[int, ...]) -> Value:
    return Value(like.name, shape)
