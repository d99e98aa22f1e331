# SPDX-License-Identifier: Apache-2.0
"""Proofs of interlocks: no use of anything that an older instruction holds, and no endless wait.

A mask names the entry of a list that an instruction awaits. An entry rises if its region begins at
or after the end of the region before it. A run has successive entries that rise. So when the oldest
entry of a run has passed an address, no entry of the run needs it.
"""

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from systola.arch.isa import TAGS_WAITING
from systola.arch.isa import Unit as Units
from systola.hdl.control.list_scan import ListScan
from systola.hdl.control.tag_queue import TagQueue
from systola.hdl.parts.in_flight import Awaited, InFlight, Region, holds
from systola.hdl.parts.interlock import Check, Interlock
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assert_stays,
    before,
    implies,
)
from systola.verif.formal.proof import Fault, Proof

ADDRESS = 3
"""The number of bits of an address in the proofs.

Addresses are only compared, and three bits are enough to tell below, at, inside and above a region.
"""
DEPTH = 3


def blocks(awaited: data.View, progress: data.View, address: Value) -> Value:
    """Return whether a use of `address` must wait for the entry that mask `awaited` names.

    The use waits while the entry is pending, unless the oldest entry of the mask's run has passed
    the address.
    """
    ahead = (awaited.place - progress.place)[: len(awaited.place)]
    return awaited.pending & ~((address < progress.reached) & (ahead <= awaited.run))


class InterlockHarness(Harness):
    """A proof harness for the interlock, which follows one item with its masks among others.

    The lists behave in any allowed way. Only this is assumed about a list: once the chosen item no
    longer waits for an entry, it never waits for that entry again.
    """

    LISTS = ("first", "second")

    def claims(self, m: Module) -> None:
        item = data.StructLayout({"address": ADDRESS, "other": ADDRESS, "used": 1, "name": 2})
        checks = [
            Check(watched="first", address="address", used="used"),
            Check(watched="second", address="other", used="used"),
        ]
        widths = dict.fromkeys(self.LISTS, ADDRESS)
        dut = Interlock(item=item, checks=checks, depth=DEPTH, widths=widths)
        unit = Unit(m, dut)
        for port in (dut.input.valid, dut.output.ready):
            m.d.comb += port.eq(anything(m, 1, "handshake"))
        for port in (dut.input.payload, dut.awaited, dut.progress):
            m.d.comb += port.eq(anything(m, len(port.as_value()), "value"))

        enters = dut.input.valid & dut.input.ready
        exits = dut.output.valid & dut.output.ready
        chosen = Tracked(m, enters=enters, word=dut.input.payload, exits=exits, most=3)
        word = data.View(item, chosen.word)
        oldest = chosen.follows & (chosen.ahead == 0)
        wanted = {}
        blocked = []
        for name, address in (("first", word.address), ("second", word.other)):
            progress = dut.progress[name]
            mask = wanted[name] = Signal(Awaited(DEPTH), name=f"wanted_{name}")
            now = Signal(Awaited(DEPTH), name=f"now_{name}")
            leaves = progress.retires & (now.place == progress.place)
            m.d.comb += now.eq(Mux(chosen.chosen, dut.awaited[name], mask))
            m.d.sync += mask.eq(Cat(now.pending & ~leaves, now.place, now.run))
            held = Signal(name=f"held_{name}")
            m.d.comb += held.eq(blocks(mask, progress, address) & word.used)
            free = before(m, chosen.follows & ~held, f"free_{name}")
            m.d.comb += Assume(implies(free & chosen.follows, ~held))
            blocked.append(held)
        clear = ~Cat(blocked).any()

        assert_stays(m, dut.output.valid, dut.output.ready, dut.output.payload, "output")
        ready = oldest & clear
        for cycle in range(2):
            ready = before(m, ready, f"ready_{cycle}") & oldest
        m.d.comb += [
            # The interlock is safe: an item that it offers waits for nothing.
            Assert(implies(oldest & dut.output.valid, clear)),
            Assert(implies(oldest & dut.output.valid, dut.output.payload == word)),
            Assert(implies(oldest & dut.oldest_valid, dut.oldest == word)),
            # The interlock is alive: it offers an item that is the oldest, and has nothing to wait
            # for, two cycles later.
            Assert(implies(ready, dut.output.valid)),
        ]

        stopped, free = unit.inside("blocked"), unit.inside("arrived_free")
        looks = unit.inside("looks_again")
        valids = {name: unit.inside(f"{name}_valid") for name in ("judged", "compared", "arrived")}
        ahead = {
            "judged": 0,
            "compared": valids["judged"],
            "arrived": valids["judged"] + valids["compared"],
        }
        slot = data.StructLayout({"item": item, "masks": dut.awaited.shape()})
        m.d.comb += self.lemmas(
            sum(valids.values()) == chosen.count,
            free == ~valids["arrived"],
            implies(stopped, valids["judged"]),
            implies(looks, stopped),
            implies(valids["arrived"], valids["compared"] & valids["judged"]),
            implies(oldest & valids["judged"] & ~stopped, clear),
        )
        for name, valid in valids.items():
            content = data.View(slot, unit.inside(name))
            here = chosen.follows & valid & (chosen.ahead == ahead[name])
            m.d.comb += self.lemmas(
                implies(here, content.item == word),
                *(implies(here, content.masks[name] == wanted[name]) for name in self.LISTS),
            )


