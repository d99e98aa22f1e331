# SPDX-License-Identifier: Apache-2.0
"""The place where lines and rows of one part of the link unit wait for the other parts."""

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
    """A gate that lets lines and rows pass, in order, once no older instruction uses them any
    longer.

    | port      | meaning |
    |---|---|
    | `push`    | an instruction for this part is issued |
    | `free`    | its place in the list of this part |
    | `taken`   | the part begins with its next instruction: the rows of this one follow |
    | `others`  | the lists of unfinished instructions that the rows wait for |
    | `rows`    | lines or rows of the instructions, in order |
    | `cleared` | lines and rows that may be used |

    Latency: two cycles at least from `rows` to `cleared`. A row is compared with all older
    instructions in one cycle, and judged in the next. Once it is clear it stays clear. Throughput:
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

        # For each place in the own list: the instructions in `others` that were issued before.
        older: list[Value] = []
        leaving = Cat(view.leaving for view in lists)
        before = Cat(view.valid for view in lists) & ~leaving
        for place in range(self._places):
            known = Signal(len(before), name=f"older_{place}", reset_less=True)
            m.d.sync += known.eq(Mux(self.push & (self.free == place), before, known & ~leaving))
            older.append(known)

        # The row that comes belongs to the instruction at `place`. Another row may be waiting.
        following, place = Signal.like(self.free), Signal.like(self.free)
        with m.If(self.taken):
            m.d.sync += [place.eq(following), following.eq(following + 1)]
        waiting = Signal(self.rows.payload.shape(), reset_less=True)
        waiting_place = Signal.like(place, reset_less=True)
        there, blocked, moves = Signal(), Signal(), Signal()
        looked_at = Signal.like(waiting)
        of = Signal.like(place)
        address = Signal(lists[0].regions[0].base.shape())
        skid = m.submodules.skid = SkidBuffer(payload=self.rows.payload.shape())
        connect(m, skid.output, flipped(self.cleared))
        m.d.comb += [
            moves.eq(~there | (skid.input.ready & ~blocked)),
            self.rows.ready.eq(moves),
            skid.input.valid.eq(there & ~blocked),
            skid.input.payload.eq(waiting),
            looked_at.eq(Mux(moves, self.rows.payload, waiting)),
            of.eq(Mux(moves, place, waiting_place)),
            address.eq(link_address(looked_at.place, looked_at.sums, self._config)),
        ]
        regions = [view.regions[i] for view in lists for i in range(self._places)]
        uses = Cat((region.base <= address) & (address < region.end) for region in regions)
        meets = (uses & Array(older)[of]).any()
        m.d.sync += blocked.eq(meets & (moves | blocked))
        with m.If(moves):
            m.d.sync += [
                there.eq(self.rows.valid),
                waiting.eq(self.rows.payload),
                waiting_place.eq(place),
            ]
        return m
