# SPDX-License-Identifier: Apache-2.0
"""Proofs of links and barriers between cores.

Sent data have room, arrive in order, and never get stuck.
"""

from functools import reduce
from operator import add

from amaranth.hdl import Array, Assert, Assume, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.arch.config import Config
from systola.hdl.control.link_list import LinkList, list_places
from systola.hdl.link.link_fifo import LinkFifo
from systola.hdl.link.link_sender import LinkSender
from systola.hdl.link.link_watchdog import LinkWatchdog
from systola.hdl.link.pod_barrier import PodBarrier
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assume_stays,
    before,
    constant,
    implies,
)
from systola.verif.formal.proof import Fault, Proof
from systola.verif.formal.queues import place_behind

CONFIG = Config(
    name="links",
    rows=2,
    cols=2,
    columns_per_stage=2,
    buffer_lines=4,
    accumulator_rows=2,
    host_bus_bytes=4,
    weight_bus_bytes=4,
    links=True,
)
"""A machine on which a line takes one beat of a link, and a row of sums takes two."""
ROOM = CONFIG.link_beats


def total(values: list[Value]) -> Value:
    return reduce(add, values)


class LinkFifoHarness(Harness):
    """A proof harness for a link's FIFO, to which the neighbour sends only as its credits allow."""

    def claims(self, m: Module) -> None:
        dut = LinkFifo(config=CONFIG)
        unit = Unit(m, dut)
        word = anything(m, dut.beat.shape(), "beat")
        m.d.comb += [
            dut.valid.eq(anything(m, 1, "valid")),
            dut.beat.eq(word),
            dut.taken.ready.eq(anything(m, 1, "ready")),
        ]
        takes = dut.taken.valid & dut.taken.ready
        item = Tracked(m, enters=dut.valid, word=word, exits=takes, most=ROOM)
        m.d.comb += [
            Assume(implies(dut.valid, item.count != ROOM)),
            Assert(dut.taken.valid == (item.count != 0)),
            Assert(dut.credit == before(m, takes, "took")),
            Assert(
                implies(
                    item.follows & (item.ahead == 0),
                    Value.cast(dut.taken.payload) == item.word,
                )
            ),
        ]
        m.d.comb += self.lemmas(unit.inside("beat_count") == item.count)
        for name, part in (("sums", item.word[:1]), ("data", item.word[1:])):
            first, free = unit.inside(f"{name}.read_place"), unit.inside(f"{name}.write_place")
            rows = Array(unit.rows(f"{name}.memory", ROOM))
            place = place_behind(first, item.ahead, ROOM)[: len(first)]
            m.d.comb += self.lemmas(
                place_behind(first, item.count, ROOM)[: len(free)] == free,
                implies(item.follows, rows[place] == part),
            )