class InFlightHarness(Harness):
    """A proof harness for a list of instructions under way, which follows any entry.

    The harness also follows the later entries of the same run. A mask that names the entry, or the
    last of the later entries, protects all addresses that the entry needs.
    """

    def claims(self, m: Module) -> None:
        places = 1 << ceil_log2(DEPTH)
        dut = InFlight(width=ADDRESS, depth=DEPTH)
        unit = Unit(m, dut)
        pushed = anything(m, Region(ADDRESS), "pushed")
        last_end = Signal(ADDRESS)
        ends = Array([Signal(ADDRESS, name=f"end_{i}") for i in range(places)])
        rises = pushed.base >= last_end
        rises_then = before(m, rises, "rises")
        pushed_before = before(m, dut.push, "pushed_before")
        fresh = pushed_before | before(m, pushed_before, "pushed_earlier")
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            dut.rises.eq(before(m, rises_then, "settled")),
            dut.retire.eq(anything(m, 1, "retire")),
            dut.advance.eq(anything(m, 1, "advance")),
            dut.advance_to.eq(anything(m, ADDRESS, "advance_to")),
            Assume(~(dut.push & dut.full)),
            Assume(~(dut.push & pushed_before)),
            Assume(pushed.base <= pushed.end),
        ]
        chosen = Tracked(m, enters=dut.push, word=pushed, exits=dut.retire, most=DEPTH)
        some = chosen.count != 0
        m.d.comb += [
            Assume(implies(dut.retire | dut.advance, some)),
            # An entry neither advances nor leaves in the first two cycles after its push.
            Assume(implies((dut.retire | dut.advance) & fresh, chosen.count != 1)),
            Assume(implies(dut.advance, dut.advance_to <= ends[dut.progress.place])),
        ]
        with m.If(dut.push):
            m.d.sync += [last_end.eq(pushed.end), ends[dut.free].eq(pushed.end)]
        run = Signal(range(places))  # length of the run of the youngest pushed entry
        with m.If(dut.push):
            m.d.sync += run.eq(Mux(rises & (run != places - 1), run + 1, Mux(rises, run, 0)))

        needs = Signal(ADDRESS)  # the first address that the chosen entry still needs
        place = Signal(ceil_log2(DEPTH))
        before_it = Signal(range(places))  # length of the run that ends with the chosen entry
        later = Signal(range(places))  # number of later entries that continue its run
        unbroken = Signal()
        with m.If(chosen.chosen):
            m.d.sync += [
                needs.eq(pushed.base),
                place.eq(dut.free),
                before_it.eq(Mux(rises & (run != places - 1), run + 1, Mux(rises, run, 0))),
                later.eq(0),
                unbroken.eq(1),
            ]
        with m.Else():
            with m.If(dut.advance & (chosen.ahead == 0)):
                m.d.sync += needs.eq(dut.advance_to)
            with m.If(dut.push):
                m.d.sync += [unbroken.eq(unbroken & rises), later.eq(later + (unbroken & rises))]
        mask = Signal(Awaited(DEPTH))
        longer = anything(m, ceil_log2(DEPTH), "longer")
        address = anything(m, ADDRESS, "address")
        count = chosen.count
        # No item waits for the chosen entry before the list knows it.
        followed = before(m, chosen.follows, "followed")
        known = chosen.follows & followed & before(m, followed, "followed_before")
        m.d.comb += [
            mask.pending.eq(1),
            mask.place.eq(place + later),
            mask.run.eq(later + longer),
            Assume((longer <= before_it) & (later + longer < places)),
            Assert(dut.valid == Cat(count > i for i in range(DEPTH))),
            Assert(dut.full == (count == DEPTH)),
            Assert(dut.empties == (count == dut.retire)),
            Assert(dut.free == (dut.progress.place + count)[: len(dut.free)]),
            Assert(implies(chosen.follows, place == (dut.progress.place + chosen.ahead)[:2])),
            Assert(
                implies(
                    known & ~holds(mask, dut.progress, address < dut.progress.reached),
                    address < needs,
                )
            ),
            # Chaining works: addresses that the oldest entry has passed are free.
            Assert(
                implies(
                    chosen.follows & (chosen.ahead == 0) & (address < dut.progress.reached),
                    ~holds(mask, dut.progress, address < dut.progress.reached),
                )
            ),
        ]
        advanced = before(m, dut.advance & ~dut.retire, "advanced")
        m.d.comb += Assert(
            implies(advanced, dut.progress.reached == before(m, dut.advance_to, "advanced_to"))
        )

        # An entry that rises ends at or after the end of the entry before. So addresses that the
        # oldest entry has passed are below all addresses that later entries of its run need.
        risen = Array([Signal(name=f"risen_{i}") for i in range(places)])
        with m.If(dut.push):
            m.d.sync += risen[dut.free].eq(rises)
        oldest, reached = dut.progress.place, dut.progress.reached

        def after(first: Value, steps: int) -> Value:
            return (first + steps)[: len(dut.free)]

        youngest = after(dut.free, -1)
        first_fresh = (count == 0) | (fresh & (youngest == oldest))
        flags = unit.inside("rises")
        m.d.comb += self.lemmas(
            last_end == ends[youngest],
            implies(pushed_before, rises_then == risen[youngest]),
            implies(fresh & ~pushed_before, dut.rises == risen[youngest]),
            *(
                implies(
                    count > i,
                    flags.bit_select(after(oldest, i), 1)
                    == (risen[after(oldest, i)] | (fresh & (after(oldest, i) == youngest))),
                )
                for i in range(DEPTH)
            ),
            *(
                implies(
                    (count > i) & risen[after(oldest, i)],
                    ends[after(oldest, i - 1)] <= ends[after(oldest, i)],
                )
                for i in range(DEPTH)
            ),
            reached <= Mux(first_fresh, ends[after(oldest, -1)], ends[oldest]),
            *(implies(run > i, risen[after(dut.free, -1 - i)]) for i in range(places - 1)),
            implies(chosen.follows, known == ~(fresh & (place == youngest))),
            implies(chosen.follows, chosen.ahead + later < count),
            implies(chosen.follows & (before_it >= 1), risen[place]),
            implies(
                chosen.follows & (before_it >= 2) & (chosen.ahead != 0), risen[after(place, -1)]
            ),
            implies(
                chosen.follows & risen[place] & ((chosen.ahead != 0) | first_fresh),
                ends[after(place, -1)] <= needs,
            ),
            implies(chosen.follows & (chosen.ahead == 0) & ~first_fresh, reached <= needs),
        )


