# SPDX-License-Identifier: Apache-2.0
"""A recording of one program: cycles of its events, and counts of cycles with levels high."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.sim.events import LEVEL_NAMES, LEVELS


@dataclass(frozen=True)
class Recording:
    """A recording of one program; cycles count from START, which is accepted in cycle 0.

    Rows are in the order of time.
    """

    cycles: NDArray[np.int64]
    """Cycles of events, [rows]: several events may be in one cycle."""
    events: NDArray[np.uint32]
    """Bits of the events in that cycle, one for each Event, [rows]."""
    values: NDArray[np.uint64]
    """Values that belong to Event.ISSUE or Event.MASKED, [rows]."""
    totals: NDArray[np.uint32]
    """Number of cycles up to this cycle in which each level was high, in the order of LEVEL_NAMES,
    [rows, levels]."""
    interval: int
    """Cycles between samples, which are taken at the end of each interval."""
    samples: NDArray[np.uint32]
    """Number of cycles up to the end of each interval in which each level was high, [intervals,
    levels]."""

    def total(self, level: str) -> NDArray[np.uint32]:
        """Return the column of `totals` of a level."""
        return self.totals[:, LEVEL_NAMES.index(level)]

    def sampled(self, level: str) -> NDArray[np.int64]:
        """Return the number of cycles of each interval in which a level was high, [intervals]."""
        column = self.samples[:, LEVEL_NAMES.index(level)].astype(np.int64)
        return np.diff(column, prepend=0)


def read_recording(library: ctypes.CDLL, handle: object) -> Recording:
    """Return the recording of the last program that ran on a machine of a built library."""
    places = [ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_uint64()]
    interval = library.tpu_recording(handle, *map(ctypes.byref, places))
    events, event_count, samples, sample_count = (place.value for place in places)
    rows = _words(events, event_count, 4 + LEVELS)
    levels = len(LEVEL_NAMES)
    return Recording(
        cycles=rows[:, 0].astype(np.int64),
        events=rows[:, 1].copy(),
        values=rows[:, 2] | rows[:, 3].astype(np.uint64) << np.uint64(32),
        totals=rows[:, 4 : 4 + levels].copy(),
        interval=interval,
        samples=_words(samples, sample_count, LEVELS)[:, :levels].copy(),
    )


def _words(address: int | None, rows: int | None, columns: int) -> NDArray[np.uint32]:
    if not address or not rows:
        return np.empty((0, columns), np.uint32)
    words = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32))
    return np.ctypeslib.as_array(words, (rows, columns))
