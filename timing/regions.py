# SPDX-License-Identifier: Apache-2.0
"""When the addresses of the on-chip memories were used last: what the interlocks wait for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config

Times = NDArray[np.float64]
"""Cycles since START, one for each address, vector or line."""


class Space:
    """The addresses of one memory. What nobody has used yet was used in cycle 0."""

    def __init__(self, size: int) -> None:
        self.written: Times = np.zeros(size)
        """When the last write was announced."""
        self.read: Times = np.zeros(size)
        """When the last read was announced by an instruction that frees addresses as it reads them,
        or the end of the instruction where it does not."""
        self.filled: Times = np.zeros(size)
        """The same of the last write from host memory."""
        self.used: Times = np.zeros(size)
        """End of the last instruction that used the address, but for those of the activation
        unit."""
        self.activated: Times = np.zeros(size)
        """End of the last instruction of the activation unit that used the address."""

    def shift(self, cycles: float) -> None:
        """Moves everything that happened to later."""
        for times in (self.written, self.read, self.filled, self.used, self.activated):
            times += cycles


class Regions:
    """All memories that instructions share."""

    def __init__(self, config: Config) -> None:
        self.buffer = Space(config.buffer_lines)
        self.accumulators = Space(config.accumulator_rows)
        self.parameters = Space(config.parameter_entries)
        self.tables = Space(max(1, config.tables))
        self.host_reads: list[tuple[int, int, float]] = []
        self.host_writes: list[tuple[int, int, float]] = []
        """First byte, end, and end in time, of the last transfers."""

    def shift(self, cycles: float) -> None:
        """Moves everything that happened to later."""
        for space in (self.buffer, self.accumulators, self.parameters, self.tables):
            space.shift(cycles)
        for transfers in (self.host_reads, self.host_writes):
            transfers[:] = [(first, end, time + cycles) for first, end, time in transfers]


def last_overlap(transfers: list[tuple[int, int, float]], first: int, end: int) -> float:
    """When the last of the transfers that touch bytes `first` to `end` - 1 ended."""
    return max((time for low, high, time in transfers if low < end and first < high), default=0.0)


def paced(earliest: float, offsets: Times, needed: Times | None) -> Times:
    """When a unit takes one thing after the other: not before `earliest` + `offsets`, each not
    before it is `needed`, and no two closer together than `offsets` has them."""
    if needed is None:
        return earliest + offsets
    late = np.maximum.accumulate(needed - offsets)
    return np.maximum(late, earliest) + offsets