class ListScanHarness(Harness):
    """A proof harness for the scan of lists of older instructions, which follows any entry.

    Instructions enter and leave two lists. If the entry is in the way when the scan is complete,
    the mask of its list names this entry or a younger entry. The mask names only entries that are
    in the way. The run of the mask has only entries that rise.
    """

    LISTS = ("first", "second")

    def claims(self, m: Module) -> None:
        entry = data.StructLayout({"walked": Region(1), "blocks": 1})
        lists = {name: InFlight(width=1, depth=DEPTH) for name in self.LISTS}
        masks = {f"by_{name}": name for name in self.LISTS}
        dut = ListScan(entry=entry, depth=DEPTH, lists=self.LISTS, masks=masks, walked="walked")
        Unit(m, dut)
        pushed = anything(m, entry, "pushed")
        pushes = anything(m, len(self.LISTS), "pushes")
        m.d.comb += [
            Assume((pushes & (pushes - 1)) == 0),
            dut.pushed.eq(pushed),
            dut.watched.eq(-1),
            dut.restart.eq(pushes.any() | anything(m, 1, "restart")),
        ]
        # An instruction is pushed only after its comparison with all entries is complete.
        fresh = before(m, dut.restart, "fresh", init=1)
        m.d.comb += Assume(implies(pushes.any(), fresh | dut.complete))
        m.d.comb += Assume(implies(pushes.any(), ~fresh))
        for i, (name, each) in enumerate(lists.items()):
            Unit(m, each, name)
            pushed_before = before(m, pushes[i], f"{name}_pushed")
            fresh_one = pushed_before | before(m, pushed_before, f"{name}_pushed_earlier")
            m.d.comb += [
                each.push.eq(pushes[i]),
                Assume(~(each.push & each.full)),
                each.rises.eq(dut.rises),
                each.retire.eq(anything(m, 1, "retire")),
                Assume(implies(each.retire, each.valid[0])),
                Assume(implies(each.retire & fresh_one, each.valid[1])),
                dut.push[name].eq(each.push),
                dut.free[name].eq(each.free),
                dut.oldest[name].eq(each.progress.place),
                dut.valid[name].eq(each.valid),
                dut.rising[name].eq(each.rising),
                dut.retire[name].eq(each.retire),
            ]
            m.d.sync += dut.conflicts[f"by_{name}"].eq(dut.entry.blocks)
        rises = Signal()
        for i, name in enumerate(self.LISTS):
            youngest = Signal(Region(1), name=f"youngest_of_{name}")
            with m.If(pushes[i]):
                # A region that comes after an empty region does not rise.
                m.d.comb += rises.eq(
                    (pushed.walked.base >= youngest.end) & (youngest.base != youngest.end)
                )
                m.d.sync += youngest.eq(pushed.walked)
        pushed_before = before(m, before(m, pushes.any(), "pushed_then"), "pushed_before")
        rises_before = before(m, before(m, rises, "rises_then"), "rises_before")
        m.d.comb += Assert(implies(pushed_before, dut.rises == rises_before))
        first = lists["second"]
        chosen = Tracked(
            m,
            enters=first.push,
            word=Cat(pushed.blocks, rises),
            exits=first.retire,
            most=DEPTH,
        )
        known = before(m, dut.complete & ~dut.restart & ~fresh, "through")
        known = before(m, known & ~dut.restart, "known") & ~dut.restart
        mask = dut.masks["by_second"]
        ahead = (mask.place - first.progress.place)[:2]
        chosen_blocks, chosen_rises = chosen.word[0], chosen.word[1]
        in_run = (chosen.ahead <= ahead) & (chosen.ahead + mask.run > ahead)
        m.d.comb += [
            Assert(
                implies(
                    known & chosen.follows & chosen_blocks,
                    mask.pending & (ahead >= chosen.ahead),
                )
            ),
            Assert(implies(known & mask.pending, ahead < chosen.count)),
            Assert(
                implies(
                    known & chosen.follows & mask.pending & (ahead == chosen.ahead), chosen_blocks
                )
            ),
            Assert(implies(known & chosen.follows & mask.pending & in_run, chosen_rises)),
        ]
        # The scan is alive: without a restart it compares one place a cycle, until it is complete.
        alone = ~dut.restart
        steady = alone
        for cycle in range(2 * (1 << ceil_log2(DEPTH)) + 1):
            steady = before(m, steady, f"steady_{cycle}") & alone
        m.d.comb += Assert(implies(steady, dut.complete))


