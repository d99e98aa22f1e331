# SPDX-License-Identifier: Apache-2.0
"""What is under way, and who must wait for it.

Each use of an on-chip resource by a unit has an `InFlight` list: a ring of places with its
instructions from issue to completion. When an instruction is issued, its regions are compared with
those in the lists; of each list it waits for one entry, the youngest in its way (`Awaited`), since
the entries of a list complete in order. So it only ever waits for older instructions, and the
oldest instruction of the machine never waits.

Chaining: the oldest entry of a list tells how far its instruction has got (`Progress`). Who waits
for that one may touch what lies below: it runs a line or row behind. The same is true while the
oldest one is an older entry of the `run` of the one that is awaited, such as the instructions that
fill the blocks of one matrix.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.promise import promised


class Region(data.StructLayout):
    """Addresses base to end - 1."""

    def __init__(self, width: int):
        super().__init__({"base": width, "end": width})


class Awaited(data.StructLayout):
    """The entry at `place` of a list of `depth` entries, while it is still `pending`. It and each
    of the `run` - 1 entries before it rises from the one before."""

    def __init__(self, depth: int):
        super().__init__({"pending": 1, "place": ceil_log2(depth), "run": ceil_log2(depth)})


class Progress(data.StructLayout):
    """The oldest entry of a list stands at `place`, and needs nothing below address `reached` any
    longer; with `retires` it leaves the list behind this cycle."""

    def __init__(self, width: int, depth: int):
        super().__init__({"retires": 1, "place": ceil_log2(depth), "reached": width})


def overlaps(a: data.View, b: data.View) -> Value:
    """Whether two regions share an address.

    An empty one inside the other counts as well: a wait too many, never one too few.
    """
    # The signs of differences come out of the carry chains as they are, comparisons do not.
    return (a.base - b.end)[-1] & (b.base - a.end)[-1]


def still(awaited: data.View, progress: data.View) -> Value:
    """Whether an entry is pending behind this cycle."""
    return awaited.pending & ~(progress.retires & (awaited.place == progress.place))


def holds(awaited: data.View, progress: data.View, below: Value) -> Value:
    """Whether who awaits an entry must not touch an address yet: the entry is pending, and the
    oldest of its list is none of its run, or has not got past the address, which is not `below`
    what it has `reached`."""
    ahead = (awaited.place - progress.place)[: len(awaited.place)]
    return awaited.pending & ~(below & (ahead <= awaited.run))


def kept(awaited: data.View, progress: data.View) -> Value:
    """What masks, a structure of `Awaited`, become behind this cycle, seeing the `progress` of the
    list of each."""
    return Cat(
        Cat(still(awaited[name], progress[name]), awaited[name].place, awaited[name].run)
        for name, _ in awaited.shape()
    )


class InFlight(wiring.Component):
    """List of up to `depth` instructions in a ring; all outputs but `empties` and
    `progress.retires` are registers, and change a cycle after what changes them.

    | port | |
    |---|---|
    | `push` | appends one at place `free`, only while not `full`, not in two cycles on end |
    | `rises` | the one that was pushed two cycles ago begins where the one before that has ended, \
or behind |
    | `rising` | for each place whether its entry rises, from the third cycle behind its push on |
    | `retire` | drops the oldest, also in the same cycle, but not in two cycles behind its push |
    | `advance`, `advance_to` | the oldest, if it is older than that, needs nothing below that \
address any longer; or nothing at all, and the next one nothing below |
    | `progress` | how far the oldest has got; until it first advances, as far as the one before, \
if it rises, or nowhere; it means nothing where the oldest was pushed one or two cycles ago |
    | `valid` | as many ones, from bit 0, as there are entries |
    | `empties` | none is left behind this cycle, but for what is pushed |
    """

    def __init__(self, *, width: int, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "rises": In(1),
                "rising": Out(1 << ceil_log2(depth)),
                "free": Out(ceil_log2(depth)),
                "full": Out(1),
                "retire": In(1),
                "advance": In(1),
                "advance_to": In(width),
                "progress": Out(Progress(width, depth)),
                "valid": Out(depth),
                "empties": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid, retire = self.valid, self.retire
        place = Signal.like(self.progress.place)
        reached = Signal.like(self.progress.reached)
        rises = Signal(1 << len(place))  # for each place; what is pushed does until it `settles`
        pushed, settles = Signal(), Signal()  # one or two cycles ago
        youngest = Signal.like(place)
        next_place = Signal.like(place)
        left = Signal.like(valid)
        empty = Signal(init=1)
        m.d.comb += [
            left.eq(Mux(retire, valid[1:], valid)),
            self.full.eq(valid[-1]),
            self.empties.eq(empty | (retire & ~valid[1])),
            self.progress.eq(Cat(retire, place, reached)),
            next_place.eq(place + retire),
            youngest.eq(self.free - 1),
        ]
        m.d.sync += [
            empty.eq(self.empties & ~self.push),
            valid.eq(left | Mux(self.push, Cat(1, left), 0)),
            self.free.eq(self.free + self.push),
            place.eq(next_place),
            pushed.eq(self.push),
            settles.eq(pushed),
        ]
        with m.If(self.push):
            m.d.sync += rises.bit_select(self.free, 1).eq(1)
        with m.If(settles):
            m.d.sync += rises.bit_select(youngest, 1).eq(self.rises)
        # What was reached in one entry holds for the next one if that rises from it.
        next_falls = retire & left[0] & ~rises.bit_select((place + 1)[: len(place)], 1)
        falls = settles & ~self.rises & (youngest == next_place)
        with m.If(next_falls | falls):
            m.d.sync += reached.eq(0)
        with m.Elif(self.advance):
            m.d.sync += reached.eq(self.advance_to)
        m.d.comb += self.rising.eq(rises)
        promised(m, platform, ~(self.push & pushed), "an instruction on the heels of another")
        fresh = (pushed | settles) & (youngest == place)
        promised(m, platform, ~((retire | self.advance) & fresh), "an instruction begins too soon")
        promised(m, platform, ~(self.push & self.full), "an instruction for a full list")
        promised(m, platform, ~retire | valid[0], "an instruction leaves a list that is empty")
        return m
