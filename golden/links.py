# SPDX-License-Identifier: Apache-2.0
"""What a core of a pod has on its way to its neighbours and from them."""

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
    """The part of the link unit that an instruction is for."""
    if opcode == Opcode.BARRIER:
        return LinkPart.BARRIER
    return _PARTS[opcode, Side(operands["side"])]


class Channel:
    """Lines (int8) and accumulator rows (int32) under way from a core to a neighbour: as many as
    have `beats` beats of `size` bytes together, each filled up to whole ones."""

    def __init__(self, size: int, beats: int) -> None:
        self.rows: deque[NDArray[np.signedinteger[Any]]] = deque()
        self._size = size
        self._free = self._beats = beats

    def clear(self) -> None:
        """Drops what is under way."""
        self.rows.clear()
        self._free = self._beats

    def put(self, row: NDArray[np.signedinteger[Any]]) -> bool:
        """A copy of a line or row, if there is room for all of it; whether there is."""
        beats = -(-row.nbytes // self._size)
        if beats > self._free:
            return False
        self._free -= beats
        self.rows.append(row.copy())
        return True

    def take(self) -> NDArray[np.signedinteger[Any]]:
        """The oldest one."""
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
    """The lines or rows that are left."""
    adds: bool

    @property
    def mismatched(self) -> bool:
        """Whether what comes next is of another kind than what it takes."""
        rows = self.channel.rows
        return self.use.writes and bool(rows) and rows[0].dtype != self.memory.dtype

    def next_row(self) -> Access:
        """What it reads or writes next."""
        first = self.use.region.start
        return Access(self.use.accumulators, range(first, first + 1), self.use.writes)

    def move(self) -> bool:
        """The next line or row, if the channel lets it through; whether it does."""
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