class TagQueueHarness(Harness):
    """A proof harness for the queue of tags, which follows any tag into the trace.

    The tag enters in the first cycle in which no older tag is left and each of its units is done. A
    unit is done when it has completed the work that was under way when the tag came. Two units
    suffice, since each has registers of its own that are independent of the others.
    """

    def claims(self, m: Module) -> None:
        dut = TagQueue(depth=DEPTH)
        unit = Unit(m, dut)
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            Assume(~(dut.push & dut.full)),
            dut.tag.eq(anything(m, 2, "tag")),  # tag with a free value, which no unit reads
            dut.units.eq(anything(m, len(Units), "units")),
            dut.retire.eq(anything(m, len(Units), "retire")),
            dut.hold.eq(anything(m, 1, "hold")),
        ]
        due: list[Value] = []
        lefts: list[Signal] = []
        counts: list[Signal] = []
        issues = anything(m, len(Units), "issues")
        m.d.comb += [
            Assume(~(dut.push & issues.any())),  # at most one instruction comes in a cycle
            Assume((issues[2:] == 0) & (dut.units[2:] == 0)),
        ]
        item = Tracked(
            m,
            enters=dut.push,
            word=dut.tag,
            exits=dut.enters,
            most=TAGS_WAITING,
        )
        for i in range(len(Units)):
            count = Signal(range(DEPTH + 1), name=f"count_{i}")
            left = Signal(range(DEPTH + 1), name=f"left_{i}")
            retire = dut.retire[i]
            m.d.comb += [
                Assume(implies(issues[i], count != DEPTH)),
                Assume(implies(retire, count != 0)),
                dut.under_way[i].eq(Cat(count > k for k in range(DEPTH))),
            ]
            m.d.sync += count.eq(count + issues[i] - retire)
            with m.If(item.chosen):
                m.d.sync += left.eq(Mux(dut.units[i], count - retire, 0))
            with m.Elif(retire & (left != 0)):
                m.d.sync += left.eq(left - 1)
            due.append(left != 0)
            lefts.append(left)
            counts.append(count)
        waits = Cat(due).any()
        first = item.follows & (item.ahead == 0)
        m.d.comb += [
            Assert(implies(first, dut.enters == ~(waits | dut.hold))),
            Assert(implies(first & dut.enters, dut.entering == item.word)),
            Assert(implies(item.count == 0, ~dut.enters)),
            Assert(dut.full == (item.count == TAGS_WAITING)),
            Assert(dut.one_at_most == (item.count <= 1)),
        ]
        self._state(m, unit, dut, item, counts, lefts)

    def _state(
        self,
        m: Module,
        unit: Unit,
        dut: TagQueue,
        item: Tracked,
        counts: list[Signal],
        lefts: list[Signal],
    ) -> None:
        """Add the lemmas: the oldest tag is in a register, later tags in a ring; each bit has a
        mark.

        A bit of a tag stands for a unit to wait for. A mark is held at the unit's last instruction
        under way, until this instruction completes.
        """
        present, waiting = unit.inside("tag_present"), unit.inside("waiting")
        read, write = unit.inside("behind.read_place"), unit.inside("behind.write_place")
        entry = data.StructLayout({"tag": len(dut.tag), "awaits": len(Units)})
        rows = Array(unit.rows("behind.memory", TAGS_WAITING))
        # The tags from the oldest on: the register, then the ring.
        tags: list[data.View] = []
        for number in range(TAGS_WAITING):
            tag = Signal(entry, name=f"tag_{number}")
            held = rows[(read + number - 1)[:3]] if number else unit.inside("oldest_tag")
            m.d.comb += tag.as_value().eq(Mux(item.count > number, Value.cast(held), 0))
            tags.append(tag)
        m.d.comb += self.lemmas(
            present == (item.count != 0),
            waiting == Cat(item.count > 1 + i for i in range(TAGS_WAITING - 1)),
            write == (read + item.count - present)[: len(write)],
            implies(item.follows, Array(tag.tag for tag in tags)[item.ahead] == item.word),
        )
        for i, (count, left) in enumerate(zip(counts, lefts, strict=False)):
            held, complete = unit.inside(f"marks_held_{i}"), unit.inside(f"marks_completed_{i}")
            bits = [tag.awaits[i] for tag in tags]
            # `needed` counts the marks of the tags up to the chosen tag, `done` the completed
            # marks, `marks` the held ones.
            needed = Signal(range(TAGS_WAITING + 1), name=f"needed_{i}")
            done, marks = (
                Signal(range(TAGS_WAITING + 1), name=f"{n}_{i}") for n in ("done", "marks")
            )
            m.d.comb += [
                needed.eq(sum(bit & (item.ahead >= n) for n, bit in enumerate(bits))),
                done.eq(sum(complete[n] for n in range(TAGS_WAITING))),
                marks.eq(sum(held[n] for n in range(DEPTH))),
            ]
            before_it = [sum((held[k] for k in range(n)), Value.cast(0)) for n in range(DEPTH)]
            # number of instructions that must complete until the chosen tag's mark is complete
            until = Signal(range(DEPTH + 1), name=f"until_{i}")
            for n in range(DEPTH):
                with m.If(held[n] & (before_it[n] + done + 1 == needed)):
                    m.d.comb += until.eq(n + 1)
            m.d.comb += self.lemmas(
                complete == Cat(done > n for n in range(TAGS_WAITING)),
                marks + done == sum(bits),
                (held & ~Cat(count > n for n in range(DEPTH))) == 0,
                implies(item.follows, left <= count),
                implies(item.follows & (needed <= done), left == 0),
                implies(
                    item.follows & (needed > done),
                    (left == until) | ((left == 0) & ~Array(bits)[item.ahead]),
                ),
            )


