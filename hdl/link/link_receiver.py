# SPDX-License-Identifier: Apache-2.0
"""A part of a link unit that writes the beats of a neighbour to their place."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import LinkRow, link_address, link_address_bits
from systola.hdl.link.link_signature import (
    AccumulatorUpdateSignature,
    LinkBeat,
)
from systola.hdl.ports import BufferWriteSignature


class LinkReceiver(wiring.Component):
    """A unit that collects the beats of a line or row and writes it, or adds to it.

    | port           | meaning |
    |---|---|
    | `beat`         | the beats; none is taken before its row is known |
    | `cleared`      | the line or row to be written next |
    | `buffer`       | writes of lines |
    | `accumulators` | updates of rows |
    | `advance`      | the write or update of `advance_to` - 1 was taken in the cycle before |
    | `done`         | the last write or update of an instruction was taken in the cycle before |
    | `mismatch`     | the next beat is of another kind than the row; it is not taken |

    A write is requested in the cycle after the last beat. Throughput: a beat a cycle, while writes
    are `ready`. `advance` and `done` are registers. They report that a write or update is taken:
    its user must know when it has its effect.
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
                "done": Out(1),
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

        # Beats enter the word from above. A `complete` row is written while the next row begins.
        word = Signal(size * max(line_beats, row_beats), reset_less=True)
        # beats remaining of a row, once one has come
        left = Signal(range(max(line_beats, row_beats)))
        begun = Signal()
        complete = Signal()
        target = Signal(LinkRow(config=config), reset_less=True)
        written = Signal()
        fits = Signal()
        takes = Signal()
        completes = Signal()
        rest = Signal.like(left)
        m.d.comb += [
            fits.eq(beat.sums == row.sums),
            self.beat.ready.eq(self.cleared.valid & fits & (~complete | written)),
            takes.eq(self.beat.valid & self.beat.ready),
            rest.eq(Mux(begun, left, Mux(row.sums, row_beats - 1, line_beats - 1))),
            completes.eq(takes & (rest == 0)),
            self.cleared.ready.eq(completes),
            written.eq(complete & Mux(target.sums, accumulators.ready, buffer.ready)),
            buffer.enable.eq(complete & ~target.sums),
            buffer.address.eq(target.place),
            buffer.data.eq(word[-size * line_beats :]),
            accumulators.enable.eq(complete & target.sums),
            accumulators.address.eq(target.place),
            accumulators.adds.eq(target.adds),
            accumulators.sums.eq(word[-size * row_beats :]),
        ]
        with m.If(takes):
            m.d.sync += [
                word.eq(Cat(word, beat.data)[size:]),
                left.eq(rest - 1),
                begun.eq(rest != 0),
            ]
        with m.If(completes):
            m.d.sync += target.eq(row)
        m.d.sync += [
            complete.eq(completes | (complete & ~written)),
            self.advance.eq(written),
            self.advance_to.eq(link_address(target.place + 1, target.sums, self._config)),
            self.done.eq(written & target.last),
            self.mismatch.eq(self.beat.valid & self.cleared.valid & ~fits),
        ]
        return m
