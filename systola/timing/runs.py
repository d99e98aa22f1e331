# SPDX-License-Identifier: Apache-2.0
"""The list of instructions that write lines; a reader waits for the youngest writer of its lines.

A run is a sequence of entries of this list. Each entry begins at the end of the lines of the entry
before, or at a higher line. A reader may follow a run while the run is still written. The reader
first waits until the oldest instruction of the list belongs to the run of the youngest writer. From
then on it may read each line that the run has passed, even if that line was written long ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from systola.timing.recent import recent
from systola.timing.regions import Times

ListState = tuple[tuple[int, int, float, bool], ...]
"""Type of the state of a WriterList: `base`, `stop`, `end` and `rises` of each entry."""


@dataclass(frozen=True)
class Entry:
    """An entry: an instruction that writes the lines `base` to `stop` - 1 in rising order."""

    base: int
    stop: int
    end: float
    """Cycle in which the instruction is complete."""
    rises: bool
    """True if `base` is the end of the entry before, or a higher line.

    False after an entry without lines.
    """

    def meets(self, base: int, stop: int) -> bool:
        """Return whether the instruction writes one of the lines `base` to `stop` - 1."""
        return self.base < stop and base < self.stop

    def followed_by(self, base: int, stop: int, end: float = inf) -> Entry:
        """Return the entry of the next instruction, which writes the lines `base` to `stop` - 1."""
        return Entry(base, stop, end, self.base < self.stop <= base)


NOTHING = Entry(0, 0, 0.0, rises=False)
"""Entry in place of the youngest one while a list is empty: it writes no line."""


def run_of(entries: Sequence[Entry], base: int, stop: int) -> range:
    """Return the indices of the `entries` that a reader of lines `base` to `stop` - 1 waits for.

    The range ends with the youngest of the `entries` that writes one of these lines, and has the
    entries of the same run before it. It is empty if no entry writes these lines.
    """
    first = last = -1
    running = False
    for number, entry in enumerate(entries):
        hit = entry.meets(base, stop)
        goes_on = running and entry.rises
        if hit:
            last = number
            if not goes_on:
                first = number
        running = hit or goes_on
    return range(first, last + 1) if last >= 0 else range(0)


class WriterList:
    """A list of the last `depth` instructions that write lines."""

    def __init__(self, depth: int, written: Times) -> None:
        """Begin with an empty list that keeps `depth` entries.

        `written` has for each line the cycle in which its last write was announced.
        """
        self._written = written
        self._entries: deque[Entry] = deque(maxlen=depth)

    def push(self, base: int, stop: int, end: float) -> None:
        """Append an instruction that writes `base` to `stop` - 1 and is complete in cycle `end`."""
        last = self._entries[-1] if self._entries else NOTHING
        self._entries.append(last.followed_by(base, stop, end))

    def pending(self, time: float) -> list[Entry]:
        """Return the entries that are not complete in cycle `time`, oldest first."""
        return [entry for entry in self._entries if entry.end > time]

    def following(self, time: float, results: tuple[int, int]) -> list[Entry]:
        """Return the entries not complete in cycle `time`, then an entry for a new instruction.

        `results` has the first line that the new instruction writes, and its number of lines.
        """
        first, count = results
        last = self._entries[-1] if self._entries else NOTHING
        return [*self.pending(time), last.followed_by(first, first + count)]

    def announced(self, entries: Sequence[Entry], lines: NDArray[np.int64]) -> Times:
        """Return the cycle in which a run has passed each of the `lines`.

        `entries` are all entries of the run, as given by run_of.
        """
        addresses = np.concatenate([np.arange(entry.base, entry.stop) for entry in entries])
        times = np.append(self._written[addresses], entries[-1].end)
        return times[np.searchsorted(addresses, lines)]

    def state(self, now: float) -> ListState:
        """Return the last entry and all entries not complete, with times relative to `now`."""
        last = len(self._entries) - 1
        return tuple(
            (entry.base, entry.stop, recent(entry.end, now), entry.rises)
            for number, entry in enumerate(self._entries)
            if entry.end > now or number == last
        )

    def resume(self, state: Iterable[tuple[int, int, float, bool]], now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        self._entries.clear()
        self._entries.extend(Entry(base, stop, now + end, up) for base, stop, end, up in state)
