# SPDX-License-Identifier: Apache-2.0
"""A golden model that records the bus beats that each instruction of a program needs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.golden.machine import Machine


class Touched(Machine):
    """A golden model that records bus beats. A beat is the number of a bus word in its window.

    `read` and `written` have the beats on the host port that each instruction needs, by instruction
    number. `weights` has the same for the weight port. `used` has only the beats of tiles that a
    product uses, since other tiles may arrive after the program's end.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.read: dict[int, set[int]] = defaultdict(set)
        self.written: dict[int, set[int]] = defaultdict(set)
        self.weights: dict[int, set[int]] = defaultdict(set)
        self.used: set[int] = set()
        self._rows_are = self.read

    def write_host_memory(self, **operands: int) -> None:
        """Execute a Write_Host_Memory, and record the beats of its rows as written."""
        self._rows_are = self.written
        super().write_host_memory(**operands)
        self._rows_are = self.read

    def write_host_memory_alternate(self, **operands: int) -> None:
        """Execute an alternate Write_Host_Memory, and record the beats of its rows as written."""
        self._rows_are = self.written
        super().write_host_memory_alternate(**operands)
        self._rows_are = self.read

    def load_parameters(self, *, host: int, parameter: int, count: int) -> None:
        """Execute a Load_Parameters, and record the beats of its planes as read.

        Beats with nothing but padding between planes are left out.
        """
        pitch = self.config.output_pitch
        self._host_rows(host, count * PARAMETER_PLANES, pitch, self.config.cols)
        super().load_parameters(host=host, parameter=parameter, count=count)

    def load_table(self, *, host: int, table: int) -> None:
        """Execute a Load_Table, and record the beats of the whole table as read."""
        self._host_rows(host, 1, TABLE_BYTES, TABLE_BYTES)
        super().load_table(host=host, table=table)

    def read_weights(self, *, tile: int, count: int) -> None:
        """Execute a Read_Weights, and record the beats of all its tiles in `weights`."""
        beats = self._tile_beats
        self.weights[self._pc].update(range(tile * beats, (tile + count) * beats))
        super().read_weights(tile=tile, count=count)

    def _next_tiles(self, count: int) -> NDArray[np.int8]:
        beats = self._tile_beats
        waiting = [number for queued in self._queue for number in queued]
        for number in waiting[:count]:
            self.used.update(range(number * beats, (number + 1) * beats))
        return super()._next_tiles(count)

    def _host_rows(self, offset: int, rows: int, stride: int, count: int) -> NDArray[np.uint8]:
        starts = offset + stride * np.arange(rows)[:, np.newaxis]
        beats = np.unique((starts + np.arange(count)) // self.config.host_bus_bytes)
        self._rows_are[self._pc].update(beats.tolist())
        return super()._host_rows(offset, rows, stride, count)

    @property
    def _tile_beats(self) -> int:
        return self.config.tile_bytes // self.config.weight_bus_bytes

    @property
    def _pc(self) -> int:
        return self._next - 1


def users(beats: dict[int, set[int]], beat: int) -> set[int]:
    """Return the numbers of the instructions that need the bus beat `beat`."""
    return {pc for pc, needed in beats.items() if beat in needed}
