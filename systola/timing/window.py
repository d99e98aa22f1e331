# SPDX-License-Identifier: Apache-2.0
"""The lines that a window touches on its way over a feature map."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class WindowGrid:
    """The window of a Set_Config_Window with the operands `operands`."""

    def __init__(self, operands: Mapping[str, int]) -> None:
        self.operands = operands
        self.taps = operands["kernel_height"] * operands["kernel_width"]
        self.pixels = operands["out_height"] * operands["out_width"]
        self.map_lines = operands["height"] * operands["pitch"]
        self._lines: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}

    def places(self, ky: int, kx: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the map rows and the map columns in which tap (`ky`, `kx`) of the windows lies.

        There is a map row for each row of windows, and a map column for each column of windows.
        Some rows and columns may lie outside the map.
        """
        o = self.operands
        y = o["top"] + ky * o["dilation_y"] + np.arange(o["out_height"]) * o["stride_y"]
        x = o["left"] + kx * o["dilation_x"] + np.arange(o["out_width"]) * o["stride_x"]
        return y, x

    def lines(self, ky: int, kx: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for each window the line of tap (`ky`, `kx`), and whether the tap is in the map.

        Lines are counted from the first line of the map, and windows come row by row. The line of a
        tap outside has no meaning.
        """
        if (ky, kx) not in self._lines:
            o = self.operands
            y, x = self.places(ky, kx)
            inside = ((y >= 0) & (y < o["height"]))[:, None] & ((x >= 0) & (x < o["width"]))
            lines = y.clip(0, o["height"] - 1)[:, None] * o["pitch"] + x.clip(0, o["width"] - 1)
            self._lines[ky, kx] = lines.reshape(-1), inside.reshape(-1)
        return self._lines[ky, kx]

    def last_lines(self) -> NDArray[np.int64]:
        """Return for each window the line of its last tap, counted from the first line of the map.

        A tap outside has the nearest line of the map.
        """
        o = self.operands
        return self.lines(o["kernel_height"] - 1, o["kernel_width"] - 1)[0]

    def packed_lines(self, ky: int, channels: int, rows: int) -> NDArray[np.int64]:
        """Return for each window the last line that its vector for kernel row `ky` needs.

        The channels are packed. The line is negative if the kernel row is outside the map, or if
        the window before needed the same line.
        """
        o = self.operands
        y, x = self.places(ky, 0)
        row_bytes = o["width"] * channels
        last = np.minimum((x * channels + rows - 1).clip(0), row_bytes - 1) // rows
        is_new = np.append(True, last[1:] != last[:-1])
        inside = (y >= 0) & (y < o["height"])
        lines = y[:, None] * o["pitch"] + last
        return np.where(inside[:, None] & is_new, lines, -1).reshape(-1)
