# SPDX-License-Identifier: Apache-2.0
"""Systolic data set-up, first half: from a place in the feature map to the vector that enters."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import ADDRESS_BITS, MatrixCommand
from systola.hdl.delay_line import DelayLine
from systola.hdl.unified_buffer import READ_LATENCY
from systola.hdl.walker import COORDINATE_BITS, Position

FEED_LATENCY = READ_LATENCY + 2
"""Cycles from the issue of a vector to its entry into the array: buffer read, two registers."""


class FeedEvent(data.StructLayout):
    """What accompanies a vector from its issue to where its line arrives.

    `fetched`: a line is read for it. `moved_on`: what was the newest line is now the one before.
    `rotates`: channels are packed; the vector begins `shift` bytes behind the line before. Bytes
    below `head` and from `body` on, or all if it is `outside`, are `fill`.
    """

    def __init__(self, *, rows: int):
        super().__init__(
            {
                "fetched": 1,
                "moved_on": 1,
                "outside": 1,
                "rotates": 1,
                "shift": range(rows),
                "head": range(rows + 1),
                "body": range(rows + 1),
                "fill": signed(8),
            }
        )


class VectorFeeder(wiring.Component):
    """Tells which buffer `line` the vector at `position` needs (none unless `reads`), and makes
    the `vector` of it, FEED_LATENCY cycles after `issue`: the first `rows` bytes of the line, or
    `fill` outside the map.

    Packed channels: a vector begins at any byte of a row and ends in the next line. That line is
    read when it is a new one, which leaves its bank to others most of the time; the line before is
    still there from the last vectors of the row. At the start of a row (`row_starts`) that begins
    inside the map it is not: `unprimed` tells so, `line` is the missing one, and `prime` reads it.

    The stages behind the buffer belong to the array, which `hold` stops: it comes READ_LATENCY
    cycles after a cycle in which nothing was issued.
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

        # What goes with the line through the buffer.
        coming = Signal(FeedEvent(rows=rows))
        left = Signal(signed(COORDINATE_BITS + 1))
        with m.If(self.issue):
            m.d.sync += moved_on.eq(crosses)
        with m.If(self.prime):
            m.d.sync += moved_on.eq(1)
        m.d.comb += [
            left.eq(command.width - position.x),
            coming.fetched.eq(self.reads),
            coming.outside.eq(~inside),
            coming.rotates.eq(packed),
            coming.shift.eq(byte),
            coming.moved_on.eq(moved_on),
            coming.fill.eq(command.fill),
            coming.head.eq(Mux(position.x >= 0, 0, Mux(position.x > -rows, -position.x, rows))),
            coming.body.eq(Mux(left >= rows, rows, Mux(left > 0, left, 0))),
        ]
        through = m.submodules.through = DelayLine(layout=coming.shape(), cycles=READ_LATENCY)
        m.d.comb += [
            through.input.eq(coming),
            through.input_valid.eq(self.issue | self.prime),
        ]

        # The line arrives, and with it the one before.
        now = Signal(coming.shape(), reset_less=True)
        arrived = Signal(8 * rows, reset_less=True)
        before = Signal(8 * rows, reset_less=True)
        with m.If(~self.hold & through.output_valid):
            m.d.sync += now.eq(through.output)
            with m.If(through.output.fetched):
                m.d.sync += arrived.eq(self.buffer_data[: 8 * rows])
            with m.If(through.output.moved_on):
                m.d.sync += before.eq(arrived)

        window = Signal(8 * rows)
        m.d.comb += window.eq(Cat(before, arrived) >> (now.shift << 3))
        vector = Signal(8 * rows)
        with m.If(now.rotates):
            m.d.comb += vector.eq(
                Cat(
                    Mux(
                        now.outside | (i < now.head) | (i >= now.body),
                        now.fill,
                        window.word_select(i, 8),
                    )[:8]
                    for i in range(rows)
                )
            )
        with m.Else():
            m.d.comb += vector.eq(Mux(now.outside, now.fill[:8].replicate(rows), arrived))
        with m.If(~self.hold):
            m.d.sync += self.vector.eq(vector)
        return m
