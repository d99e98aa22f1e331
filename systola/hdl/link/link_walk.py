# SPDX-License-Identifier: Apache-2.0
"""The unit that lists the lines or rows of a link instruction, one after the other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link_commands import ROW_COUNT_BITS, LinkCommand, LinkRow
from systola.hdl.parts.promise import promised, promised_offer


class LinkWalk(wiring.Component):
    """A unit that offers the rows of each `command` in order.

    | port      | meaning |
    |---|---|
    | `command` | a command |
    | `rows`    | the rows of the command, the first one a cycle after the command was taken; from
                  registers |

    Throughput: one row a cycle, also from one command to the next.
    """

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
        rows_remaining = Signal(ROW_COUNT_BITS)  # rows that remain after the present row
        row_moves = Signal()
        m.d.comb += [
            row_moves.eq(~self.rows.valid | self.rows.ready),
            self.command.ready.eq(row_moves & (row.last | ~self.rows.valid)),
        ]
        with m.If(row_moves):
            begins = ~self.rows.valid | row.last
            rows_after = Mux(begins, given.rows, rows_remaining) - 1
            m.d.sync += [
                self.rows.valid.eq(~begins | self.command.valid),
                rows_remaining.eq(rows_after),
                row.last.eq(rows_after == 0),
                row.place.eq(Mux(begins, given.place, row.place + 1)),
            ]
            with m.If(begins):
                m.d.sync += [row.sums.eq(given.sums), row.adds.eq(given.adds)]
        message = "a row changes before it is taken"
        rows = self.rows
        promised_offer(m, platform, rows.valid, rows.ready, row.as_value(), message)
        ends = row.last == (rows_remaining == 0)
        promised(m, platform, ~rows.valid | ends, "the last row is not the one that is marked")
        begins = ~self.command.ready | ~rows.valid | row.last
        promised(m, platform, begins, "a command begins before the last one has ended")
        return m
