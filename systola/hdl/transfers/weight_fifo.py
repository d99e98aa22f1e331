# SPDX-License-Identifier: Apache-2.0
"""The weight FIFO: rows of weight tiles in a memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.memories.sram import Sram
from systola.hdl.parts.promise import promised
from systola.hdl.ports import WeightRowSignature

LATENCY = 2
"""Cycles from `push` to `rows.valid`: into the memory, out of it."""


class WeightFifo(wiring.Component):
    """A FIFO that holds `depth` rows of `width` bits.

    | port      | meaning |
    |---|---|
    | `reserve` | takes room for a row; only while not `full` |
    | `push`    | appends `pushed` to the FIFO; in the cycle of its `reserve` or later |
    | `full`    | there is no room for another row |
    | `rows`    | the rows in their order |

    Throughput: a row a cycle in and out. Latency: LATENCY cycles from `push` to `rows.valid`, two
    from `rows.pop` to the room for another row. All outputs are registers; `rows.row` is the
    output register of the memory.
    """

    def __init__(self, *, width: int, depth: int):
        self._width = width
        self._depth = depth
        super().__init__(
            {
                "reserve": In(1),
                "push": In(1),
                "pushed": In(width),
                "full": Out(1),
                "rows": Out(WeightRowSignature(width=width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        memory = m.submodules.memory = Sram(width=self._width, depth=depth, output_register=True)

        rows_stored = Signal(range(depth + 1))  # number of rows that have not been read
        has_row = Signal()
        row_read = Signal()
        m.d.comb += [
            row_read.eq(has_row & (~self.rows.valid | self.rows.pop)),
            self.rows.row.eq(memory.read_data),
            memory.write_enable.eq(self.push),
            memory.write_data.eq(self.pushed),
            memory.read_enable.eq(row_read),
        ]
        m.d.sync += self.rows.valid.eq(row_read | (self.rows.valid & ~self.rows.pop))

        for moves, address in (
            (self.push, memory.write_address),
            (row_read, memory.read_address),
        ):
            row_pointer = Signal.like(address)
            promised(m, platform, row_pointer < depth, "a pointer of the FIFO is beyond its rows")
            m.d.comb += address.eq(row_pointer)
            with m.If(moves):
                m.d.sync += row_pointer.eq(Mux(row_pointer == depth - 1, 0, row_pointer + 1))

        # number of rows for which room is reserved, stored rows included
        rows_reserved = Signal(range(depth + 1))
        with m.If(self.push & ~row_read):
            m.d.sync += [rows_stored.eq(rows_stored + 1), has_row.eq(1)]
        with m.Elif(~self.push & row_read):
            m.d.sync += [rows_stored.eq(rows_stored - 1), has_row.eq(rows_stored != 1)]
        row_taken = Signal()
        m.d.sync += row_taken.eq(self.rows.pop)
        with m.If(self.reserve & ~row_taken):
            m.d.sync += [
                rows_reserved.eq(rows_reserved + 1),
                self.full.eq(rows_reserved == depth - 1),
            ]
        with m.Elif(~self.reserve & row_taken):
            m.d.sync += [rows_reserved.eq(rows_reserved - 1), self.full.eq(0)]
        promised(m, platform, ~(self.reserve & self.full), "a row of weights for a full FIFO")
        promised(
            m,
            platform,
            ~self.push | self.reserve | (rows_reserved != rows_stored),
            "a row of weights comes that has no room",
        )
        promised(
            m,
            platform,
            ~self.rows.pop | self.rows.valid,
            "a row of weights is taken that is not there",
        )
        return m
