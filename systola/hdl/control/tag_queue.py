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
    | `units`       | a bit for each unit: the tag waits for this unit |
    | `full`        | TAGS_WAITING tags wait |
    | `under_way`   | for each unit a thermometer code: as many ones, from bit 0, as it has
                      unfinished instructions |
    | `retire`      | a bit for each unit: the unit completes its oldest instruction |
    | `hold`        | no tag enters |
    | `enters`      | the tag `entering` enters the trace in this cycle |
    | `entering`    | the oldest tag |
    | `one_at_most` | at most one tag waits |

    Latency: a tag enters in the first cycle after its `push`, after the last `retire` that it waits
    for, and after all older tags. Throughput: one tag a cycle.

    Marks: a tag that waits for a unit marks the youngest unfinished instruction of the unit, and
    has the bit of the unit in its `awaits`. If an older tag has marked this instruction, the new
    tag enters after the older one anyway, and needs neither mark nor bit. So marks and bits come in
    pairs, in the same order. The n-th tag with the bit may enter when the n-th mark is complete.
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
        pushed_tag = Signal(entry)
        unit_blocks = Signal(len(Unit))

        # The oldest tag lies in a register, the others in a ring. Every tag is pushed into the
        # ring. A tag that goes directly into the register leaves the ring in the same cycle.
        oldest_tag = Signal(entry, reset_less=True)
        tag_present = Signal()
        m.submodules.behind = behind = PayloadRing(payload=entry, depth=TAGS_WAITING)
        tag_loads = Signal()
        # An empty register takes a new tag at once.
        tags_waiting = counted(m, "waiting", most=TAGS_WAITING - 1, push=self.push, pop=tag_loads)
        m.d.comb += [
            tag_loads.eq(~tag_present | self.enters),
            pushed_tag.tag.eq(self.tag),
            behind.pushed.eq(pushed_tag),
            behind.push.eq(self.push),
            behind.pop.eq(tag_loads & (self.push | tags_waiting[0])),
            self.full.eq(tags_waiting[-1]),
            self.one_at_most.eq(~tags_waiting[0]),
            self.enters.eq(tag_present & ~unit_blocks.any() & ~self.hold),
            self.entering.eq(oldest_tag.tag),
        ]
        with m.If(tag_loads):
            m.d.sync += [
                oldest_tag.eq(Mux(tags_waiting[0], behind.oldest, pushed_tag)),
                tag_present.eq(self.push | tags_waiting[0]),
            ]
        for unit in range(len(Unit)):
            under_way = self.under_way[unit]
            youngest_mark = Signal(self._depth, name=f"youngest_mark_{unit}")
            marks_held = Signal(self._depth, name=f"marks_held_{unit}")
            marks_next = Signal(self._depth, name=f"marks_next_{unit}")
            # a thermometer code: as many ones, from bit 0, as marks of waiting tags are complete
            marks_completed = Signal(TAGS_WAITING, name=f"marks_completed_{unit}")
            completed_next = Signal.like(marks_completed, name=f"completed_next_{unit}")
            completes = self.retire[unit] & marks_next[0]
            m.d.comb += [
                youngest_mark.eq(under_way & ~Cat(under_way[1:], 0)),
                pushed_tag.awaits[unit].eq(self.units[unit] & (youngest_mark & ~marks_held).any()),
                marks_next.eq(marks_held | Mux(self.push & self.units[unit], youngest_mark, 0)),
                completed_next.eq(Mux(completes, Cat(1, marks_completed), marks_completed)),
                unit_blocks[unit].eq(oldest_tag.awaits[unit] & ~marks_completed[0]),
            ]
            m.d.sync += marks_held.eq(Mux(self.retire[unit], marks_next[1:], marks_next))
            m.d.sync += marks_completed.eq(completed_next)
            with m.If(self.enters & oldest_tag.awaits[unit]):
                m.d.sync += marks_completed.eq(Mux(completes, marks_completed, marks_completed[1:]))
        promised(m, platform, ~(self.push & self.full), "a tag for a full queue")
        return m
