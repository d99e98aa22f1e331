# SPDX-License-Identifier: Apache-2.0
"""The windows that Convolve, Depthwise and Pool move over a feature map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The operands of Set_Config_Window, and where the taps of each window lie.

    Windows are numbered row by row: window p * `out_width` + q is (p, q).
    """

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

    @property
    def map_lines(self) -> int:
        """Buffer lines of one feature map."""
        return self.height * self.pitch

    @property
    def taps(self) -> int:
        """Taps of one window."""
        return self.kernel_height * self.kernel_width

    @property
    def windows(self) -> int:
        """Number of windows."""
        return self.out_height * self.out_width

    def sizes(self, config: Config) -> dict[str, int]:
        """Return sizes of a machine and of this window, by the names in `arch.isa.fields.SIZES`.

        The formulas for the extents of memory accesses use these names.
        """
        return {
            "R": config.rows,
            "C": config.cols,
            "P_in": config.input_pitch,
            "P_out": config.output_pitch,
            "map_lines": self.map_lines,
            "windows": self.windows,
            "kernel_taps": self.taps,
        }

    def fits_packed(self, channels: int, size: int) -> bool:
        """Return whether Convolve accepts the window for `channels` > 0 packed channels on `size`
        array rows.
        """
        return (
            self.dilation_x == 1
            and self.kernel_width * channels <= size
            and self.stride_x * channels <= size
            and -size <= self.left * channels < size
            and self.width * channels <= size * self.pitch
        )

    def tap_lines(self, i: int, j: int) -> tuple[Indices, Mask]:
        """Return the line of tap (i, j) of each window, and whether it is inside the map.

        Both have shape (windows,); the line of a tap outside the map is 0.
        """
        x = self.left + j * self.dilation_x + self.stride_x * np.arange(self.out_width)
        row, row_inside = self._rows(i)
        inside = row_inside[:, np.newaxis] & (x >= 0) & (x < self.width)
        lines = np.where(inside, row[:, np.newaxis] * self.pitch + x, 0)
        return lines.ravel(), inside.ravel()

    def packed_bytes(self, i: int, channels: int, size: int) -> tuple[Indices, Indices, Mask]:
        """Return the places of the bytes under row i of the kernel, for packed channels, `size`
        bytes to a line.

        The three results have shape (windows, size), with an element for each byte of a window's
        vector. They are the line, counted from the map's first line, the byte in the line, and
        whether the byte is inside the map. Line and byte are 0 for an element outside.
        """
        first = (self.left + self.stride_x * np.arange(self.out_width)) * channels
        position = (first[:, np.newaxis] + np.arange(size))[np.newaxis]
        row, row_inside = self._rows(i)
        inside = (
            row_inside[:, np.newaxis, np.newaxis]
            & (position >= 0)
            & (position < self.width * channels)
        )
        line = np.where(inside, row[:, np.newaxis, np.newaxis] * self.pitch + position // size, 0)
        byte = np.where(inside, position % size, 0)
        shape = (self.windows, size)
        return line.reshape(shape), byte.reshape(shape), inside.reshape(shape)

    def _rows(self, i: int) -> tuple[Indices, Mask]:
        """Return, for each window, the row of the map under row i of the kernel, and whether it is
        inside the map.
        """
        y = self.top + i * self.dilation_y + self.stride_y * np.arange(self.out_height)
        return y, (y >= 0) & (y < self.height)


UNSET = Window(
    height=1,
    width=1,
    pitch=1,
    kernel_height=1,
    kernel_width=1,
    stride_y=1,
    stride_x=1,
    dilation_y=1,
    dilation_x=1,
    top=0,
    left=0,
    out_height=1,
    out_width=1,
)
"""A window that stands for none: no Set_Config_Window has run. The WINDOW check prevents its use.
"""
