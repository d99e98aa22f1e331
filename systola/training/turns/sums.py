# SPDX-License-Identifier: Apache-2.0
"""Keeps sums until their shift is known, which is after the sums of all turns have been measured.

A product with few inputs is made a second time instead, and so is a product with sums that may
reach 2^29. Other sums s are kept in host memory as two int16 numbers: h is s / 2^14, rounded, and l
is s - 2^14 h. An Activate makes h. The array then adds h times -2^14 to s, and an Activate makes l
of the result. A Vector ADD makes s = 2^14 h + l again, with all 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from systola.arch.isa import Function, Operation
from systola.training.turns.walk import spilled
from systola.training.writer import NARROWING, ONE, UNIT, WIDE, WIDENING, Entry, Writer, shifted

SPLIT_BITS = 14
LINES = 4
"""Number of buffer lines for a row of C sums 2^14 h + l: two lines for h, and two for l."""
FEW_BLOCKS = 8
"""Largest number of blocks of inputs for which making a product a second time takes no longer than
keeping its sums."""
MOST_INPUTS = 1 << 29 - 14
"""Number of inputs of a product below which its sums are always below 2^29."""


class Sums(Protocol):
    """A block of sums, with a row for each sample."""

    @property
    def masked(self) -> bool:
        """Whether the sums of units that a mask drops have been set to zero."""
        ...

    def to(
        self,
        line: int,
        entry: Entry,
        *,
        function: Function = Function.NONE,
        table: int = 0,
        exponent: int = 0,
    ) -> None:
        """Write the sums, requantised to int8 by `entry`, to lines of the buffer."""
        ...


@dataclass(frozen=True)
class Accumulated:
    """A block of sums that are in accumulator rows."""

    writer: Writer
    row: int
    rows: int
    masked: bool = False

    def to(
        self,
        line: int,
        entry: Entry,
        *,
        function: Function = Function.NONE,
        table: int = 0,
        exponent: int = 0,
    ) -> None:
        """Write the sums, requantised to int8 by `entry`, to lines of the buffer."""
        how = {"table": table, "exponent": exponent}
        self.writer.activate(self.row, line, self.rows, entry, function=function, **how)


@dataclass(frozen=True)
class Kept:
    """A block of sums that were kept in host memory and have come back to the buffer."""

    writer: Writer
    lines: range
    masked: bool

    def to(
        self,
        line: int,
        entry: Entry,
        *,
        function: Function = Function.NONE,
        table: int = 0,
        exponent: int = 0,
    ) -> None:
        """Write the sums, requantised to int8 by `entry`, to lines of the buffer."""
        rows = len(self.lines) // LINES
        self.writer.vector(
            *(Operation.ADD, self.lines.start, self.lines.start + 2 * rows, line, rows),
            *(entry, NARROWING),
            scales=(UNIT << SPLIT_BITS, UNIT),
            function=function,
            table=table,
            exponent=exponent,
        )


class Keeper:
    """A keeper that writes the sums of a product to host memory and reads them again, block by
    block.
    """

    def __init__(self, writer: Writer, *, masked: bool) -> None:
        """Allocate lines of the buffer. `masked`: whether sums are multiplied with a mask."""
        size = writer.layout.size
        self._masked = masked
        self._wide_mask = writer.allocate(2 * writer.layout.samples * masked)
        self._writer = writer
        self._rooms = [writer.allocate(LINES * writer.layout.samples) for _ in range(2)]
        self._turn = 0
        tile = np.zeros((size, 2, size), np.int8)
        tile[np.arange(size), 1, np.arange(size)] = -(1 << SPLIT_BITS - 8)
        self._minus = writer.constant(tile.reshape(2 * size, size))

    def _room(self) -> range:
        self._turn ^= 1
        return self._rooms[self._turn]

    def _place(self, block: int) -> int:
        layout = self._writer.layout
        return spilled(layout).sums + LINES * block * layout.samples * layout.pitch

    def keep(self, block: int, row: int, mask: range) -> None:
        """Write the sums of a block, from accumulator row `row` on, to host memory.

        Afterwards the rows no longer have the sums. `mask`: int8 lines of a mask; empty if there is
        none.
        """
        writer, lines = self._writer, self._room()
        rows = writer.layout.samples
        writer.activate(row, lines.start, rows, shifted(SPLIT_BITS - 1), wide=1)
        how = {"accumulate": 1, "wide_vectors": 1, "wide_weights": 1}
        writer.multiply(lines.start, self._minus.start, row, rows, 1, 1, **how)
        writer.activate(row, lines.start + 2 * rows, rows, ONE, wide=1)
        if mask:
            # The mask is applied now, as the activation unit has more to do when the sums come
            # back.
            writer.copy(mask.start, self._wide_mask.start, rows, ONE, WIDENING)
            for half in (lines.start, lines.start + 2 * rows):
                at = half, self._wide_mask.start, half, rows, ONE, WIDE
                writer.vector(Operation.MULTIPLY, *at)
        writer.write(self._place(block), lines)

    def end(self) -> None:
        """Give the lines that only `keep` uses back to the buffer, after the last sums."""
        self._writer.free(self._wide_mask, self._minus)

    def kept(self, block: int) -> Kept:
        """Read the sums of a block from host memory back into the buffer."""
        lines = self._room()
        self._writer.read(self._place(block), lines)
        return Kept(self._writer, lines, self._masked)

    def free(self) -> None:
        """Free the buffer lines through which sums pass to host memory and back."""
        self._writer.free(*self._rooms)
