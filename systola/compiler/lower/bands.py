# SPDX-License-Identifier: Apache-2.0
"""Bands of rows, for an operation on maps that the buffer cannot hold whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from systola.compiler.operations import (
    Binary,
    Convolution,
    Curve,
    DepthwiseConvolution,
    Pooling,
    Unary,
    Value,
    WideProduct,
    Window,
)

Windowed = Convolution | DepthwiseConvolution | Pooling


@dataclass(frozen=True)
class Band:
    """A band of a map, which is rows `first` to `first` + `count` - 1."""

    first: int
    count: int


def cut(height: int, count: int) -> Iterator[Band]:
    """Yield at most `count` bands that together have `height` rows, as equal as possible."""
    size = -(-height // count)
    for first in range(0, height, size):
        yield Band(first, min(size, height - first))


def needed(window: Window, height: int, band: Band) -> Band:
    """Return the rows of the source, at least one, that an operation needs for `band` of its
    result.

    The source has `height` rows.
    """
    top = window.first[0] + band.first * window.stride[0]
    reach = (band.count - 1) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1
    first = min(max(top, 0), height - 1)
    return Band(first, max(min(top + reach, height) - first, 1))


def window_of(window: Window, band: Band, origin: int) -> Window:
    """Return the windows of an operation that make only the rows `band` of its result.

    The returned windows are for a map that begins with row `origin` of the source.
    """
    top = window.first[0] + band.first * window.stride[0] - origin
    return replace(window, first=(top, window.first[1]), out=(band.count, window.out[1]))


@lru_cache(maxsize=4096)
def with_window(node: Windowed, window: Window) -> Windowed:
    """Return the operation `node` with `window` in place of its own windows.

    Equal arguments give the same object, so the object can be a key of other caches.
    """
    return replace(node, window=window)


Elementwise = Unary | Binary | Curve | WideProduct


def part_of(node: Elementwise, band: Band) -> Elementwise:
    """Return the operation `node` for some pixels of its result only, its constants cut
    accordingly.

    `band` is a range of pixels. In a result of int16, two pixels with the low and the high bytes
    count as one.
    """
    if not isinstance(node, Binary):
        return node
    lines = 2 if node.wide else 1
    here = slice(lines * band.first, lines * (band.first + band.count))
    a, b = (
        operand if isinstance(operand, Value) else operand.reshape(-1, operand.shape[-1])[here]
        for operand in (node.a, node.b)
    )
    return replace(node, a=a, b=b)
