# SPDX-License-Identifier: Apache-2.0
"""Lists of the instructions under way, and masks of the entries that an instruction waits for.

Each use of an on-chip resource by a unit has an `InFlight` list. It is a ring with a place for each
instruction of this use, from issue to completion.

Masks: when an instruction is issued, its regions are compared with the regions in the lists. Of
each list it waits for one entry, the youngest that it overlaps (`Awaited`). One is enough, as the
entries of a list complete in order. An instruction only ever waits for older ones, so the oldest
instruction of the machine never waits.

Chaining: the oldest entry of a list reports how far its instruction has got (`Progress`). An
instruction that waits for this entry may touch all addresses below: it follows a line or row later.
This also holds if the oldest entry is not the awaited one, but belongs to its `run`. A run is,
for example, the instructions that fill the blocks of one matrix.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.promise import promised


class Region(data.StructLayout):
    """A region that has the addresses from `base` to `end` - 1."""

    def __init__(self, width: int):
        super().__init__({"base": width, "end": width})


class Awaited(data.StructLayout):
    """A mask that names one entry of a list of `depth` entries.

    | field     | meaning |
    |---|---|
    | `pending` | the entry is still in the list |
    | `place`   | place of the entry in the ring |
    | `run`     | number of older entries in its run; each entry of a run but the oldest rises |

    An entry rises if its region begins at or after the end of the region of the entry before.
    """

    def __init__(self, depth: int):
        super().__init__({"pending": 1, "place": ceil_log2(depth), "run": ceil_log2(depth)})


class Progress(data.StructLayout):
    """A report that shows how far the oldest entry of a list has got.

    | field     | meaning |
    |---|---|
    | `retires` | the entry leaves the list at the end of this cycle |
    | `place`   | place of the entry in the ring |
    | `reached` | first address that the entry may still need |
    """

    def __init__(self, width: int, depth: int):
        super().__init__({"retires": 1, "place": ceil_log2(depth), "reached": width})


def overlaps(a: data.View, b: data.View) -> Value:
    """Return whether two regions share an address.

    An empty region inside the other one counts as well: so an instruction may wait without need,
    but never passes too early.
    """
    # The sign of a difference comes directly out of a carry chain. A comparison does not.
    return (a.base - b.end)[-1] & (b.base - a.end)[-1]


def still(awaited: data.View, progress: data.View) -> Value:
    """Return whether an awaited entry is still in its list in the next cycle."""
    return awaited.pending & ~(progress.retires & (awaited.place == progress.place))


def holds(awaited: data.View, progress: data.View, below: Value) -> Value:
    """Return whether an instruction that awaits an entry must not touch an address yet.

    It may touch the address if the entry is no longer pending. It may also do so if the oldest
    entry of the list belongs to the run of the awaited one, and has got past it. `below` is true if
    the address is below the `reached` of the list.
    """
    ahead = (awaited.place - progress.place)[: len(awaited.place)]
    return awaited.pending & ~(below & (ahead <= awaited.run))


def kept(awaited: data.View, progress: data.View) -> Value:
    """Return the values of some masks in the next cycle.

    `awaited` is a structure of `Awaited` masks. `progress` has the report of the list of each mask.
    """
    return Cat(
        Cat(still(awaited[name], progress[name]), awaited[name].place, awaited[name].run)
        for name, _ in awaited.shape()
    )


class InFlight(wiring.Component):
    """A list of up to `depth` instructions in a ring, from issue to completion.

    All outputs but `empties` and `progress.retires` are registers. They change one cycle after the
    input that changes them.

    | port         | meaning |
    |---|---|
    | `push`       | appends an entry at place `free`; only while not `full`, and not in two cycles
                     on end |
    | `rises`      | the entry pushed two cycles ago begins at or after the end of the entry
                     before |
    | `rising`     | a bit for each place: its entry rises; valid from the third cycle after its
                     push |
    | `free`       | the place of the next entry |
    | `full`       | there is no place for another entry |
    | `retire`     | drops the oldest entry, also together with a push; not in the two cycles after
                     its own push |
    | `advance`    | sets the reach of the oldest entry to `advance_to`; not in the two cycles after
                     the push of this entry |
    | `advance_to` | first address that the oldest entry may still need or, if this entry is done,
                     that the next entry may need |
    | `progress`   | place and reach of the oldest entry; meaningless in the two cycles after its
                     push |
    | `valid`      | as many ones, from bit 0, as there are entries |
    | `empties`    | no entry is left at the end of this cycle, not counting one that is pushed |

    Until it first advances, an entry that rises has reached as far as the entry before. An entry
    that does not rise has reached address 0.
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
        # a bit for each place: its entry rises; set at the push, until the entry `settles`
        rises = Signal(1 << len(place))
        # `pushed`: a push one cycle ago; `settles`: two cycles ago
        pushed = Signal()
        settles = Signal()
        youngest = Signal.like(place)
        next_place = Signal.like(place)
        entries_kept = Signal.like(valid)
        empty = Signal(init=1)
        m.d.comb += [
            entries_kept.eq(Mux(retire, valid[1:], valid)),
            self.full.eq(valid[-1]),
            self.empties.eq(empty | (retire & ~valid[1])),
            self.progress.eq(Cat(retire, place, reached)),
            next_place.eq(place + retire),
            youngest.eq(self.free - 1),
        ]
        m.d.sync += [
            empty.eq(self.empties & ~self.push),
            valid.eq(entries_kept | Mux(self.push, Cat(1, entries_kept), 0)),
            self.free.eq(self.free + self.push),
            place.eq(next_place),
            pushed.eq(self.push),
            settles.eq(pushed),
        ]
        with m.If(self.push):
            m.d.sync += rises.bit_select(self.free, 1).eq(1)
        with m.If(settles):
            m.d.sync += rises.bit_select(youngest, 1).eq(self.rises)
        # If the next entry rises, the reach of the leaving entry also holds for the next entry.
        next_falls = retire & entries_kept[0] & ~rises.bit_select((place + 1)[: len(place)], 1)
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
