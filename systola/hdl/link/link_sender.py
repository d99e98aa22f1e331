# SPDX-License-Identifier: Apache-2.0
"""A part of a link unit that sends lines and sums to a neighbour."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import (
    LinkBeat,
)
from systola.hdl.link_commands import LinkRow, link_address, link_address_bits
from systola.hdl.memories.accumulators import READ_LATENCY
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.ports import BUFFER_LATENCY, AccumulatorReadSignature, BufferReadSignature


class LinkSender(wiring.Component):
    """A unit that reads a row when the neighbour has room for all of its beats, and then sends
    them.

    So the beats of a row that was read never wait.

    | port            | meaning |
    |---|---|
    | `cleared`       | the line or row to be sent next; its `ready` depends on `ready` of the
                        memories |
    | `buffer`        | reads of lines |
    | `accumulators`  | reads of rows |
    | `valid`, `beat` | a beat goes out |
    | `credit`        | the neighbour has taken a beat |
    | `advance`       | line or row `advance_to` - 1 was read in the cycle before |
    | `retire`        | the last row of an instruction was read in the cycle before |
    | `empty`         | all beats of the rows read in earlier cycles have left |

    The sender begins with `config.link_beats` credits. It spends one for each beat when it reads
    the row, and gets one back in each cycle with `credit`. Credits that come after the core has
    ended do no harm, since the links are cleared before the next start.

    Throughput: a beat a cycle, but for one cycle between sums and lines that follow them. The first
    beat comes a cycle after the memory's data. `advance` and `retire` are registers.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "cleared": In(stream.Signature(LinkRow(config=config))),
                "buffer": Out(BufferReadSignature(config=config)),
                "accumulators": Out(AccumulatorReadSignature(config=config)),
                "valid": Out(1),
                "beat": Out(LinkBeat(config=config)),
                "credit": In(1),
                "advance": Out(1),
                "advance_to": Out(link_address_bits(config)),
                "retire": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        line_beats, row_beats = config.link_line_beats, config.link_row_beats
        size = 8 * config.host_bus_bytes
        row = self.cleared.payload
        buffer, accumulators = self.buffer, self.accumulators

        # `gap_remaining`: cycles until a row may be read without its beats meeting the beats of the
        # row before. The beats of sums come one cycle later than the beats of a line.
        credits = Signal(range(config.link_beats + 1), init=config.link_beats)
        gap_remaining = Signal(range(max(line_beats, row_beats) + 1))
        row_beats_needed = Signal.like(gap_remaining)
        row_wanted = Signal()
        row_read = Signal()
        m.d.comb += [
            row_beats_needed.eq(Mux(row.sums, row_beats, line_beats)),
            row_wanted.eq(
                self.cleared.valid & (credits >= row_beats_needed) & (gap_remaining <= row.sums)
            ),
            buffer.enable.eq(row_wanted & ~row.sums),
            buffer.address.eq(row.place),
            accumulators.enable.eq(row_wanted & row.sums),
            accumulators.address.eq(row.place),
            row_read.eq(row_wanted & Mux(row.sums, accumulators.ready, buffer.ready)),
            self.cleared.ready.eq(row_read),
        ]
        m.d.sync += [
            credits.eq(credits + self.credit - Mux(row_read, row_beats_needed, 0)),
            self.advance.eq(row_read),
            self.advance_to.eq(link_address(row.place + 1, row.sums, self._config)),
            self.retire.eq(row_read & row.last),
        ]
        with m.If(row_read):
            m.d.sync += gap_remaining.eq(Mux(row.sums, row_beats, line_beats - 1))
        with m.Elif(gap_remaining != 0):
            m.d.sync += gap_remaining.eq(gap_remaining - 1)

        line_comes = Signal(BUFFER_LATENCY)
        sums_come = Signal(READ_LATENCY)
        m.d.sync += [
            line_comes.eq((line_comes << 1) | (row_read & ~row.sums)),
            sums_come.eq((sums_come << 1) | (row_read & row.sums)),
        ]
        word = Signal(size * max(line_beats, row_beats), reset_less=True)
        beats_remaining = Signal.like(gap_remaining)
        m.d.comb += [
            self.valid.eq(beats_remaining != 0),
            self.beat.data.eq(word),
            self.empty.eq(~(self.valid | line_comes.any() | sums_come.any())),
        ]
        with m.If(line_comes[-1]):
            m.d.sync += [word.eq(buffer.data), beats_remaining.eq(line_beats), self.beat.sums.eq(0)]
        with m.Elif(sums_come[-1]):
            m.d.sync += [
                word.eq(accumulators.data),
                beats_remaining.eq(row_beats),
                self.beat.sums.eq(1),
            ]
        with m.Else():
            m.d.sync += word.eq(word >> size)
            with m.If(self.valid):
                m.d.sync += beats_remaining.eq(beats_remaining - 1)
        both = line_comes[-1] & sums_come[-1]
        comes = line_comes[-1] | sums_come[-1]
        one_read = ~(buffer.enable & accumulators.enable)
        # After this core has ended, a credit may still come and raise `credits` too far. So
        # `credits` is only checked when a row is read.
        has_room = ~row_read | (credits <= config.link_beats)
        promised(m, platform, ~both, "a line and sums come in the same cycle")
        promised(m, platform, ~comes | (beats_remaining <= 1), "a row comes before the last went")
        promised(m, platform, has_room, "a row is read with more credits than there are")
        promised(m, platform, ~self.retire | self.advance, "an instruction is done without a row")
        promised(m, platform, one_read, "a row is read from both memories")
        message = "a read of a line is withdrawn"
        promised_offer(m, platform, buffer.enable, buffer.ready, buffer.address, message)
        return m
