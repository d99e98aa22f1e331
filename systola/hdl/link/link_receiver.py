# SPDX-License-Identifier: Apache-2.0
"""A part of a link unit that writes the beats of a neighbour to their place."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import (
    AccumulatorUpdateSignature,
    LinkBeat,
)
from systola.hdl.link_commands import LinkRow, link_address, link_address_bits
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.ports import BufferWriteSignature


class LinkReceiver(wiring.Component):
    """A unit that collects the beats of a line or row and writes it, or adds to it.

    | port           | meaning |
    |---|---|
    | `beat`         | the beats; no beat is taken before its row is known |
    | `cleared`      | the line or row to be written next |
    | `buffer`       | writes of lines |
    | `accumulators` | updates of rows |
    | `advance`      | in the cycle before, the memory took line or row `advance_to` - 1 |
    | `retire`       | in the cycle before, the memory took the last line or row of an
                       instruction |
    | `mismatch`     | the next beat is of a line where sums are expected, or the other way round;
                       it is not taken |

    A write is requested in the cycle after the last beat. Throughput: a beat a cycle, while writes
    are `ready`. `advance` and `retire` are registers. When they are high, the memory may not have
    changed yet. The user must know how many cycles later a write or update takes effect.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "beat": In(stream.Signature(LinkBeat(config=config))),
                "cleared": In(stream.Signature(LinkRow(config=config))),
                "buffer": Out(BufferWriteSignature(config=config)),
                "accumulators": Out(AccumulatorUpdateSignature(config=config)),
                "advance": Out(1),
                "advance_to": Out(link_address_bits(config)),
                "retire": Out(1),
                "mismatch": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        line_beats, row_beats = config.link_line_beats, config.link_row_beats
        size = 8 * config.host_bus_bytes
        beat, row = self.beat.payload, self.cleared.payload
        buffer, accumulators = self.buffer, self.accumulators

        # Beats enter `word` at its upper end. A complete row is written while the beats of the next
        # row come.
        word = Signal(size * max(line_beats, row_beats), reset_less=True)
        # beats that are still to come for a row after its first beat
        beats_remaining = Signal(range(max(line_beats, row_beats)))
        row_begun = Signal()
        row_complete = Signal()
        target_row = Signal(LinkRow(config=config), reset_less=True)
        row_written = Signal()
        kind_fits = Signal()
        beat_taken = Signal()
        beat_completes = Signal()
        beats_after = Signal.like(beats_remaining)
        m.d.comb += [
            kind_fits.eq(beat.sums == row.sums),
            self.beat.ready.eq(self.cleared.valid & kind_fits & (~row_complete | row_written)),
            beat_taken.eq(self.beat.valid & self.beat.ready),
            beats_after.eq(
                Mux(row_begun, beats_remaining, Mux(row.sums, row_beats - 1, line_beats - 1))
            ),
            beat_completes.eq(beat_taken & (beats_after == 0)),
            self.cleared.ready.eq(beat_completes),
            row_written.eq(row_complete & Mux(target_row.sums, accumulators.ready, buffer.ready)),
            buffer.enable.eq(row_complete & ~target_row.sums),
            buffer.address.eq(target_row.place),
            buffer.data.eq(word[-size * line_beats :]),
            accumulators.enable.eq(row_complete & target_row.sums),
            accumulators.address.eq(target_row.place),
            accumulators.adds.eq(target_row.adds),
            accumulators.sums.eq(word[-size * row_beats :]),
        ]
        with m.If(beat_taken):
            m.d.sync += [
                word.eq(Cat(word, beat.data)[size:]),
                beats_remaining.eq(beats_after - 1),
                row_begun.eq(beats_after != 0),
            ]
        with m.If(beat_completes):
            m.d.sync += target_row.eq(row)
        m.d.sync += [
            row_complete.eq(beat_completes | (row_complete & ~row_written)),
            self.advance.eq(row_written),
            self.advance_to.eq(link_address(target_row.place + 1, target_row.sums, self._config)),
            self.retire.eq(row_written & target_row.last),
            self.mismatch.eq(self.beat.valid & self.cleared.valid & ~kind_fits),
        ]
        message = "a line changes before it is written"
        line = Cat(buffer.address, buffer.data)
        promised_offer(m, platform, buffer.enable, buffer.ready, line, message)
        message = "sums change before they are taken"
        sums = Cat(accumulators.address, accumulators.adds, accumulators.sums)
        promised_offer(m, platform, accumulators.enable, accumulators.ready, sums, message)
        one_write = ~(buffer.enable & accumulators.enable)
        promised(m, platform, one_write, "a row is written to both memories")
        promised(m, platform, ~self.retire | self.advance, "an instruction is done without a write")
        return m