class LinkHarness(Harness):
    """A proof harness for a link: a sender, a register in each direction, and the neighbour's FIFO.

    Memories and receiver work at any pace. `inside` counts the beats of rows that were read and not
    yet taken by the receiver.
    """

    def claims(self, m: Module) -> None:
        sender, fifo = LinkSender(config=CONFIG), LinkFifo(config=CONFIG)
        unit, store = Unit(m, sender, "sender"), Unit(m, fifo, "fifo")
        row = anything(m, sender.cleared.payload.shape(), "row")
        m.d.comb += [
            sender.cleared.valid.eq(anything(m, 1, "cleared")),
            sender.cleared.payload.eq(row),
            sender.buffer.ready.eq(anything(m, 1, "buffer_ready")),
            sender.accumulators.ready.eq(anything(m, 1, "accumulators_ready")),
            sender.buffer.data.eq(anything(m, 16, "line")),
            sender.accumulators.data.eq(anything(m, 64, "sums")),
            fifo.taken.ready.eq(anything(m, 1, "ready")),
        ]
        assume_stays(m, sender.cleared.valid, sender.cleared.ready, row, "cleared")
        m.d.sync += [
            fifo.valid.eq(sender.valid),
            fifo.beat.eq(sender.beat),
            sender.credit.eq(fifo.credit),
        ]
        reads = sender.cleared.valid & sender.cleared.ready
        takes = fifo.taken.valid & fifo.taken.ready
        beats = Mux(row.sums, CONFIG.link_row_beats, CONFIG.link_line_beats)
        inside = Signal(range(ROOM + 4))
        m.d.sync += inside.eq(inside + Mux(reads, beats, 0) - takes)
        stored = Signal(range(ROOM + 2))
        m.d.sync += stored.eq(stored + fifo.valid - takes)
        quiet = inside == 0
        for cycle in range(2):
            quiet &= before(m, quiet, f"quiet_{cycle}", init=1)
        m.d.comb += [
            Assert(inside <= ROOM),
            Assert(stored <= ROOM),
            Assert(implies(takes, stored != 0)),
            Assert(implies(sender.buffer.enable, ~sender.accumulators.enable)),
            # No credit is lost: when all credits have had time to come back, a waiting row is read.
            Assert(
                implies(
                    sender.cleared.valid & quiet,
                    sender.buffer.enable | sender.accumulators.enable,
                )
            ),
        ]
        lines, sums = unit.inside("line_comes"), unit.inside("sums_come")
        left, space = unit.inside("beats_remaining"), unit.inside("gap_remaining")
        unsent = Signal(range(ROOM + 8))
        rows_coming = [bit * CONFIG.link_line_beats for bit in lines]
        rows_coming += [bit * CONFIG.link_row_beats for bit in sums]
        loads = lines[-1] | sums[-1]
        m.d.comb += unsent.eq(total(rows_coming) + left)
        m.d.comb += self.lemmas(
            implies(loads, (left <= 1) & ~(lines[-1] & sums[-1])),
            space <= unsent,
            store.inside("beat_count") == stored,
            inside == unsent + fifo.valid + stored,
            unit.inside("credits") + inside + fifo.credit + sender.credit == ROOM,
        )
        for name in ("sums", "data"):
            first, free = store.inside(f"{name}.read_place"), store.inside(f"{name}.write_place")
            m.d.comb += self.lemmas(place_behind(first, stored, ROOM)[: len(free)] == free)


class LinkOrderHarness(Harness):
    """A proof harness for the data that a link's sender sends.

    The beats of a row carry the data that the memory gave for this row, lowest bits first. No other
    beats are sent.
    """

    def claims(self, m: Module) -> None:
        dut = LinkSender(config=CONFIG)
        unit = Unit(m, dut)
        row = anything(m, dut.cleared.payload.shape(), "row")
        line, sums = anything(m, 16, "line"), anything(m, 64, "sums")
        m.d.comb += [
            dut.cleared.valid.eq(anything(m, 1, "cleared")),
            dut.cleared.payload.eq(row),
            dut.buffer.ready.eq(anything(m, 1, "buffer_ready")),
            dut.accumulators.ready.eq(anything(m, 1, "accumulators_ready")),
            dut.buffer.data.eq(line),
            dut.accumulators.data.eq(sums),
            dut.credit.eq(anything(m, 1, "credit")),
        ]
        assume_stays(m, dut.cleared.valid, dut.cleared.ready, row, "cleared")
        spent = Signal(range(ROOM + 4))
        reads = dut.cleared.valid & dut.cleared.ready
        beats = Mux(row.sums, CONFIG.link_row_beats, CONFIG.link_line_beats)
        m.d.sync += spent.eq(spent + Mux(reads, beats, 0) - dut.credit)
        m.d.comb += [Assume(implies(dut.credit, spent != 0)), Assert(spent <= ROOM)]
        m.d.comb += self.lemmas(unit.inside("credits") + spent == ROOM)

        def ago(value: Value, cycles: int, name: str) -> Value:
            for cycle in range(cycles):
                value = before(m, value, f"{name}_{cycle}")
            return value

        line_read = ago(dut.buffer.enable & dut.buffer.ready, 3, "line_read")
        sums_read = ago(dut.accumulators.enable & dut.accumulators.ready, 4, "sums_read")
        second = ago(sums_read, 1, "second")
        line_data, sums_data = ago(line, 1, "line_data"), ago(sums, 1, "sums_data")
        upper = ago(sums_data[32:], 1, "upper")
        m.d.comb += [
            Assert(dut.valid == (line_read | sums_read | second)),
            Assert(line_read + sums_read + second <= 1),
            Assert(implies(dut.valid, dut.beat.sums == ~line_read)),
            Assert(implies(line_read, dut.beat.data == line_data)),
            Assert(implies(sums_read, dut.beat.data == sums_data[:32])),
            Assert(implies(second, dut.beat.data == upper)),
        ]


