# SPDX-License-Identifier: Apache-2.0
"""The cutting of maps into bands of rows, as the buffer cannot always hold a map whole.

An operation then makes one band of its result at a time. It reads only the band of its source that
it needs for this.
"""

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
    """A band of a map: rows `first` to `first` + `count` - 1, counted from 0 at the top."""

    first: int
    count: int


def cut(height: int, count: int) -> Iterator[Band]:
    """Yield the bands of a map of `height` rows, at most `count`, from top to bottom.

    All bands have the same number of rows, except that the last band may have fewer.
    """
    size = -(-height // count)
    for first in range(0, height, size):
        yield Band(first, min(size, height - first))


def needed(window: Window, height: int, band: Band) -> Band:
    """Return the band of its source that an operation on windows reads to make `band` of its
    result.

    The source has `height` rows. The returned band has at least one row, even if all windows lie
    outside the source.
    """
    top = window.first[0] + band.first * window.stride[0]
    reach = (band.count - 1) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1
    first = min(max(top, 0), height - 1)
    return Band(first, max(min(top + reach, height) - first, 1))


def window_of(window: Window, band: Band, origin: int) -> Window:
    """Return `window` with only those windows that make the rows `band` of an operation's result.

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
    """Return the operation `node` for the pixels `band` of its result only.

    Here a Band counts pixels, not rows. A pixel of an int16 result counts as one, although it takes
    a line of low bytes and a line of high bytes. Constant operands are cut to the same pixels.
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
