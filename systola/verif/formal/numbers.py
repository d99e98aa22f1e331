# SPDX-License-Identifier: Apache-2.0
"""Proofs of sequence numbers of instructions: they wrap around, and still name the right entry.

The entries of a list are numbered in order. A mask has the number of an entry to wait for. `Spans`
counts the issued instructions in spans of equal length. It holds back an issue before more
instructions are under way than the numbers can tell apart.
"""

from __future__ import annotations

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal, Value, signed

from systola.hdl.control.numbered_list import RING_BITS, NumberedList
from systola.hdl.control.spans import Spans
from systola.hdl.parts.sequence_number import (
    NUMBER_BITS,
    PLACE_BITS,
    SPAN,
    Numbered,
    distance,
    gone,
    waits,
)
from systola.verif.formal.harness import Harness, Unit, anything, before, implies
from systola.verif.formal.proof import Fault, Proof

DEPTH = 1 << PLACE_BITS
"""The largest number of entries of a list. The proofs use sequence numbers of full width."""
GHOST = 10
"""The number of bits of the counters that exist for the proof alone, and never wrap around."""


class NumbersHarness(Harness):
    """A proof harness that follows any instruction from its scan until it completes.

    At the scan, the instruction's mask names any entry of a list, or none. The mask counts as gone
    exactly when this entry has left the list, and its distance is right until then. So an address
    waits exactly while the entry is in the list, unless the oldest entry of the mask's run has got
    past the address. An issue is held back only while an instruction is under way.
    """

    COMPLETING = ("mine", "other")
    LENGTH = SPAN

    def claims(self, m: Module) -> None:
        self._m = m
        self._lists = {
            name: NumberedList(width=1, depth=DEPTH) for name in (*self.COMPLETING, "awaited")
        }
        self._spans = Spans(lists=self.COMPLETING, length=self.LENGTH)
        self._unit = Unit(m, self._spans, "spans")
        self._issue = anything(m, 1, "issue")
        self._counts = {name: Signal(RING_BITS, name=f"{name}_count") for name in self._lists}
        enters = {"mine": anything(m, 1, "is_mine"), "awaited": anything(m, 1, "is_awaited")}
        enters["other"] = ~enters["mine"]
        for name in self._lists:
            self._move(name, self._issue & enters[name])
        issued = before(m, self._issue, "issued")
        m.d.comb += [
            self._spans.issue.eq(self._issue),
            Assume(~(self._issue & (self._spans.holds | issued))),
            Assert(
                implies(self._spans.holds, Cat(self._lists[n].some for n in self.COMPLETING).any())
            ),
        ]
        self._since = Signal(GHOST, name="since")  # number of instructions issued since the scan
        self._choose(enters["mine"])
        self._bound_entries()
        self._bound_issues()

    def _move(self, name: str, push: Value) -> None:
        """Let the entries of a list come, advance and leave in any way that is allowed."""
        m, each = self._m, self._lists[name]
        Unit(m, each, name)
        m.d.comb += [
            each.push.eq(push),
            each.rises.eq(anything(m, 1, "rises")),
            each.retire.eq(anything(m, 1, "retire")),
            each.advance.eq(anything(m, 1, "advance")),
            each.advance_to.eq(anything(m, 1, "advance_to")),
            Assume(~(each.push & each.full)),
            Assume(~each.retire | each.some),
        ]
        count = self._counts[name]
        m.d.sync += count.eq(count + each.push - each.retire)
        m.d.comb += [
            Assert(each.some == (count != 0)),
            Assert(each.full == (count == DEPTH)),
            Assert(each.youngest == (each.progress.oldest + count - 1)[:RING_BITS]),
            *self.lemmas(count <= DEPTH),
        ]
        if name in self.COMPLETING:
            view = self._spans.lists[name]
            m.d.comb += [
                view.youngest.eq(each.youngest),
                view.oldest.eq(each.progress.oldest),
                view.some.eq(each.some),
                view.retires.eq(each.retire),
            ]

    def _choose(self, is_mine: Value) -> None:
        """Choose an instruction to follow, and make the claims about its mask.

        The instruction is scanned at any time, issued as the next one, and completes at any time.
        """
        m, awaited = self._m, self._lists["awaited"]
        self._scanned, self._follows = Signal(name="scanned"), Signal(name="follows")
        # number of entries in the list before the entry that the mask names; below 0 when it has
        # left
        self._left = Signal(signed(GHOST), name="left")
        # number of instructions before the chosen one in its list
        self._ahead = Signal(RING_BITS, name="ahead")
        self._in_mine = Signal(name="in_mine")
        self._scans, self._takes = Signal(name="scans"), Signal(name="takes")
        named, nothing = anything(m, RING_BITS, "named"), anything(m, 1, "nothing")
        first, passes = Signal(signed(GHOST)), Signal()
        mine, other = (self._lists[name].retire for name in self.COMPLETING)
        self._mask = mask = Signal(Numbered())
        m.d.comb += [
            self._scans.eq(
                ~self._scanned & ~self._follows & ~self._issue & anything(m, 1, "chooses")
            ),
            Assume(implies(self._scans, nothing | (named < self._counts["awaited"]))),
            self._takes.eq(self._scanned & self._issue),
            # A mask that names no entry has the number that is DEPTH below the oldest entry's.
            first.eq(Mux(nothing, -DEPTH, named)),
            passes.eq(self._follows & Mux(self._in_mine, mine, other)),
        ]
        m.d.sync += self._left.eq(Mux(self._scans, first, self._left) - awaited.retire)
        with m.If(self._scans):
            m.d.sync += [
                self._scanned.eq(1),
                mask.last.eq(awaited.progress.oldest + first),
                mask.run.eq(anything(m, PLACE_BITS, "run")),
            ]
        with m.If(self._takes):
            counts = [self._counts[name] - self._lists[name].retire for name in self.COMPLETING]
            m.d.sync += [
                self._scanned.eq(0),
                self._follows.eq(1),
                self._in_mine.eq(is_mine),
                self._ahead.eq(Mux(is_mine, *counts)),
            ]
        with m.Elif(passes):
            m.d.sync += [self._ahead.eq(self._ahead - 1), self._follows.eq(self._ahead != 0)]

        waiting = self._scanned | self._follows
        oldest, left, below = awaited.progress.oldest, self._left, anything(m, 1, "below")
        may_not = (left >= 0) & ~(below & (left <= mask.run))
        m.d.comb += [
            Assert(implies(waiting, gone(mask.last, oldest) == (left < 0))),
            Assert(implies(waiting & (left >= 0), distance(mask.last, oldest) == left)),
            Assert(implies(waiting, waits(mask, oldest, below) == may_not)),
        ]

    def _bound_entries(self) -> None:
        """Prove that entries that leave the list after the scan were in it then, or came later.

        So `_left` has a lower bound.
        """
        m, awaited = self._m, self._lists["awaited"]
        # number of entries pushed to the awaited list since the scan
        self._entered = entered = Signal(GHOST, name="entered")
        with m.If(self._scans):
            m.d.sync += entered.eq(0)
        with m.Else():
            m.d.sync += entered.eq(entered + awaited.push)
        count = self._counts["awaited"]
        m.d.comb += self.lemmas(
            self._idle
            | ((self._mask.last - awaited.progress.oldest - self._left)[:NUMBER_BITS] == 0),
            self._idle | (self._left < count.as_unsigned()),
            self._idle | (self._left + entered + 2 * DEPTH >= count),
            self._idle | (entered <= self._since),
        )

    @property
    def _idle(self) -> Value:
        return ~(self._scanned | self._follows)

    def _bound_issues(self) -> None:
        """Prove a bound on the number of instructions that have been issued since the scan."""
        m, unit, since = self._m, self._unit, self._since
        # `place` is the chosen instruction's place in its span, counted from 0.
        place = Signal(range(self.LENGTH), name="place")
        # number of spans that have ended since the issue of the chosen instruction
        ends = Signal(range(4), name="ends")
        position, ended = unit.inside("span_position"), unit.inside("span_ended")
        earlier = unit.inside("earlier_entries")
        is_last = position == self.LENGTH - 1
        with m.If(self._scans):
            m.d.sync += since.eq(0)
        with m.Elif(self._issue):
            m.d.sync += [since.eq(since + 1), ends.eq(ends + is_last)]
        with m.If(self._takes):
            m.d.sync += [place.eq(position), ends.eq(is_last)]
        # `since` also counts the chosen instruction.
        m.d.comb += Assert(implies(self._follows, since <= 2 * self.LENGTH - 1))
        marks = [unit.inside(f"{name}_mark") for name in self.COMPLETING]
        aheads: list[Value] = []
        for number, name in enumerate(self.COMPLETING):
            oldest = self._lists[name].progress.oldest
            ahead = (marks[number] - oldest[:RING_BITS])[:RING_BITS]
            aheads.append(ahead)
            m.d.comb += self.lemmas(implies(earlier[number], ahead < self._counts[name]))
        is_earlier = Mux(self._in_mine, earlier[0], earlier[1])
        marked = self._ahead <= Mux(self._in_mine, *aheads)
        here = Mux(self._in_mine, *(self._counts[name] for name in self.COMPLETING))
        follows = self._follows
        m.d.comb += self.lemmas(
            position < self.LENGTH,
            ~ended | (position == 0),
            ~self._scanned | (since == 0),
            ~self._scanned | ~follows,
            ~follows | (place < self.LENGTH),
            ~follows | (self._ahead < here),
            ~follows | (ends <= 1),
            ~follows | (since + place == Mux(ends[0], self.LENGTH, 0) + position),
            ~follows | (ends == 0) | ended | (is_earlier & marked),
            ~follows | (ends != 0) | ~ended,
        )


