# SPDX-License-Identifier: Apache-2.0
"""A model of windows over feature maps, tap by tap, in plain integers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from systola.arch.isa import Opcode, encode


@dataclass(frozen=True)
class Windows:
    """The operands of Set_Config_Window; by default a map of one pixel and one window on it."""

    height: int = 1
    width: int = 1
    pitch: int = 1
    kernel_height: int = 1
    kernel_width: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    top: int = 0
    left: int = 0
    out_height: int = 1
    out_width: int = 1

    @property
    def word(self) -> bytes:
        """The instruction word of a Set_Config_Window with these operands."""
        return encode(Opcode.SET_CONFIG_WINDOW, **vars(self))

    @property
    def outputs(self) -> int:
        """Number of windows over the feature map."""
        return self.out_height * self.out_width

    @property
    def taps(self) -> int:
        """Number of taps of a window."""
        return self.kernel_height * self.kernel_width

    @property
    def lines(self) -> int:
        """Number of buffer lines of a map."""
        return self.height * self.pitch

    def positions(self) -> Iterator[tuple[int, int]]:
        """Yield the row p and column q of each window, row by row."""
        for p in range(self.out_height):
            for q in range(self.out_width):
                yield p, q

    def kernel(self) -> Iterator[tuple[int, int]]:
        """Yield the row i and column j of each tap of the kernel, row by row."""
        for i in range(self.kernel_height):
            for j in range(self.kernel_width):
                yield i, j

    def line(self, p: int, q: int, i: int, j: int) -> int | None:
        """Return the line of tap (i, j) of window (p, q), counted from the map's first line.

        Return None for a tap outside the map.
        """
        y = self.top + p * self.stride_y + i * self.dilation_y
        x = self.left + q * self.stride_x + j * self.dilation_x
        if 0 <= y < self.height and 0 <= x < self.width:
            return y * self.pitch + x
        return None


def random_windows(rng: random.Random) -> Windows:
    """Return a window over a small map; it may lie inside, at an edge or wholly outside."""
    width = rng.randint(1, 7)
    return Windows(
        height=rng.randint(1, 6),
        width=width,
        pitch=width + rng.choice((0, 0, 1, 3)),
        kernel_height=rng.choice((1, 2, 3, 3, 5)),
        kernel_width=rng.choice((1, 2, 3, 3, 4)),
        stride_y=rng.choice((1, 1, 2, 3, 6)),
        stride_x=rng.choice((1, 1, 2, 3, 6)),
        dilation_y=rng.choice((1, 1, 2, 4)),
        dilation_x=rng.choice((1, 1, 2, 4)),
        top=rng.choice((0, -1, -2, 1, -9, 4)),
        left=rng.choice((0, -1, -2, 1, -9, 4)),
        out_height=rng.randint(1, 4),
        out_width=rng.randint(1, 4),
    )
