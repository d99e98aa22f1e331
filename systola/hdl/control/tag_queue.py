# SPDX-License-Identifier: Apache-2.0
"""The queue of the tags that wait for units, on their way into the trace."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import TAGS_WAITING, Unit
from systola.hdl.commands import TAG_BITS
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised
from systola.hdl.parts.ring import counted


class TagQueue(wiring.Component):
    """A queue of up to TAGS_WAITING tags, which enter the trace in order, at most one a cycle.

    | port          | meaning |
    |---|---|
    | `push`        | appends a tag, only while not `full` |
    | `tag`         | the tag |
    | `units`       | mask of the units that it waits for |
    | `full`        | TAGS_WAITING tags wait |
    | `under_way`   | for each unit as many ones, from bit 0, as instructions that it has to
                      complete |
    | `retire`      | for each unit: it completes its oldest instruction |
    | `hold`        | no tag enters |
    | `enters`      | the tag `entering` enters the trace in this cycle |
    | `entering`    | the oldest tag |
    | `one_at_most` | at most one tag waits |

    Latency: a tag enters in the first cycle after its `push`, after the last `retire` that it waits
    for, and after all older tags. Throughput: one tag a cycle.

    In each unit the last instruction that a tag waits for is marked. Several tags may wait for the
    same instruction. Only the first of them has the bit of the unit in its `awaits`, as the others
    enter after it anyway. So marks and bits pair up in order. A tag with the bit may enter when one
    more mark has completed than tags with the bit have entered.
    """

    def __init__(self, *, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "tag": In(TAG_BITS),
                "units": In(len(Unit)),
                "full": Out(1),
                "under_way": In(data.ArrayLayout(depth, len(Unit))),
                "retire": In(len(Unit)),
                "hold": In(1),
                "enters": Out(1),
                "entering": Out(TAG_BITS),
                "one_at_most": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entry = data.StructLayout({"tag": TAG_BITS, "awaits": len(Unit)})
        pushed = Signal(entry)
        blocks = Signal(len(Unit))

        # The oldest tag lies in a register, the others in a ring. Every tag is pushed into the
        # ring. A tag that goes directly into the register leaves the ring in the same cycle.
        oldest = Signal(entry, reset_less=True)
        some = Signal()
        m.submodules.behind = behind = PayloadRing(payload=entry, depth=TAGS_WAITING)
        loads = Signal()
        # If the register is empty, a tag that comes is loaded at once.
        waiting = counted(m, "waiting", most=TAGS_WAITING - 1, push=self.push, pop=loads)
        m.d.comb += [
            loads.eq(~some | self.enters),
            pushed.tag.eq(self.tag),
            behind.pushed.eq(pushed),
            behind.push.eq(self.push),
            behind.pop.eq(loads & (self.push | waiting[0])),
            self.full.eq(waiting[-1]),
            self.one_at_most.eq(~waiting[0]),
            self.enters.eq(some & ~blocks.any() & ~self.hold),
            self.entering.eq(oldest.tag),
        ]
        with m.If(loads):
            m.d.sync += [
                oldest.eq(Mux(waiting[0], behind.oldest, pushed)),
                some.eq(self.push | waiting[0]),
            ]
        for unit in range(len(Unit)):
            under_way = self.under_way[unit]
            last = Signal(self._depth, name=f"last_{unit}")
            marks = Signal(self._depth, name=f"marks_{unit}")
            marked = Signal(self._depth, name=f"marked_{unit}")
            # As many ones, from bit 0, as there are completed marks of tags that have not entered.
            completed = Signal(TAGS_WAITING, name=f"completed_{unit}")
            more = Signal.like(completed, name=f"more_{unit}")
            completes = self.retire[unit] & marked[0]
            m.d.comb += [
                last.eq(under_way & ~Cat(under_way[1:], 0)),
                pushed.awaits[unit].eq(self.units[unit] & (last & ~marks).any()),
                marked.eq(marks | Mux(self.push & self.units[unit], last, 0)),
                more.eq(Mux(completes, Cat(1, completed), completed)),
                blocks[unit].eq(oldest.awaits[unit] & ~completed[0]),
            ]
            m.d.sync += marks.eq(Mux(self.retire[unit], marked[1:], marked))
            m.d.sync += completed.eq(more)
            with m.If(self.enters & oldest.awaits[unit]):
                m.d.sync += completed.eq(Mux(completes, completed, completed[1:]))
        promised(m, platform, ~(self.push & self.full), "a tag for a full queue")
        return m
