# SPDX-License-Identifier: Apache-2.0
"""Brings the weights of one block after the other into the buffer, again for each turn of a
batch.
"""

from __future__ import annotations

from collections.abc import Callable

from systola.training.weights import Turning, narrow
from systola.training.writer import Writer


class Tiles:
    """A reader of blocks of weights as the array takes them, with two blocks in the buffer at one
    time.

    In the first turn int8 weights are made of the masters and written to host memory. In other
    turns these weights are read again.
    """

    def __init__(self, writer: Writer, lines: int, make: Callable[[int, int], None]) -> None:
        """Prepare to read blocks of `lines` lines; `make(block, line)` writes a block to the
        buffer.
        """
        self._writer = writer
        self._make = make
        self._rooms = [writer.allocate(lines) for _ in range(2)]
        self._turn = 0
        self._made: set[int] = set()

    def read(self, block: int) -> int:
        """Bring a block of weights into the buffer, and return its first line."""
        self._turn ^= 1
        room, layout = self._rooms[self._turn], self._writer.layout
        place = layout.narrowed + block * len(room) * layout.pitch
        if block in self._made:
            self._writer.read(place, room)
        else:
            self._make(block, room.start)
            self._writer.write(place, room)
            self._made.add(block)
        return room.start

    def free(self) -> None:
        """Give the lines of the weights back to the buffer."""
        self._writer.free(*self._rooms)


class Columns(Tiles):
    """A reader of the weights of blocks of units; a block has a line for each input."""

    def __init__(self, writer: Writer, number: int) -> None:
        lines = writer.layout.shapes[number].lines
        self._number = number
        self._masters = writer.allocate(2 * lines)
        super().__init__(writer, lines, self._narrow)

    def _narrow(self, block: int, line: int) -> None:
        writer, masters, layout = self._writer, self._masters, self._writer.layout
        writer.read(layout.masters[self._number] + block * len(masters) * layout.pitch, masters)
        narrow(writer, masters.start, line, len(masters) // 2)

    def free(self) -> None:
        """Give the lines of the weights back to the buffer."""
        super().free()
        self._writer.free(self._masters)


class Rows(Tiles):
    """A reader of the transposed weights of blocks of inputs; a block has a line for each unit."""

    def __init__(self, writer: Writer, number: int) -> None:
        self._turning = Turning(writer, number)
        super().__init__(writer, self._turning.lines, self._turning.read_to)

    def free(self) -> None:
        """Give the lines of the weights back to the buffer."""
        super().free()
        self._turning.free()
