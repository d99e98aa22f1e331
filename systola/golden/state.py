# SPDX-License-Identifier: Apache-2.0
"""The state of a machine: memories, windows of host and weights, settings of a program."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.golden.requantise import Integers
from systola.golden.scalar import ScalarUnit
from systola.golden.training import Exponents, Generators
from systola.golden.vector import Scale
from systola.golden.wide import joined, parted
from systola.golden.window import UNSET


class State:
    """The memories on the chip, which keep their contents from program to program, and the
    settings.

    Every program begins without settings.

    buffer : int8, (buffer_lines, line_bytes)
    accumulators : int32, (accumulator_rows, cols)
    parameters : uint8, (parameter_entries, PARAMETER_PLANES, cols), planes as Load_Parameters
        found them
    tables : int8, (tables, TABLE_BYTES)
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.buffer = np.zeros((config.buffer_lines, config.line_bytes), np.int8)
        self.accumulators = np.zeros((config.accumulator_rows, config.cols), np.int32)
        self.parameters = np.zeros(
            (config.parameter_entries, PARAMETER_PLANES, config.cols), np.uint8
        )
        self.tables = np.zeros((config.tables, TABLE_BYTES), np.int8)
        self._host = np.zeros(0, np.uint8)
        self._tiles = np.zeros((0, config.rows, config.weight_row_pitch), np.uint8)
        self._program = 0
        self._reset()

    def _reset(self) -> None:
        """Reset all state that a program does not take over from the program before; memories keep
        their contents.
        """
        self._next: int = 0
        self.executed: int = 0
        """Instructions that have completed."""
        self._queue: deque[range] = deque()
        """Tiles not yet consumed: a range of tile numbers for each Read_Weights with tiles left."""
        self._interrupts: list[int] = []
        self._tags: list[int] = []
        self._scalar = ScalarUnit()
        self._window = UNSET
        self._scale = Scale()
        self._exponents = Exponents()
        self._generators = Generators(self.config.cols)

    def _lines(self, first: int, groups: int, rows: int) -> NDArray[np.int8]:
        """Return buffer lines from `first` on as a view: (groups, rows, line_bytes)."""
        lines = self.buffer[first : first + groups * rows]
        return lines.reshape(groups, rows, self.config.line_bytes)

    def _values(self, first: int, groups: int, rows: int, wide: bool) -> Integers:
        """Return whole lines as int8, or pairs of lines as int16: (groups, rows, line_bytes)."""
        if not wide:
            return self._lines(first, groups, rows)
        return joined(self._lines(first, groups * rows, 2)).reshape(groups, rows, -1)

    def _store(self, first: int, results: NDArray[np.int8]) -> None:
        """Write (..., C) results of int8 to lines, one result for each line; bytes beyond C become
        0.
        """
        cols = self.config.cols
        vectors = results.reshape(-1, cols)
        lines = self.buffer[first : first + len(vectors)]
        lines[:, :cols] = vectors
        lines[:, cols:] = 0

    def _store_wide(self, first: int, results: NDArray[np.int16]) -> None:
        """Write (..., C) results of int16 to pairs of lines, low bytes in the first line of a
        pair.
        """
        self._store(first, parted(results))
