# SPDX-License-Identifier: Apache-2.0
"""The list of lines or rows that the instructions of one part of the link unit still use.

The parts are a sender and a receiver on each side of the machine.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.link_commands import link_address_bits
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.promise import promised


def list_places(config: Config) -> int:
    """Return the number of places in a LinkList: a power of two, as the list is a ring."""
    return 1 << ceil_log2(config.queue_depth)


class ListView(data.StructLayout):
    """A view of a LinkList for its users, with a bit or a region for each place.

    | field     | meaning |
    |---|---|
    | `valid`   | there is an instruction |
    | `leaving` | the instruction leaves the list at the end of this cycle |
    | `regions` | the lines or rows that the instruction has not done yet |
    """

    def __init__(self, *, config: Config):
        places = list_places(config)
        regions = data.ArrayLayout(Region(link_address_bits(config)), places)
        super().__init__({"valid": places, "leaving": places, "regions": regions})


class LinkList(wiring.Component):
    """A ring of up to `queue_depth` instructions, from their issue until they are done, in order.

    | port         | meaning |
    |---|---|
    | `push`       | appends an instruction, only while not `full` |
    | `pushed`     | the lines or rows that this instruction uses |
    | `free`       | the place that this instruction takes |
    | `full`       | there are `queue_depth` instructions |
    | `advance`    | the oldest instruction has done all lines or rows below `advance_to` |
    | `advance_to` | the first line or row that the oldest instruction has not done |
    | `retire`     | drops the oldest instruction, also in a cycle with `advance` |
    | `view`       | the instructions, from registers but for `leaving` |
    | `empties`    | no instruction is left after this cycle, except for one that is pushed in it |

    Latency: one cycle from a port to `view`. Throughput: one instruction a cycle.
    """

    def __init__(self, *, config: Config):
        self._depth = config.queue_depth
        self._places = list_places(config)
        address = link_address_bits(config)
        self._region = Region(address)
        super().__init__(
            {
                "push": In(1),
                "pushed": In(self._region),
                "free": Out(ceil_log2(self._places)),
                "full": Out(1),
                "advance": In(1),
                "advance_to": In(address),
                "retire": In(1),
                "view": Out(ListView(config=config)),
                "empties": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        oldest_place = Signal.like(self.free)
        entry_count = Signal(range(self._depth + 1))
        entries_valid = Signal(self._places)
        entries_kept = Signal.like(entries_valid)
        m.d.comb += [
            self.full.eq(entry_count == self._depth),
            self.empties.eq((entry_count == 0) | (self.retire & (entry_count == 1))),
            self.view.valid.eq(entries_valid),
            self.view.leaving.eq(self.retire << oldest_place),
            entries_kept.eq(entries_valid & ~self.view.leaving),
        ]
        m.d.sync += [
            entry_count.eq(entry_count + self.push - self.retire),
            self.free.eq(self.free + self.push),
            oldest_place.eq(oldest_place + self.retire),
            entries_valid.eq(entries_kept | (self.push << self.free)),
        ]
        for place in range(self._places):
            region = Signal(self._region, name=f"region_{place}", reset_less=True)
            m.d.comb += self.view.regions[place].eq(region)
            with m.If(self.push & (self.free == place)):
                m.d.sync += region.eq(self.pushed)
            with m.Elif(self.advance & (oldest_place == place)):
                m.d.sync += region.base.eq(self.advance_to)
        promised(m, platform, ~(self.push & self.full), "an instruction for a full list")
        promised(
            m, platform, ~self.retire | (entry_count != 0), "an instruction leaves an empty list"
        )
        return m
