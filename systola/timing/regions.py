# SPDX-License-Identifier: Apache-2.0
"""The cycles in which addresses of the on-chip memories were last used, for the interlocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.timing.recent import FORGOTTEN

Times = NDArray[np.float64]
"""Type of an array of cycles since START, one for each address, vector or line."""

SpaceState = tuple[bytes, bytes]
"""Type of the state of a Space: indices into the flat array of its times, and times there.

Only recent times are included, relative to the present cycle.
"""
TransferState = tuple[tuple[int, int, float], ...]
RegionsState = tuple[tuple[SpaceState, ...], TransferState, TransferState]


class Space:
    """The cycles in which the addresses of one memory were last used; 0 for an unused address."""

    def __init__(self, size: int) -> None:
        self._times = np.zeros((5, size))
        self.written: Times = self._times[0]
        """Cycle in which the last write of each address was announced."""
        self.read: Times = self._times[1]
        """Cycle in which the last read of each address was announced.

        If an instruction frees all its addresses together, it announces them after its last read.
        """
        self.filled: Times = self._times[2]
        """Cycle in which the host reader's last write of each address was announced."""
        self.used: Times = self._times[3]
        """End of the last instruction outside the activation unit that used each address."""
        self.activated: Times = self._times[4]
        """End of the last instruction of the activation unit that used each address."""

    def state(self, now: float) -> SpaceState:
        """Return the recent times relative to cycle `now`."""
        times = self._times.reshape(-1)
        places = np.flatnonzero(times > now - FORGOTTEN)
        return places.tobytes(), (times[places] - now).tobytes()

    def resume(self, state: SpaceState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        places, times = state
        self._times[:] = 0
        self._times.reshape(-1)[np.frombuffer(places, np.int64)] = now + np.frombuffer(times)


class Regions:
    """The times of all memories that instructions share."""

    def __init__(self, config: Config) -> None:
        self.buffer = Space(config.buffer_lines)
        self.accumulators = Space(config.accumulator_rows)
        self.parameters = Space(config.parameter_entries)
        self.tables = Space(max(1, config.tables))
        self.host_reads: list[tuple[int, int, float]] = []
        self.host_writes: list[tuple[int, int, float]] = []
        """Each of the last writes to host memory: first byte, end byte, cycle in which it ends.

        The end byte is the byte after the last one. `host_reads` has the same for reads.
        """

        self._spaces = self.buffer, self.accumulators, self.parameters, self.tables

    def state(self, now: float) -> RegionsState:
        """Return recent times, and transfers that have not ended, with times relative to `now`."""
        reads, writes = (
            tuple((first, end, time - now) for first, end, time in transfers if time > now)
            for transfers in (self.host_reads, self.host_writes)
        )
        return tuple(space.state(now) for space in self._spaces), reads, writes

    def resume(self, state: RegionsState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        spaces, reads, writes = state
        for space, times in zip(self._spaces, spaces, strict=True):
            space.resume(times, now)
        self.host_reads[:] = ((first, end, now + time) for first, end, time in reads)
        self.host_writes[:] = ((first, end, now + time) for first, end, time in writes)


def last_overlap(transfers: list[tuple[int, int, float]], first: int, end: int) -> float:
    """Return the cycle in which the last of `transfers` that uses bytes `first` to `end` - 1 ends.

    The result is 0 without such a transfer.
    """
    return max((time for low, high, time in transfers if low < end and first < high), default=0.0)


def paced(earliest: float, offsets: Times, needed: Times | None) -> Times:
    """Return the cycle in which a unit takes each of its items, in order.

    `offsets` has the cycles from the first item to each item at full speed; the unit never takes
    two items closer together. Item n is taken in cycle `earliest` + `offsets[n]` or later. It is
    also taken in cycle `needed[n]` or later, when its data are there.
    """
    if needed is None:
        return earliest + offsets
    late = np.maximum.accumulate(needed - offsets)
    return np.maximum(late, earliest) + offsets
