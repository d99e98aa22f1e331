# SPDX-License-Identifier: Apache-2.0
"""A model of the links: lines and rows on their way between the cores of a pod, one by one.

In this file a row is also a line of the buffer. A link unit has four parts: a sender and a receiver
for each of the two neighbours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from systola.arch.config import Config
from systola.arch.isa import LinkPart
from systola.golden.ranges import Access
from systola.hdl.memories.accumulators import READ_LATENCY
from systola.hdl.ports import BUFFER_LATENCY

OFFERED = 6
"""Cycles from the issue of an instruction to the read or the first beat of its first row.

The instruction passes its queue, the walk and the interlock without a wait.
"""
FOLLOWS = 3
"""Cycles from the end of one part's work on a row to the start of another part's work that waits
for this row.
"""
BETWEEN = 2
"""Least number of cycles between the first rows of successive instructions of a part."""
SENT = 2
"""Cycles from a beat's output by the memory to its arrival at the neighbour, without the wire.

The sender's register and the FIFO take these cycles.
"""
RETURNED = 2
"""Cycles from the take of a beat until the sender can use its credit, without the wire."""
WRITTEN = 1
"""Cycles from the last beat of a row to its write."""
TOLD = 1
"""Cycles from the read or write of a row to the announcement that it is done."""


class Wire:
    """A wire from a core to a neighbour, and the credits that come back.

    The wire has `stages` registers in each direction.
    """

    def __init__(self, config: Config, stages: int) -> None:
        self._stages = stages
        self._beats = config.link_beats
        self._spent = 0
        self._credits: list[float] = []
        self.rows: deque[float] = deque()
        """Cycle in which the first beat of each row not yet taken is offered to the neighbour."""

    def room(self, beats: int) -> float | None:
        """Return the first cycle in which the neighbour has room for `beats` more beats.

        Returns None if this cycle is not yet known, and 0 if no credit has to come back first.
        """
        missing = self._spent + beats - self._beats
        if missing <= 0:
            return 0.0
        return self._credits[missing - 1] if missing <= len(self._credits) else None

    def send(self, first: float, beats: int) -> None:
        """Send a row of `beats` beats, of which the memory gives the first in cycle `first`."""
        self._spent += beats
        self.rows.append(first + SENT + self._stages)

    def take(self, last: float, beats: int) -> None:
        """Take the `beats` beats of the oldest row, the last of them in cycle `last`."""
        self.rows.popleft()
        first = last - beats + 1 + RETURNED + self._stages
        self._credits += [first + beat for beat in range(beats)]


class Port:
    """A memory port that two parts of the link unit share. It reads or writes a row in a cycle."""

    def __init__(self) -> None:
        self._taken: set[float] = set()

    def free(self, time: float) -> float:
        """Return the first cycle, from `time` on, in which the port is free."""
        while time in self._taken:
            time += 1
        return time

    def take(self, time: float) -> None:
        """Take the port in cycle `time`."""
        self._taken.add(time)


@dataclass
class Transfer:
    """A Send, Receive or Reduce that has been issued."""

    part: LinkPart
    use: Access
    begin: float
    """First cycle in which units other than the link unit allow the first row to move."""
    older: list[Transfer]
    """Earlier transfers that use some of the same rows."""
    done: list[float] = field(default_factory=list[float])
    """Cycle in which each row was announced as done, as far as it is known."""

    @property
    def known(self) -> bool:
        """True if the cycles in which the rows are done are known for all rows."""
        return len(self.done) == len(self.use.region)

    def done_with(self, use: Access) -> float | None:
        """Return the cycle in which all rows that are also in `use` are done.

        Returns None if this cycle is not yet known.
        """
        rows = min(self.use.region.stop, use.region.stop) - self.use.region.start
        return self.done[rows - 1] if rows <= len(self.done) else None


class Part:
    """A part of a core's link unit that moves the rows of one instruction after another."""

    def __init__(self, config: Config, wire: Wire, ports: dict[bool, Port]) -> None:
        """Begin without instructions.

        `ports` has two memory ports: True is the accumulators' port, and False the buffer's port.
        """
        self._beats = {False: config.link_line_beats, True: config.link_row_beats}
        self._wire = wire
        self._ports = ports
        self.free = 0.0
        """First cycle in which this part of the link unit can start another row."""
        self.last = 0.0
        """First cycle after the last beat that this part has sent; 0 if it has sent none."""
        self.transfers: list[Transfer] = []
        """All transfers of this part that were issued so far."""
        self._first = 0

    @property
    def head(self) -> Transfer | None:
        """First transfer with rows that have not moved yet; None if there is no such transfer."""
        while self._first < len(self.transfers) and self.transfers[self._first].known:
            self._first += 1
        return self.transfers[self._first] if self._first < len(self.transfers) else None

    def add(self, transfer: Transfer) -> None:
        """Add `transfer`, which has been issued, to the transfers of this part."""
        if self.transfers:
            transfer.begin = max(transfer.begin, self.transfers[-1].begin + BETWEEN)
        self.transfers.append(transfer)

    def next_row(self) -> float | None:
        """Return the cycle in which a sender reads its next row, or a receiver takes its next beat.

        Returns None if this cycle is not yet known, or if there is no next row.
        """
        transfer = self.head
        if transfer is None:
            return None
        number = len(transfer.done)
        address = transfer.use.region[number]
        time = max(self.free, transfer.begin)
        for other in transfer.older:
            place = address - other.use.region.start
            if 0 <= place < len(other.use.region):
                if place >= len(other.done):
                    return None
                time = max(time, other.done[place] + FOLLOWS)
        if transfer.use.writes:
            return max(time, self._wire.rows[0]) if self._wire.rows else None
        room = self._wire.room(self._beats[transfer.use.accumulators])
        if room is None:
            return None
        return self._ports[transfer.use.accumulators].free(max(time, room))

    def move(self, time: float) -> None:
        """Move the next row: read it in cycle `time`, or take its first beat in cycle `time`."""
        transfer = self.head
        assert transfer is not None
        sums = transfer.use.accumulators
        beats = self._beats[sums]
        port = self._ports[sums]
        self.free = time + beats
        if transfer.use.writes:
            last = time + beats - 1
            self._wire.take(last, beats)
            time = port.free(last + WRITTEN)
            self.free = max(self.free, time)
        else:
            data = time + (READ_LATENCY if sums else BUFFER_LATENCY)
            self._wire.send(data, beats)
            self.last = data + beats
        port.take(time)
        transfer.done.append(time + TOLD)
