# SPDX-License-Identifier: Apache-2.0
"""What the instructions of one part of the link unit still use."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.commands import link_address_bits
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.promise import promised


def list_places(config: Config) -> int:
    """Places of a LinkList: a ring has a power of two."""
    return 1 << ceil_log2(config.queue_depth)


class ListView(data.StructLayout):
    """A LinkList as others see it: for each place whether there is an instruction, and which lines
    or rows it has not done; `leaving`: the instruction there leaves with this cycle."""

    def __init__(self, *, config: Config):
        places = list_places(config)
        regions = data.ArrayLayout(Region(link_address_bits(config)), places)
        super().__init__({"valid": places, "leaving": places, "regions": regions})


class LinkList(wiring.Component):
    """Up to `queue_depth` instructions in a ring, from their issue until they are done, in order.

    | port | |
    |---|---|
    | `push`, `pushed` | appends one at place `free`, only while not `full` |
    | `advance`, `advance_to` | the oldest has done all below that address |
    | `retire` | drops the oldest, also in the same cycle |
    | `view` | what there is, from registers but for `leaving` |
    | `empties` | none is left behind this cycle, but for what is pushed |
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
        oldest = Signal.like(self.free)
        count = Signal(range(self._depth + 1))
        valid = Signal(self._places)
        kept = Signal.like(valid)
        m.d.comb += [
            self.full.eq(count == self._depth),
            self.empties.eq((count == 0) | (self.retire & (count == 1))),
            self.view.valid.eq(valid),
            self.view.leaving.eq(self.retire << oldest),
            kept.eq(valid & ~self.view.leaving),
        ]
        m.d.sync += [
            count.eq(count + self.push - self.retire),
            self.free.eq(self.free + self.push),
            oldest.eq(oldest + self.retire),
            valid.eq(kept | (self.push << self.free)),
        ]
        for place in range(self._places):
            region = Signal(self._region, name=f"region_{place}", reset_less=True)
            m.d.comb += self.view.regions[place].eq(region)
            with m.If(self.push & (self.free == place)):
                m.d.sync += region.eq(self.pushed)
            with m.Elif(self.advance & (oldest == place)):
                m.d.sync += region.base.eq(self.advance_to)
        promised(m, platform, ~(self.push & self.full), "an instruction for a full list")
        promised(m, platform, ~self.retire | (count != 0), "an instruction leaves an empty list")
        return m
