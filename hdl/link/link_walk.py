# SPDX-License-Identifier: Apache-2.0
"""The lines or rows of one instruction of the links after the other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import ROW_COUNT_BITS, LinkCommand, LinkRow


class LinkWalk(wiring.Component):
    """Offers the rows of each `command` in order, the first one a cycle after it was taken.
    Throughput: one a cycle, from one command to the next too. Rows come from registers."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "command": In(stream.Signature(LinkCommand(config=config))),
                "rows": Out(stream.Signature(LinkRow(config=config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        given, row = self.command.payload, self.rows.payload
        left = Signal(ROW_COUNT_BITS)  # after this one
        moves = Signal()
        m.d.comb += [
            moves.eq(~self.rows.valid | self.rows.ready),
            self.command.ready.eq(moves & (row.last | ~self.rows.valid)),
        ]
        with m.If(moves):
            begins = ~self.rows.valid | row.last
            rest = Mux(begins, given.rows, left) - 1
            m.d.sync += [
                self.rows.valid.eq(~begins | self.command.valid),
                left.eq(rest),
                row.last.eq(rest == 0),
                row.place.eq(Mux(begins, given.place, row.place + 1)),
            ]
            with m.If(begins):
                m.d.sync += [row.sums.eq(given.sums), row.adds.eq(given.adds)]
        return m