class LinkListHarness(Harness):
    """A proof harness for a link's list, which follows one instruction among others.

    No instruction is pushed to a full list.
    """

    def claims(self, m: Module) -> None:
        dut = LinkList(config=CONFIG)
        unit = Unit(m, dut)
        places, most = list_places(CONFIG), CONFIG.queue_depth
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            dut.pushed.eq(anything(m, len(dut.pushed.as_value()), "pushed")),
            dut.advance.eq(anything(m, 1, "advance")),
            dut.advance_to.eq(anything(m, len(dut.advance_to), "advance_to")),
            dut.retire.eq(anything(m, 1, "retire")),
        ]
        item = Tracked(m, enters=dut.push, word=dut.pushed, exits=dut.retire, most=most)
        word = data.View(dut.pushed.shape(), item.word)
        first = item.follows & (item.ahead == 0)
        place, base = Signal.like(dut.free), Signal.like(dut.advance_to)
        with m.If(item.chosen):
            m.d.sync += [place.eq(dut.free), base.eq(dut.pushed.base)]
        with m.Elif(first & dut.advance):
            m.d.sync += base.eq(dut.advance_to)
        here = dut.view.regions[place]
        m.d.comb += [
            Assume(implies(dut.push, ~dut.full)),
            Assume(implies(dut.retire, item.count != 0)),
            Assert(total(list(dut.view.valid)) == item.count),
            Assert(dut.full == (item.count == most)),
            Assert(dut.empties == (item.count == dut.retire)),
            Assert(implies(item.follows, dut.view.valid.bit_select(place, 1))),
            Assert(implies(item.follows, (here.base == base) & (here.end == word.end))),
            Assert(
                implies(
                    item.follows,
                    dut.view.leaving.bit_select(place, 1) == (first & dut.retire),
                )
            ),
        ]
        oldest = unit.inside("oldest_place")
        m.d.comb += self.lemmas(
            unit.inside("entry_count") == item.count,
            (oldest + item.count)[: len(place)] == dut.free,
            implies(item.follows, (oldest + item.ahead)[: len(place)] == place),
            *(
                dut.view.valid[i] == ((i - oldest)[: len(place)] < item.count)
                for i in range(places)
            ),
        )


class LinkWatchdogHarness(Harness):
    """A proof harness for the watchdog of the links, with free inputs for waiting and moving parts.

    Waits that exceed the counter's range are left out.
    """

    def claims(self, m: Module) -> None:
        dut = LinkWatchdog()
        unit = Unit(m, dut)
        limit = constant(m, len(dut.limit), "limit")
        m.d.comb += [
            dut.limit.eq(limit),
            dut.waits.eq(anything(m, len(dut.waits), "waits")),
            dut.alive.eq(anything(m, 1, "alive")),
        ]
        # number of successive cycles in which a part waited in vain, the last cycle included
        waited = Signal(len(limit))
        in_vain = dut.waits.any() & ~dut.alive & (limit != 0)
        m.d.sync += waited.eq(Mux(in_vain, waited + 1, 0))
        earlier = before(m, waited, "earlier")
        known = before(m, before(m, 1, "second"), "third")
        parts = before(m, before(m, dut.waits, "waits_1"), "waits_2")
        m.d.comb += [
            Assume(~waited.all()),
            Assert(implies(known, dut.expired == ((earlier == limit) & (earlier != 0)))),
            Assert(implies(dut.expired, dut.parts == parts)),
        ]
        counts, left = unit.inside("cycle_counts"), unit.inside("cycles_remaining")
        m.d.comb += self.lemmas(
            counts == (waited != 0),
            implies(known & counts, left == (limit - earlier)[: len(left)]),
            implies(known & ~counts & (earlier == 0), left == limit),
            unit.inside("parts_counted") == before(m, dut.waits, "waits_now"),
            dut.parts == parts,
        )


