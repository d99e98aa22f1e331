# SPDX-License-Identifier: Apache-2.0
"""Interlocks: nobody touches what an older instruction still holds, and nobody waits for ever."""

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.arch.isa import TAGS_WAITING
from systola.arch.isa import Unit as Units
from systola.hdl.control.list_scan import ListScan
from systola.hdl.control.tag_queue import TagQueue
from systola.hdl.parts.in_flight import InFlight, Region
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
"""Bits of an address: they are only compared, and three tell below, at, inside and above apart."""
DEPTH = 3


def contains(region: data.View, address: Value) -> Value:
    return (region.base <= address) & (address < region.end)


class InterlockHarness(Harness):
    """One item with its mask among others, and regions that do what those of a list may do.

    Of the list only this is assumed: what the chosen item does not wait for any more it never
    waits for again, as regions shrink and move down together with the masks.
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
        for port in (dut.input.payload, dut.masks, dut.regions, dut.retired):
            m.d.comb += port.eq(anything(m, len(port.as_value()), "value"))

        enters = dut.input.valid & dut.input.ready
        exits = dut.output.valid & dut.output.ready
        chosen = Tracked(m, enters=enters, word=dut.input.payload, exits=exits, most=4)
        word = data.View(item, chosen.word)
        oldest = chosen.follows & (chosen.ahead == 0)
        blocked = {}
        wanted = {}
        for name, address in (("first", word.address), ("second", word.other)):
            mask = wanted[name] = Signal(DEPTH, name=f"wanted_{name}")
            retired = dut.retired[name]
            m.d.sync += mask.eq(Mux(chosen.chosen, dut.masks[name], mask) >> retired)
            held = Signal(DEPTH, name=f"held_{name}")
            free = Signal(DEPTH, name=f"free_{name}")
            entries = dut.regions[name]
            m.d.comb += held.eq(Cat(contains(entries[i], address) for i in range(DEPTH)))
            m.d.sync += free.eq(~held >> retired)
            blocked[name] = (mask & held).any() & word.used
            known = before(m, chosen.follows, f"known_{name}")
            m.d.comb += Assume(implies(known, (mask & held & free) == 0))
        clear = ~(blocked["first"] | blocked["second"])

        assert_stays(m, dut.output.valid, dut.output.ready, dut.output.payload, "output")
        m.d.comb += [
            # Safe: what is offered waits for nobody.
            Assert(implies(oldest & dut.output.valid, clear)),
            Assert(implies(oldest & dut.output.valid, dut.output.payload == word)),
            Assert(implies(oldest & dut.oldest_valid, dut.oldest == word)),
        ]
        # Alive: three cycles after it has become clear and the oldest, an item is offered.
        ready = oldest & clear
        for cycle in range(3):
            ready = before(m, ready, f"ready_{cycle}") & oldest
        m.d.comb += Assert(implies(ready, dut.output.valid))

        # Where the items are: an item that has to wait changes places with its follower.
        changed = unit.inside("changed")
        valids = {name: unit.inside(f"{name}_valid") for name in ("judged", "compared", "arrived")}
        ahead = {
            "judged": changed,
            "compared": valids["judged"] & ~changed,
            "arrived": valids["judged"] + valids["compared"],
        }
        slot = data.StructLayout({"item": item, "masks": dut.masks.shape()})
        m.d.comb += self.lemmas(
            implies(changed, valids["compared"]),
            sum(valids.values()) == chosen.count,
        )
        for name, valid in valids.items():
            content = data.View(slot, unit.inside(name))
            here = chosen.follows & valid & (chosen.ahead == ahead[name])
            m.d.comb += self.lemmas(
                implies(here, content.item == word),
                *(implies(here, content.masks[name] == wanted[name]) for name in self.LISTS),
            )


class InFlightHarness(Harness):
    """Any one entry: it stands where its place in the order is, and its region shrinks as told."""

    def claims(self, m: Module) -> None:
        entry = data.StructLayout({"region": Region(ADDRESS), "name": 2})
        dut = InFlight(entry=entry, depth=DEPTH, advancing="region")
        Unit(m, dut)
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            dut.pushed.eq(anything(m, entry.size, "pushed")),
            dut.retire.eq(anything(m, 1, "retire")),
            dut.advance.eq(anything(m, 1, "advance")),
            dut.advance_to.eq(anything(m, ADDRESS, "advance_to")),
            Assume(~(dut.push & dut.full)),
        ]
        chosen = Tracked(m, enters=dut.push, word=dut.pushed, exits=dut.retire, most=DEPTH)
        m.d.comb += Assume(implies(dut.retire, chosen.count != 0))
        word = data.View(entry, chosen.word)
        base = Signal(ADDRESS)
        with m.If(chosen.chosen):
            m.d.sync += base.eq(dut.pushed.region.base)
        with m.Elif(dut.advance & (chosen.ahead == 0)):
            m.d.sync += base.eq(dut.advance_to)
        here = dut.entries[chosen.ahead]
        m.d.comb += [
            Assert(Cat(chosen.count > i for i in range(DEPTH)) == dut.valid),
            Assert(dut.full == (chosen.count == DEPTH)),
            Assert(implies(chosen.follows, here.region.base == base)),
            Assert(implies(chosen.follows, here.region.end == word.region.end)),
            Assert(implies(chosen.follows, here.name == word.name)),
        ]


class ListScanHarness(Harness):
    """Any one entry of a list that comes and goes: once the scan is complete, the mask has its bit
    if it is in the way, whether that shows in the entry or in what lies beside it."""

    def claims(self, m: Module) -> None:
        entry = data.StructLayout({"blocks": 1})
        entries = InFlight(entry=entry, depth=DEPTH)
        dut = ListScan(entry=entry, depth=DEPTH, masks=("list", "beside"), beside=entry)
        Unit(m, entries, "entries")
        unit = Unit(m, dut)
        m.d.comb += [
            entries.push.eq(anything(m, 1, "push")),
            Assume(~(entries.push & entries.full)),
            entries.pushed.eq(anything(m, 1, "pushed")),
            entries.retire.eq(anything(m, 1, "retire")),
            dut.valid.eq(entries.valid),
            dut.entries.eq(entries.entries),
            dut.push.eq(entries.push),
            dut.pushed_beside.eq(anything(m, 1, "pushed_beside")),
            dut.retire.eq(entries.retire),
            dut.restart.eq(entries.push | anything(m, 1, "restart")),
        ]
        m.d.sync += [
            dut.conflicts["list"].eq(dut.entry.blocks),
            dut.conflicts["beside"].eq(dut.beside.blocks),
        ]
        both = Cat(entries.pushed, dut.pushed_beside)
        chosen = Tracked(m, enters=entries.push, word=both, exits=entries.retire, most=DEPTH)
        m.d.comb += Assume(implies(entries.retire, chosen.count != 0))
        place = Signal(range(DEPTH + 1))
        m.d.comb += place.eq(chosen.ahead)
        # The next instruction may come in the cycle behind `complete`.
        known = chosen.follows & dut.complete & ~dut.restart
        for cycle in range(2):
            known = before(m, known, f"known_{cycle}") & chosen.follows
        for i, name in enumerate(("list", "beside")):
            bit = dut.masks[name].bit_select(place[:2], 1)
            m.d.comb += Assert(implies(known, bit == chosen.word[i]))
        # Alive: without a restart a list is gone through in as many cycles as it has entries.
        alone = ~dut.restart & ~entries.push
        steady = alone
        for cycle in range(DEPTH):
            steady = before(m, steady, f"steady_{cycle}") & alone
        m.d.comb += Assert(implies(steady, dut.complete))

        shown = unit.inside("shown")
        compared, judged = unit.inside("compared"), unit.inside("judged")
        steady = ~unit.inside("restarted")
        position, at = unit.inside("position"), unit.inside("at")
        oldest, free = unit.inside("oldest"), unit.inside("free")
        rows = Array(unit.rows("memory", DEPTH))
        turned = Signal(range(2 * DEPTH))
        m.d.comb += turned.eq(oldest + place)
        seen = chosen.follows & shown.bit_select(place[:2], 1)
        some = chosen.count != 0
        is_compared = chosen.follows & compared.bit_select(place[:2], 1)
        is_judged = chosen.follows & judged.bit_select(place[:2], 1)
        m.d.comb += self.lemmas(
            Cat(chosen.count > i for i in range(DEPTH)) == entries.valid,
            implies(chosen.follows, entries.entries[chosen.ahead].blocks == chosen.word[0]),
            (oldest < DEPTH) & (free < DEPTH) & (at < DEPTH),
            (oldest + chosen.count) % DEPTH == free,
            implies(some, (oldest + position) % DEPTH == at),
            implies(chosen.follows, rows[turned % DEPTH] == chosen.word[1]),
            implies(some, Cat(position > i for i in range(DEPTH)) == shown),
            implies(some, position <= chosen.count),
            implies(some, dut.complete == (entries.valid == shown)),
            (shown & ~entries.valid) == 0,
            (compared == 0) | ((compared << 1) == (shown + 1)),
            implies(steady, (judged == 0) | ((judged << 1) == ((shown & ~compared) + 1))),
            implies(is_compared, dut.entry.blocks == chosen.word[0]),
            implies(is_compared, dut.beside.blocks == chosen.word[1]),
            implies(is_judged, dut.conflicts["list"] == chosen.word[0]),
            implies(is_judged, dut.conflicts["beside"] == chosen.word[1]),
        )
        for i, name in enumerate(("list", "beside")):
            found = unit.inside(f"{name}_found")
            bit = found.bit_select(place[:2], 1)
            known = steady & seen & ~is_compared & ~is_judged
            m.d.comb += self.lemmas(
                implies(known, bit == chosen.word[i]),
                implies(steady, (found & (compared | judged | ~shown)) == 0),
            )


class TagQueueHarness(Harness):
    """Any one tag: it enters the trace in the first cycle in which no older tag is left and each of
    its units has completed what it had under way when the tag came.

    Two units do, as each has registers of its own that know nothing of the others.
    """

    def claims(self, m: Module) -> None:
        dut = TagQueue(depth=DEPTH)
        Unit(m, dut)
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            Assume(~(dut.push & dut.full)),
            dut.tag.eq(anything(m, 2, "tag")),  # nobody looks at it
            dut.units.eq(anything(m, len(Units), "units")),
            dut.retire.eq(anything(m, len(Units), "retire")),
            dut.hold.eq(anything(m, 1, "hold")),
        ]
        due = []
        issues = anything(m, len(Units), "issues")
        m.d.comb += [
            Assume(~(dut.push & issues.any())),  # one instruction a cycle
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
        waits = Cat(due).any()
        first = item.follows & (item.ahead == 0)
        m.d.comb += [
            Assert(implies(first, dut.enters == ~(waits | dut.hold))),
            Assert(implies(first & dut.enters, dut.entering == item.word)),
            Assert(implies(item.count == 0, ~dut.enters)),
            Assert(dut.full == (item.count == TAGS_WAITING)),
            Assert(dut.one_at_most == (item.count <= 1)),
        ]


PROOFS = (
    Proof(
        unit="interlock",
        claim="items pass once, in order, never while blocked, and three cycles later at most",
        harness=InterlockHarness,
        depth=5,
        faults=(
            Fault(
                unit="interlock",
                old="kept[n].eq(masks.masks[n] >> self.retired[n])",
                new="kept[n].eq(masks.masks[n])",
            ),
            Fault(
                unit="interlock",
                old="((exchange[1] | proceeds) & compared_valid)",
                new="compared_valid",
            ),
            Fault(
                unit="in_flight",
                old="~(address - region.base)[-1] & (address - region.end)[-1]",
                new="(region.base - address)[-1] & (address - region.end)[-1]",
            ),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="in_flight",
        claim="entries stand in order from place 0; the oldest region shrinks; none is lost",
        harness=InFlightHarness,
        depth=3,
        faults=(
            Fault(
                unit="in_flight",
                old="behind | Mux(self.push, valid, 0)",
                new="behind | Mux(self.push, before, 0)",
            ),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="list_scan",
        claim="a complete mask names an entry exactly if it is in the way; it is soon complete",
        harness=ListScanHarness,
        depth=4,
        faults=(
            Fault(
                unit="list_scan",
                old="judged.eq(compared >> self.retire)",
                new="judged.eq(compared)",
            ),
            Fault(
                unit="list_scan",
                old="at.eq(next_oldest)",
                new="at.eq(oldest)",
            ),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="tag_queue",
        claim="tags enter once, in order, as soon as nothing that they wait for is left",
        harness=TagQueueHarness,
        depth=9,
        bounded=True,
        faults=(
            Fault(unit="tag_queue", old="(last & ~marks).any()", new="last.any()"),
            Fault(
                unit="tag_queue",
                old="completes = self.retire[unit] & marked[0]",
                new="completes = self.retire[unit] & marks[0]",
            ),
        ),
        fault_depth=8,
    ),
)
