# SPDX-License-Identifier: Apache-2.0
"""The gate at which lines and rows of one part of the link unit wait for the other parts.

The parts are a sender and a receiver on each side of the machine.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.control.link_list import ListView, list_places
from systola.hdl.link_commands import LinkRow, link_address
from systola.hdl.parts.skid_buffer import SkidBuffer


class LinkInterlock(wiring.Component):
    """A gate that lets a line or row pass as soon as no older instruction uses it. Lines and rows
    pass in order.

    | port      | meaning |
    |---|---|
    | `push`    | an instruction for this part is issued |
    | `free`    | the place of this instruction in the list of this part |
    | `taken`   | the part takes its next instruction; the rows that follow belong to it |
    | `others`  | the lists of unfinished instructions that the rows wait for |
    | `rows`    | lines or rows of the instructions, in order |
    | `cleared` | lines and rows that may be used |

    Latency: two cycles at least from `rows` to `cleared`. A row is compared with all older
    instructions in one cycle, and judged in the next. A row that is clear stays clear. Throughput:
    one row a cycle. `rows.ready` and `cleared` come from registers.
    """

    def __init__(self, *, config: Config, others: Sequence[str]):
        self._config = config
        self._places = list_places(config)
        row = LinkRow(config=config)
        super().__init__(
            {
                "push": In(1),
                "free": In(ceil_log2(self._places)),
                "taken": In(1),
                "others": In(data.StructLayout(dict.fromkeys(others, ListView(config=config)))),
                "rows": In(stream.Signature(row)),
                "cleared": Out(stream.Signature(row)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lists = [self.others[name] for name, _ in self.others.shape()]

        # For each instruction of this part: the unfinished instructions in `others` that are older.
        older: list[Value] = []
        leaving = Cat(view.leaving for view in lists)
        older_now = Cat(view.valid for view in lists) & ~leaving
        for row_place in range(self._places):
            older_entries = Signal(len(older_now), name=f"older_{row_place}", reset_less=True)
            m.d.sync += older_entries.eq(
                Mux(self.push & (self.free == row_place), older_now, older_entries & ~leaving)
            )
            older.append(older_entries)

        # The row at `rows` belongs to the instruction at `row_place`. The row before may still wait
        # in `waiting_row`.
        next_place, row_place = (
            Signal.like(self.free, name=name) for name in ("next_place", "row_place")
        )
        with m.If(self.taken):
            m.d.sync += [row_place.eq(next_place), next_place.eq(next_place + 1)]
        waiting_row = Signal(self.rows.payload.shape(), reset_less=True)
        waiting_place = Signal.like(row_place, reset_less=True)
        row_waits, row_blocked, row_moves = (
            Signal(name=name) for name in ("row_waits", "row_blocked", "row_moves")
        )
        row_compared = Signal.like(waiting_row)
        compared_place = Signal.like(row_place)
        row_address = Signal(lists[0].regions[0].base.shape())
        skid = m.submodules.skid = SkidBuffer(payload=self.rows.payload.shape())
        connect(m, skid.output, flipped(self.cleared))
        m.d.comb += [
            row_moves.eq(~row_waits | (skid.input.ready & ~row_blocked)),
            self.rows.ready.eq(row_moves),
            skid.input.valid.eq(row_waits & ~row_blocked),
            skid.input.payload.eq(waiting_row),
            row_compared.eq(Mux(row_moves, self.rows.payload, waiting_row)),
            compared_place.eq(Mux(row_moves, row_place, waiting_place)),
            row_address.eq(link_address(row_compared.place, row_compared.sums, self._config)),
        ]
        regions = [view.regions[i] for view in lists for i in range(self._places)]
        uses = Cat((region.base <= row_address) & (row_address < region.end) for region in regions)
        meets = (uses & Array(older)[compared_place]).any()
        m.d.sync += row_blocked.eq(meets & (row_moves | row_blocked))
        with m.If(row_moves):
            m.d.sync += [
                row_waits.eq(self.rows.valid),
                waiting_row.eq(self.rows.payload),
                waiting_place.eq(row_place),
            ]
        return m