PROOFS = (
    Proof(
        unit="interlock",
        claim="items pass once, in order, never while blocked, and two cycles later at most",
        harness=InterlockHarness,
        depth=4,
        faults=(
            Fault(
                unit="interlock",
                old='judged.masks.eq(Mux(judged_moves, masks["compared"], masks["judged"]))',
                new='judged.masks.eq(Mux(judged_moves, masks["compared"], judged.masks))',
            ),
            Fault(
                unit="interlock",
                old="looked_at.eq(Mux(looks_again, judged, compared))",
                new="looked_at.eq(compared)",
            ),
            Fault(unit="in_flight", old="(ahead <= awaited.run)", new="(ahead == 0)"),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="in_flight",
        claim="what an entry still needs nobody touches who waits for it or for one of its run",
        harness=InFlightHarness,
        depth=3,
        faults=(
            Fault(
                unit="in_flight",
                old="falls = settles & ~self.rises",
                new="falls = 0",
            ),
            Fault(
                unit="in_flight",
                old="~rises.bit_select((place + 1)",
                new="~rises.bit_select((place + 0)",
            ),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="list_scan",
        claim="a mask names the youngest entry in the way; it is soon complete",
        harness=ListScanHarness,
        depth=12,
        bounded=True,
        faults=(
            Fault(
                unit="list_scan",
                old="(self.retire[name] & (places_ahead == 0))",
                new="(self.retire[name] & 0)",
            ),
            Fault(
                unit="list_scan",
                old="goes_on = run_continues & self.rising[name].bit_select(judged_place, 1)",
                new="goes_on = run_continues",
            ),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="tag_queue",
        claim="tags enter once, in order, as soon as nothing that they wait for is left",
        harness=TagQueueHarness,
        depth=2,
        faults=(
            Fault(
                unit="tag_queue",
                old="(youngest_mark & ~marks_held).any()",
                new="youngest_mark.any()",
            ),
            Fault(
                unit="tag_queue",
                old="completes = self.retire[unit] & marks_next[0]",
                new="completes = self.retire[unit] & marks_held[0]",
            ),
        ),
        fault_depth=8,
    ),
)
