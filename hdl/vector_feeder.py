# SPDX-License-Identifier: Apache-2.0
"""Systolic data set-up, first half: from a place in the feature map to the vector that enters."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import ADDRESS_BITS, MatrixCommand
from systola.hdl.walker import COORDINATE_BITS, Position

FEED_LATENCY = 2
"""Cycles from the issue of a vector to its entry into the array: buffer read, register."""


class VectorFeeder(wiring.Component):
    """Tells which buffer `line` the vector at `position` needs (none unless `reads`), and makes
    the `vector` of it, FEED_LATENCY cycles after `issue`: the first `rows` bytes of the line, or
    `fill` outside the map.

    Packed channels: a vector begins at any byte of a row and ends in the next line. That line is
    read when it is a new one, which leaves its bank to others most of the time; the line before is
    still there from the last vectors of the row. At the start of a row (`row_starts`) that begins
    inside the map it is not: `unprimed` tells so, `line` is the missing one, and `prime` reads it.

    `hold` stops all stages behind the issue; a line that comes in its first cycle is kept.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "command": In(MatrixCommand()),
                "position": In(Position()),
                "row_starts": In(1),
                "issue": In(1),
                "line": Out(ADDRESS_BITS),
                "reads": Out(1),
                "unprimed": Out(1),
                "prime": In(1),
                "hold": In(1),
                "buffer_data": In(8 * config.line_bytes),
                "vector": Out(8 * config.rows),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows, command, position = self._config.rows, self.command, self.position
        packed = command.packed

        # Packed: `byte` is where in its first line the vector begins, `crossed` how many lines the
        # row has moved on since its start.
        byte = Signal(range(rows))
        crossed = Signal(ADDRESS_BITS)
        crosses = Signal()
        kept_byte = Signal.like(byte)
        kept_crossed = Signal.like(crossed)
        following = Signal(range(2 * rows))
        primed = Signal()
        moved_on = Signal()  # the line read last has become the line before
        m.d.comb += [
            byte.eq(Mux(self.row_starts, command.byte, kept_byte)),
            crossed.eq(Mux(self.row_starts, 0, kept_crossed)),
            following.eq(byte + command.byte_step),
            crosses.eq(following >= rows),
        ]
        with m.If(self.issue):
            m.d.sync += [
                kept_byte.eq(Mux(crosses, following - rows, following)),
                kept_crossed.eq(crossed + crosses),
                primed.eq(0),
            ]
        with m.If(self.prime):
            m.d.sync += primed.eq(1)

        inside_y = (position.y >= 0) & (position.y < command.height)
        inside_x = (position.x >= 0) & (position.x < command.width)
        inside = Signal()
        in_row = Signal()
        m.d.comb += [
            inside.eq(~command.bounded | (inside_y & (inside_x | packed))),
            # Behind the end of the row there is nothing to read.
            in_row.eq(position.x + (rows - byte) < command.width),
            self.reads.eq(
                inside & (~packed | self.unprimed | ((self.row_starts | moved_on) & in_row))
            ),
            self.unprimed.eq(packed & inside & self.row_starts & inside_x & ~primed),
            self.line.eq(position.line + Mux(packed, crossed - self.unprimed, 0)),
        ]

        # What the next stage needs to know of the vector.
        issued = Signal()  # there is one, or a line to be kept for one
        fetched = Signal()  # and it is a new one
        outside = Signal()
        shift = Signal.like(byte)
        shifted_in = Signal()
        rotates = Signal()
        head = Signal(range(rows + 1))  # bytes before the row
        body = Signal(range(rows + 1))  # bytes up to the end of the row
        fill = Signal(signed(8))
        left = Signal(signed(COORDINATE_BITS + 1))
        m.d.comb += left.eq(command.width - position.x)
        with m.If(self.issue):
            m.d.sync += moved_on.eq(crosses)
        with m.If(self.prime):
            m.d.sync += moved_on.eq(1)
        with m.If(~self.hold):
            m.d.sync += issued.eq(self.issue | self.prime)
            m.d.sync += [
                fetched.eq(self.reads),
                outside.eq(~inside),
                rotates.eq(packed),
                shift.eq(byte),
                shifted_in.eq(moved_on),
                fill.eq(command.fill),
                head.eq(Mux(position.x >= 0, 0, Mux(position.x > -rows, -position.x, rows))),
                body.eq(Mux(left >= rows, rows, Mux(left > 0, left, 0))),
            ]

        came = Signal()
        saved = Signal(8 * rows, reset_less=True)
        arrived = Signal(8 * rows)
        newest = Signal(8 * rows, reset_less=True)  # the line read for the vector before
        before = Signal(8 * rows, reset_less=True)
        before_now = Signal(8 * rows)
        m.d.sync += came.eq(~self.hold)
        with m.If(came):
            m.d.sync += saved.eq(self.buffer_data)
        m.d.comb += [
            arrived.eq(Mux(fetched, Mux(came, self.buffer_data[: 8 * rows], saved), newest)),
            before_now.eq(Mux(shifted_in, newest, before)),
        ]
        window = Signal(8 * rows)
        m.d.comb += window.eq(Cat(before_now, arrived) >> (shift << 3))
        vector = Signal(8 * rows)
        with m.If(rotates):
            m.d.comb += vector.eq(
                Cat(
                    Mux(outside | (i < head) | (i >= body), fill, window.word_select(i, 8))[:8]
                    for i in range(rows)
                )
            )
        with m.Else():
            m.d.comb += vector.eq(Mux(outside, fill[:8].replicate(rows), arrived))
        with m.If(~self.hold):
            m.d.sync += self.vector.eq(vector)
            with m.If(issued):
                m.d.sync += [newest.eq(arrived), before.eq(before_now)]
        return m
