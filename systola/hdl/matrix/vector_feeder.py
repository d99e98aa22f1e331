# SPDX-License-Identifier: Apache-2.0
"""Systolic data set-up, first half: it makes the vector that enters the array from lines of the
buffer.
"""

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
"""Bits of each byte that are rotated by the same copy of the rotation distance."""


class FeedEvent(data.StructLayout):
    """A note that accompanies a vector from its issue to the arrival of its line.

    | field      | meaning |
    |---|---|
    | `fetched`  | a line is read for the vector |
    | `moved_on` | the line that was read last becomes the line before |
    | `outside`  | the whole vector is `fill` |
    | `rotates`  | channels are packed |
    | `shift`    | number of the vector's first byte in the line before, if `rotates` |
    | `head`     | bytes of the vector below this one are `fill`, if `rotates` |
    | `body`     | bytes of the vector from this one on are `fill`, if `rotates` |
    | `fill`     | the byte for places outside the map |
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
    """A unit that makes a vector for the array out of buffer lines, as its `event` describes.

    | port          | meaning |
    |---|---|
    | `issue`       | an `event` comes, and the line of its vector is read in this cycle |
    | `event`       | the note of the vector |
    | `buffer_data` | the line, BUFFER_LATENCY cycles after its read |
    | `hold`        | stops the stages after the buffer, as it stops the array |
    | `vector`      | the vector, FEED_LATENCY cycles after the `issue` |

    A vector is the first `rows` bytes of its line. With packed channels the vector is cut out of
    two lines: the line before and its line. Bytes outside the map are `fill`.

    `hold` comes BUFFER_LATENCY cycles after a cycle in which nothing was issued.
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

        # The line of a vector arrives, and `line_before` takes the line that arrived before it.
        # Where nothing is rotated, `line_before` takes the arriving line itself.
        fill_byte = Signal(8, reset_less=True)
        bytes_filled = Signal(rows, reset_less=True)
        arrived_line = Signal(8 * rows, reset_less=True)
        line_before = Signal(8 * rows, reset_less=True)
        comes = through.output
        with m.If(~self.hold & through.output_valid):
            m.d.sync += [
                fill_byte.eq(comes.fill),
                bytes_filled.eq(
                    Cat(
                        comes.outside | (comes.rotates & ((i < comes.head) | (i >= comes.body)))
                        for i in range(rows)
                    )
                ),
            ]
            with m.If(comes.fetched):
                m.d.sync += arrived_line.eq(self.buffer_data[: 8 * rows])
            with m.If(~comes.rotates):
                m.d.sync += line_before.eq(self.buffer_data[: 8 * rows])
            with m.Elif(comes.moved_on):
                m.d.sync += line_before.eq(arrived_line)

        # Each group of bits is rotated by its own copy of the distance, so that a copy has few
        # users.
        lines = Cat(line_before, arrived_line)
        line_window = Signal(8 * rows)
        for first in range(0, 8, BITS_PER_SHIFT):
            shift = m.submodules[f"shift_{first}"] = Replica(width=bits_for(rows - 1))
            m.d.comb += shift.input.eq(
                Mux(self.hold, shift.output, Mux(comes.rotates, comes.shift, 0))
            )
            for bit in range(first, first + BITS_PER_SHIFT):
                m.d.comb += line_window[bit::8].eq(lines[bit::8] >> shift.output)
        vector = Cat(
            Mux(bytes_filled[i], fill_byte, line_window.word_select(i, 8)) for i in range(rows)
        )
        with m.If(~self.hold):
            m.d.sync += self.vector.eq(vector)
        return m