class SpansHarness(NumbersHarness):
    """A proof harness for sequence numbers with spans so short that a fault shows soon."""

    LENGTH = 4


PROOFS = (
    Proof(
        unit="sequence_number",
        claim="a number means its entry, and counts as gone when that has left, while it matters",
        harness=NumbersHarness,
        depth=2,
        faults=(
            Fault(
                unit="sequence_number",
                old="return distance(number, oldest)[PLACE_BITS:].any()",
                new="return distance(number, oldest)[PLACE_BITS - 1 :].any()",
            ),
            Fault(
                unit="sequence_number",
                old="(below & (ahead[:PLACE_BITS] <= mask.run))",
                new="(below & (ahead[:PLACE_BITS] < mask.run))",
            ),
        ),
        fault_depth=20,
    ),
    Proof(
        unit="spans",
        claim="of two spans at most are instructions under way; none is held while nothing is",
        harness=SpansHarness,
        depth=2,
        faults=(
            Fault(
                unit="spans",
                old="is_last & earlier_entries.any()",
                new="is_last & earlier_entries[0]",
            ),
            Fault(unit="spans", old="(view.oldest == span_end)", new="(view.oldest != span_end)"),
            Fault(unit="spans", old="& ~span_leaves", new="& 1"),
        ),
        fault_depth=30,
    ),
)
