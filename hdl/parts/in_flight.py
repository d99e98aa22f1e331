# SPDX-License-Identifier: Apache-2.0
"""The interlocks: what is under way, and who must wait for it.

Each use of an on-chip resource by a unit has an `InFlight` list: the regions of its instructions
from issue to completion, oldest first. When an instruction is issued, its regions are compared
with those lists, and one mask per list (bit i: entry i is in the way) goes with it into the
`CommandQueue` of its unit. Masks and lists shift together when an entry retires, so a mask only
ever names older instructions, and the oldest instruction of the machine never waits.

Chaining: the oldest entry of a list shrinks from below while its instruction walks through its
region. A follower may touch an address that no entry in its mask holds any longer: it runs a row
behind.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out


class Region(data.StructLayout):
    """Addresses base to end - 1."""

    def __init__(self, width: int):
        super().__init__({"base": width, "end": width})


def overlaps(a: data.View, b: data.View) -> Value:
    """Whether two regions share an address.

    An empty one inside the other counts as well: a wait too many, never one too few.
    """
    return (a.base < b.end) & (b.base < a.end)


def holds(region: data.View, address: Value) -> Value:
    """Whether a region contains an address."""
    # The signs of differences come out of the carry chains as they are, comparisons do not.
    return ~(address - region.base)[-1] & (address - region.end)[-1]


class InFlight(wiring.Component):
    """List of up to `depth` entries of layout `entry`, oldest first.

    `push` (only while not `full`) appends `pushed`; `retire` drops the oldest, also in the same
    cycle. `advance` sets the base of the region `advancing` of the oldest entry to `advance_to`.
    Everything shows a cycle later. `valid[i]` tells whether `entries[i]` counts; `empties`: none is
    left behind this cycle, but for what is pushed. `following` is what `entries` will be in the
    next cycle, for copies of them.
    """

    def __init__(self, *, entry: data.StructLayout, depth: int, advancing: str | None = None):
        self._advancing = advancing
        self._depth = depth
        members = {
            "push": In(1),
            "pushed": In(entry),
            "full": Out(1),
            "retire": In(1),
            "valid": Out(depth),
            "empties": Out(1),
            "entries": Out(data.ArrayLayout(entry, depth)),
            "following": Out(data.ArrayLayout(entry, depth)),
        }
        if advancing is not None:
            width = entry[advancing].shape["base"].width
            members |= {"advance": In(1), "advance_to": In(width)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth, valid, retire = self._depth, self.valid, self.retire
        behind = Cat(valid[1:], 0)  # whether there is an entry behind the one at a place,
        before = Cat(1, valid[:-1])  # and before it
        empty = Signal(init=1)
        m.d.comb += [self.full.eq(valid[-1]), self.empties.eq(empty | (retire & ~valid[1]))]
        m.d.sync += empty.eq(self.empties & ~self.push)
        m.d.sync += valid.eq(
            Mux(
                retire,
                behind | Mux(self.push, valid, 0),
                valid | Mux(self.push, before, 0),
            )
        )

        # What does not count may be anything: all places behind the last entry take what could be
        # pushed, and a push only makes one of them count.
        layout = self.pushed.shape()
        entries = [Signal(layout, name=f"entry_{i}", reset_less=True) for i in range(depth)]
        for i, entry in enumerate(entries):
            following = Signal(layout, name=f"following_{i}")
            behind_it = entries[i + 1] if i + 1 < depth else self.pushed
            m.d.comb += [self.entries[i].eq(entry), following.eq(entry)]
            if i == 0 and self._advancing is not None:
                with m.If(self.advance):
                    m.d.comb += following[self._advancing].base.eq(self.advance_to)
            with m.If(retire | ~valid[i]):
                m.d.comb += following.eq(Mux(behind[i], behind_it, self.pushed))
            m.d.comb += self.following[i].eq(following)
            m.d.sync += entry.eq(following)
        return m
