# SPDX-License-Identifier: Apache-2.0
"""Systolic data set-up, first half: from the lines of the buffer to the vector that enters."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.replica import Replica
from systola.hdl.ports import BUFFER_LATENCY

FEED_LATENCY = BUFFER_LATENCY + 2
"""Cycles from the issue of a vector to its entry into the array: buffer read, two registers."""

BITS_PER_SHIFT = 2
"""Bits of each byte that a copy of the distance rotates."""


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
    """Makes the `vector` of an event that `issue` gives together with the read of its line, which
    comes in `buffer_data` BUFFER_LATENCY cycles later; the vector is there FEED_LATENCY cycles
    later: the first `rows` bytes of the line, or of the line before and the line, or `fill`.

    The stages behind the buffer belong to the array, which `hold` stops: it comes BUFFER_LATENCY
    cycles after a cycle in which nothing was issued.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "issue": In(1),
                "event": In(FeedEvent(rows=config.rows)),
                "hold": In(1),
                "buffer_data": In(8 * config.line_bytes),
                "vector": Out(8 * config.rows),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._config.rows
        through = m.submodules.through = DelayLine(
            layout=FeedEvent(rows=rows), cycles=BUFFER_LATENCY
        )
        m.d.comb += [through.input.eq(self.event), through.input_valid.eq(self.issue)]

        # The line arrives, and with it the one before; or it takes the place of that, where nothing
        # is to be rotated.
        fill = Signal(8, reset_less=True)
        filled = Signal(rows, reset_less=True)
        arrived = Signal(8 * rows, reset_less=True)
        before = Signal(8 * rows, reset_less=True)
        comes = through.output
        with m.If(~self.hold & through.output_valid):
            m.d.sync += [
                fill.eq(comes.fill),
                filled.eq(
                    Cat(
                        comes.outside | (comes.rotates & ((i < comes.head) | (i >= comes.body)))
                        for i in range(rows)
                    )
                ),
            ]
            with m.If(comes.fetched):
                m.d.sync += arrived.eq(self.buffer_data[: 8 * rows])
            with m.If(~comes.rotates):
                m.d.sync += before.eq(self.buffer_data[: 8 * rows])
            with m.Elif(comes.moved_on):
                m.d.sync += before.eq(arrived)

        # The bits of a byte are rotated apart, so that copies of the distance share the work.
        lines = Cat(before, arrived)
        window = Signal(8 * rows)
        for first in range(0, 8, BITS_PER_SHIFT):
            shift = m.submodules[f"shift_{first}"] = Replica(width=bits_for(rows - 1))
            m.d.comb += shift.input.eq(
                Mux(self.hold, shift.output, Mux(comes.rotates, comes.shift, 0))
            )
            for bit in range(first, first + BITS_PER_SHIFT):
                m.d.comb += window[bit::8].eq(lines[bit::8] >> shift.output)
        vector = Cat(Mux(filled[i], fill, window.word_select(i, 8)) for i in range(rows))
        with m.If(~self.hold):
            m.d.sync += self.vector.eq(vector)
        return m
