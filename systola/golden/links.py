# SPDX-License-Identifier: Apache-2.0
"""Lines and rows that are on their way between a core of a pod and its neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import LinkPart, Opcode, Side
from systola.golden.ranges import Access

_PARTS = {
    (Opcode.SEND, Side.LEFT): LinkPart.SEND_LEFT,
    (Opcode.SEND, Side.RIGHT): LinkPart.SEND_RIGHT,
    (Opcode.RECEIVE, Side.LEFT): LinkPart.RECEIVE_LEFT,
    (Opcode.RECEIVE, Side.RIGHT): LinkPart.RECEIVE_RIGHT,
    (Opcode.REDUCE, Side.LEFT): LinkPart.RECEIVE_LEFT,
    (Opcode.REDUCE, Side.RIGHT): LinkPart.RECEIVE_RIGHT,
}


def link_part(opcode: Opcode, operands: Mapping[str, int]) -> LinkPart:
    """Return the part of the link unit that executes an instruction."""
    if opcode == Opcode.BARRIER:
        return LinkPart.BARRIER
    return _PARTS[opcode, Side(operands["side"])]


class Channel:
    """A queue of lines (int8) and accumulator rows (int32) on their way from a core to a neighbour.

    It has room for `beats` beats of `size` bytes; each line or row takes whole beats."""

    def __init__(self, size: int, beats: int) -> None:
        self.rows: deque[NDArray[np.signedinteger[Any]]] = deque()
        self._size = size
        self._free = self._beats = beats

    def clear(self) -> None:
        """Drop all lines and rows."""
        self.rows.clear()
        self._free = self._beats

    def put(self, row: NDArray[np.signedinteger[Any]]) -> bool:
        """Add a copy of a line or row if there is room for all of it; return whether there was."""
        beats = -(-row.nbytes // self._size)
        if beats > self._free:
            return False
        self._free -= beats
        self.rows.append(row.copy())
        return True

    def take(self) -> NDArray[np.signedinteger[Any]]:
        """Remove the oldest line or row, and return it."""
        row = self.rows.popleft()
        self._free += -(-row.nbytes // self._size)
        return row


@dataclass
class Transfer:
    """A Send, Receive or Reduce that has not completed."""

    part: LinkPart
    channel: Channel
    memory: NDArray[np.signedinteger[Any]]
    """Lines of the unified buffer, or accumulator rows."""
    use: Access
    """The lines or rows that have not been moved yet."""
    adds: bool

    @property
    def mismatched(self) -> bool:
        """Whether the channel's next item is of the wrong kind for the instruction.

        The kinds are lines of the unified buffer and accumulator rows.
        """
        rows = self.channel.rows
        return self.use.writes and bool(rows) and rows[0].dtype != self.memory.dtype

    def next_row(self) -> Access:
        """Return the line or row that the instruction reads or writes next."""
        first = self.use.region.start
        return Access(self.use.accumulators, range(first, first + 1), self.use.writes)

    def move(self) -> bool:
        """Move the next line or row if the channel lets it through; return whether it did."""
        row = self.memory[self.use.region.start]
        if not self.use.writes:
            if not self.channel.put(row):
                return False
        elif self.channel.rows and not self.mismatched:
            values = self.channel.take()
            row[:] = row + values if self.adds else values
        else:
            return False
        self.use = Access(self.use.accumulators, self.use.region[1:], self.use.writes)
        return True