class PodBarrierHarness(Harness):
    """A proof harness for the barrier of a pod with four cores, which arrive at any time."""

    CORES = 4
    SOON = CORES // 2 * 2 + 2
    """Cycles from the arrival of the last core at a barrier until all cores have passed."""

    def claims(self, m: Module) -> None:
        cores = self.CORES
        barriers = [PodBarrier() for _ in range(cores)]
        for i, barrier in enumerate(barriers):
            Unit(m, barrier, f"barrier_{i}")
        came, passed, waits = [], [], []
        for i, barrier in enumerate(barriers):
            came.append(Signal(4, name=f"came_{i}"))
            passed.append(Signal(4, name=f"passed_{i}"))
            waits.append(Signal(name=f"waits_{i}"))
            comes = Signal(name=f"comes_{i}")
            m.d.comb += [
                comes.eq(anything(m, 1, f"comes_{i}_now") & ~waits[i]),
                barrier.cores.eq(cores),
                barrier.arrived.eq(waits[i]),
                barrier.from_left.eq(barriers[i - 1].to_right),
                barrier.from_right.eq(barriers[(i + 1) % cores].to_left),
                Assert(implies(barrier.passed, waits[i])),
            ]
            m.d.sync += [
                came[i].eq(came[i] + comes),
                passed[i].eq(passed[i] + barrier.passed),
                waits[i].eq((waits[i] | comes) & ~barrier.passed),
            ]
        for i, barrier in enumerate(barriers):
            for j in range(cores):
                m.d.comb += Assert(implies(barrier.passed, came[j] > passed[i]))
        # When all cores have come to the same number of barriers, all of them pass within SOON
        # cycles.
        same = Signal()
        still = Signal(range(self.SOON + 1))
        alike = total([before(m, a, f"same_{i}") == a for i, a in enumerate(came)]) == cores
        m.d.comb += same.eq(alike & (total([count == came[0] for count in came]) == cores))
        m.d.sync += still.eq(Mux(same, Mux(still == self.SOON, still, still + 1), 0))
        all_passed = total([count == came[0] for count in passed]) == cores
        m.d.comb += Assert(implies(same & (still == self.SOON), all_passed))


PROOFS = (
    Proof(
        unit="link_fifo",
        claim="beats within the credits are neither lost nor doubled, in order",
        harness=LinkFifoHarness,
        depth=2,
        faults=(
            Fault(
                unit="link_fifo", old="self.credit.eq(beat_taken)", new="self.credit.eq(self.valid)"
            ),
            Fault(unit="link_fifo", old="eq(next_count != 0)", new="eq(beat_count != 0)"),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="link_sender",
        claim="a neighbour has room for what is sent, and no credit is lost: none waits for ever",
        harness=LinkHarness,
        depth=8,
        faults=(
            Fault(unit="link_sender", old="(credits >= row_beats_needed)", new="(credits != 0)"),
            Fault(
                unit="link_sender",
                old="Mux(row_read, row_beats_needed, 0)",
                new="Mux(row_read, row_beats_needed, 1)",
            ),
        ),
        fault_depth=30,
    ),
    Proof(
        unit="link_sender",
        claim="the beats of a row follow its data, lowest first, and nothing else is sent",
        harness=LinkOrderHarness,
        depth=10,
        faults=(
            Fault(
                unit="link_sender", old="(gap_remaining <= row.sums)", new="(gap_remaining <= 1)"
            ),
            Fault(unit="link_sender", old="word.eq(word >> size)", new="word.eq(word)"),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="link_list",
        claim="an instruction stays at its place, with what it has not done, until it is retired",
        harness=LinkListHarness,
        depth=2,
        faults=(
            Fault(
                unit="link_list", old="self.retire << oldest_place", new="self.retire << self.free"
            ),
            Fault(
                unit="link_list", old="self.advance & (oldest_place == place)", new="self.advance"
            ),
            Fault(
                unit="link_list", old="(self.retire & (entry_count == 1))", new="(entry_count == 1)"
            ),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="link_watchdog",
        claim="who has waited in vain for so many cycles is told then, and nobody else ever",
        harness=LinkWatchdogHarness,
        depth=4,
        faults=(
            Fault(
                unit="link_watchdog", old="(cycles_remaining == 1)", new="(cycles_remaining == 2)"
            ),
            Fault(unit="link_watchdog", old=" & ~self.alive", new=""),
            Fault(
                unit="link_watchdog",
                old="self.parts.eq(parts_counted)",
                new="self.parts.eq(self.waits)",
            ),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="pod_barrier",
        claim="nobody passes before all have come; when they have, all pass soon",
        harness=PodBarrierHarness,
        depth=16,
        bounded=True,
        faults=(
            Fault(
                unit="pod_barrier",
                old="(tokens_sent <= tokens_received)",
                new="(tokens_sent <= tokens_received + 1)",
            ),
            Fault(
                unit="pod_barrier",
                old="== tokens_wanted) & (tokens_received >= tokens_wanted)",
                new="== tokens_wanted) & (tokens_received != 0)",
            ),
        ),
        fault_depth=16,
    ),
)
