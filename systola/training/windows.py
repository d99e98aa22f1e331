# SPDX-License-Identifier: Apache-2.0
"""Describes the windows of a convolution or a pooling over maps."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systola.training.errors import TrainingError


@dataclass(frozen=True)
class Window:
    """The windows over a map; sizes and places are pairs (y, x).

    Tap (i, j) of window (p, q) is pixel (p, q) * stride - before + (i, j).
    """

    map: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    """Number of pixels of padding above and on the left."""
    out: tuple[int, int]

    @property
    def taps(self) -> int:
        """Number of taps, which is the number of pixels of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def side_by_side(self) -> bool:
        """Whether every pixel between the first window and the last window belongs to exactly one
        window.
        """
        return self.kernel == self.stride

    @property
    def sharing(self) -> int:
        """Largest number of windows that a pixel belongs to."""
        return prod(-(-size // step) for size, step in zip(self.kernel, self.stride, strict=True))

    @property
    def places(self) -> list[tuple[int, int]]:
        """Positions (i, j) of all taps in a window, row by row, counted from (0, 0)."""
        return [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]


def convolved(
    size: tuple[int, ...], kernel: tuple[int, int], stride: tuple[int, int], padding: str
) -> Window:
    """Return the windows of a convolution, with Keras's padding "same" or "valid".

    Raises TrainingError if the kernel does not fit the map.
    """
    out: list[int] = []
    before: list[int] = []
    for length, taps, step in zip(size, kernel, stride, strict=True):
        count = -(-length // step) if padding == "same" else (length - taps) // step + 1
        if count < 1:
            raise TrainingError(f"a kernel of {kernel} does not fit a map of {tuple(size)}")
        out.append(count)
        missing = max((count - 1) * step + taps - length, 0) if padding == "same" else 0
        before.append(missing // 2)
    height, width = size
    return Window((height, width), kernel, stride, (before[0], before[1]), (out[0], out[1]))


def pooled(size: tuple[int, int], pool: tuple[int, int], stride: tuple[int, int]) -> Window:
    """Return the windows of a pooling. Pixels that fill no whole window belong to none.

    Raises TrainingError if a window does not fit the map.
    """
    out = (size[0] - pool[0]) // stride[0] + 1, (size[1] - pool[1]) // stride[1] + 1
    if min(out) < 1:
        raise TrainingError(f"a pool of {pool} does not fit a map of {size}")
    return Window(size, pool, stride, (0, 0), out)
