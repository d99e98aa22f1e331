# SPDX-License-Identifier: Apache-2.0
"""A model of a Convolve's vectors, from the text of the instruction set in arch/isa/.

The tests of the vector feeder and of the matrix unit compare with these vectors. The model computes
pixel by pixel, with the formulas for Set_Config_Window and Convolve, in plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from systola.verif.units.parts.walks import walk_of

LINE_SPACE = 64
"""The number of buffer lines in tests of units, at which line numbers wrap around."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A convolution window with the fields of Set_Config_Window."""

    height: int
    width: int
    pitch: int
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    top: int
    left: int
    out_height: int
    out_width: int


@dataclass(frozen=True, kw_only=True)
class Vector:
    """A vector for the array: the data of one window at one tap.

    For packed channels, it has the data at one row of taps.
    """

    values: tuple[int, ...]
    """The int8 values of the vector, as many as the array has rows."""
    line: int | None
    """The buffer line that is read for the vector; None for a vector outside the map.

    With packed channels, it is None also if the vector before ended in the same line.
    """
    missing: int | None
    """The line before `line`, if the vector needs both and no earlier vector has read it, or None.

    Only the first vector of a row of windows needs both lines, and only with packed channels.
    """
    y: int
    x: int
    """The row (`y`) and column (`x`) of the vector's first element in the map.

    With packed channels, `x` counts bytes of the row, not pixels.
    """
    base: int
    """The buffer line of the position in the walk.

    With packed channels, all vectors of a row of windows have the same.
    """
    starts: bool
    """Whether the vector is the first of a row of windows."""
    ends: bool
    """Whether the vector is the last of a row of windows."""
    optional: bool = False
    """Whether `line` lies after the map's row and need not be read; packed channels only."""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A Convolve without its tiles along N: a window and the operands that choose vectors.

    `rows` is the number of rows of the array, R in the text of the instruction set.
    """

    window: Window
    rows: int
    buffer: int
    plane: int
    k_tiles: int
    channels: int
    fill: int

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Yield (i, j, k) for each weight tile, in the order of the weight queue.

        i is the row and j the column in the kernel, and k is the block of input channels.
        """
        shape = self.window
        for i in range(shape.kernel_height):
            if self.channels:
                yield i, 0, 0
                continue
            for j in range(shape.kernel_width):
                for k in range(self.k_tiles):
                    yield i, j, k

    def vectors(self, lines: Sequence[Sequence[int]], i: int, j: int, k: int) -> Iterator[Vector]:
        """Yield the vectors for the weight tile (i, j, k), row by row of windows.

        `lines` is the content of the buffer.
        """
        for p in range(self.window.out_height):
            for q in range(self.window.out_width):
                if self.channels:
                    yield self._packed(lines, i, p, q)
                else:
                    yield self._pixel(lines, i, j, k, p, q)

    def _wrapped(self, y: int, line: int) -> int:
        """Return the buffer line that is `line` lines after the start of the map's row y.

        Line numbers wrap around at LINE_SPACE.
        """
        return (self.buffer + y * self.window.pitch + line) % LINE_SPACE

    def _pixel(
        self, lines: Sequence[Sequence[int]], i: int, j: int, k: int, p: int, q: int
    ) -> Vector:
        shape = self.window
        y = shape.top + p * shape.stride_y + i * shape.dilation_y
        x = shape.left + q * shape.stride_x + j * shape.dilation_x
        line = self.buffer + k * self.plane + y * shape.pitch + x
        inside = 0 <= y < shape.height and 0 <= x < shape.width
        values = lines[line][: self.rows] if inside else [self.fill] * self.rows
        return Vector(
            values=tuple(values),
            line=line if inside else None,
            missing=None,
            y=y,
            x=x,
            base=self._wrapped(y, k * self.plane + x),
            starts=q == 0,
            ends=q == shape.out_width - 1,
        )

    def _packed(self, lines: Sequence[Sequence[int]], i: int, p: int, q: int) -> Vector:
        shape, rows = self.window, self.rows
        y = shape.top + p * shape.stride_y + i * shape.dilation_y
        first = (shape.left + q * shape.stride_x) * self.channels
        length = shape.width * self.channels
        row = self.buffer + y * shape.pitch
        inside = 0 <= y < shape.height
        values = [
            lines[row + t // rows][t % rows] if inside and 0 <= t < length else self.fill
            for t in range(first, first + rows)
        ]
        line = row + first // rows + 1
        before = row + (first - shape.stride_x * self.channels) // rows + 1
        return Vector(
            values=tuple(values),
            line=line if inside and (q == 0 or line != before) else None,
            missing=line - 1 if inside and q == 0 and 0 <= first < length else None,
            y=y,
            x=first,
            base=self._wrapped(y, shape.left * self.channels // rows + 1),
            starts=q == 0,
            ends=q == shape.out_width - 1,
            optional=(first // rows + 1) * rows >= length,
        )

    def command(self) -> dict[str, int]:
        """Return the members of a MatrixCommand that describe the vectors, except the walk."""
        shape = self.window
        pixel = self.channels or 1
        return {
            "bounded": 1,
            "height": shape.height,
            "width": shape.width * pixel,
            "fill": self.fill,
            "packed": self.channels > 0,
            "byte": shape.left * self.channels % self.rows,
            "byte_step": shape.stride_x * self.channels,
        }

    def walk(self, n_tiles: int) -> dict[str, dict]:
        """Return the walk of a MatrixCommand for this Convolve and `n_tiles` tiles along N."""
        shape = self.window
        first = shape.left * (self.channels or 1)
        line = first // self.rows + 1 if self.channels else first
        start = {"line": self._wrapped(shape.top, line), "y": shape.top, "x": first}
        count = {"ox": shape.out_width, "oy": shape.out_height, "ky": shape.kernel_height}
        step = {
            "oy": {"line": shape.stride_y * shape.pitch, "y": shape.stride_y},
            "ky": {"line": shape.dilation_y * shape.pitch, "y": shape.dilation_y},
        }
        if self.channels:
            count |= {"kx": 1, "block": 1}
            step["ox"] = {"x": shape.stride_x * self.channels}
        else:
            count |= {"kx": shape.kernel_width, "block": self.k_tiles}
            step["ox"] = {"line": shape.stride_x, "x": shape.stride_x}
            step["kx"] = {"line": shape.dilation_x, "x": shape.dilation_x}
            step["block"] = {"line": self.plane}
        return walk_of(count={**count, "n": n_tiles}, start=start, step=step)


def some_convolution(
    rng: random.Random, *, rows: int, lines: int, packed: bool, vectors: int
) -> Convolution:
    """Return a random Convolve that passes every check of the instruction.

    The map lies within `lines` buffer lines, and a tile has at most `vectors` windows.
    """
    channels = rng.randint(1, rows) if packed else 0
    widest = max(1, rows // channels) if packed else 4
    height, width = rng.randint(1, 4), rng.choice((1, 2, 3, 5, 8))
    row_lines = -(-width * channels // rows) if packed else width
    reach = rows // channels if packed else 3
    left = rng.randint(-reach, min(reach, width + 1))
    if packed and left * channels >= rows:
        left -= 1
    out_height = rng.randint(1, 4)
    window = Window(
        height=height,
        width=width,
        pitch=row_lines + rng.randint(0, 2),
        kernel_height=rng.randint(1, 3),
        kernel_width=rng.randint(1, min(widest, 3)),
        stride_y=rng.randint(1, 3),
        stride_x=rng.randint(1, min(widest, 3)),
        dilation_y=rng.randint(1, 2),
        dilation_x=1 if packed else rng.randint(1, 2),
        top=rng.randint(-4, 3),
        left=left,
        out_height=out_height,
        out_width=rng.randint(1, min(7, vectors // out_height)),
    )
    plane = height * window.pitch + rng.randint(0, 2)
    k_tiles = 1 if packed or 2 * plane > lines else rng.randint(1, 2)
    return Convolution(
        window=window,
        rows=rows,
        buffer=rng.randint(0, lines - (k_tiles - 1) * plane - height * window.pitch),
        plane=plane,
        k_tiles=k_tiles,
        channels=channels,
        fill=rng.randint(-128, 127),
    )
