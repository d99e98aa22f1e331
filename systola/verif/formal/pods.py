# SPDX-License-Identifier: Apache-2.0
"""Proofs of the waits of link instructions, and of the units that join cores to a pod."""

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.arch.isa import Fault as Cause
from systola.arch.registers import REGISTER_SPACE_BITS, Status
from systola.hdl.control.link_gate import LinkGate
from systola.hdl.control.link_interlock import LinkInterlock
from systola.hdl.control.link_list import ListView, list_places
from systola.hdl.link_commands import link_address, place_bits
from systola.hdl.parts.ored import ored
from systola.hdl.pod.page_router import NOWHERE, PageRouter
from systola.hdl.pod.pod_control import PodControl
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assume_stays,
    before,
    implies,
)
from systola.verif.formal.links import CONFIG, total
from systola.verif.formal.proof import Fault, Proof

PLACES = list_places(CONFIG)


def free_list(m: Module, name: str, grows: Value) -> data.View:
    """Return the view of a LinkList with free content, limited to how a list may change.

    The list's instructions finish more and more of their lines and rows, and leave. A new
    instruction appears only in a cycle in which `grows` is high.
    """
    view = anything(m, ListView(config=CONFIG), name)
    valid = before(m, view.valid, f"{name}_valid")
    regions = before(m, view.regions, f"{name}_regions")
    leaving = before(m, view.leaving, f"{name}_leaving")
    known = before(m, 1, f"{name}_known")
    earlier = data.View(view.regions.shape(), regions)
    m.d.comb += Assume(
        implies(known, (view.valid & (~valid | leaving) & ~grows.replicate(PLACES)) == 0)
    )
    for place in range(PLACES):
        here, there = view.regions[place], earlier[place]
        stays = valid[place] & view.valid[place] & ~leaving[place]
        m.d.comb += [
            Assume(
                implies(
                    known & stays,
                    (here.base >= there.base) & (here.end == there.end),
                )
            ),
            Assume(implies(known & valid[place] & ~leaving[place], view.valid[place])),
            Assume((here.base <= here.end) & (here.base[-1] == here.end[-1])),
            Assume(implies(view.leaving[place], view.valid[place])),
        ]
    return view


class LinkGateHarness(Harness):
    """A proof harness for the gate between link instructions and the instructions of other units.

    An instruction waits until its issue, while link instructions come and leave.
    """

    SOON = 2 * PLACES + 4
    """Cycles within which the gate compares all entries of the lists."""

    def claims(self, m: Module) -> None:
        dut = LinkGate(config=CONFIG, sending=("sends",), receiving=("takes",))
        unit = Unit(m, dut)
        restart = anything(m, 1, "restart")
        first = before(m, restart, "first", init=1)
        m.d.comb += dut.restart.eq(restart)
        for name in ("passes", "fills", "sums", "buffer", "source", "operand", "accumulator"):
            port = getattr(dut, name)
            given = anything(m, Value.cast(port).shape(), name)
            earlier = before(m, given, f"{name}_earlier")
            m.d.comb += [Value.cast(port).eq(given), Assume(first | (given == earlier))]
        conflicts: list[Value] = []
        for name, sends in (("sends", 1), ("takes", 0)):
            view = free_list(m, name, first)
            m.d.comb += dut.lists[name].eq(view)
            for place in range(PLACES):
                conflicts.append(
                    view.valid[place] & self._conflict(dut, view.regions[place], sends)
                )
        conflict = ored(conflicts) & ~dut.passes
        since = Signal(range(self.SOON + 1))
        m.d.sync += since.eq(Mux(restart | conflict, 0, Mux(since == self.SOON, since, since + 1)))
        m.d.comb += [
            Assert(implies(dut.clear & ~first, ~conflict)),
            Assert(implies((since == self.SOON) & ~conflict, dut.clear)),
        ]
        # All entries before the compared (or else the fetched) entry were found to have no
        # conflict.
        fetched, compared, done, entry, entry_valid = (
            unit.inside(name)
            for name in ("fetched_entry", "compared_entry", "scan_done", "entry", "entry_valid")
        )
        entry = data.View(dut.lists["sends"].regions[0].shape(), entry)
        entry_conflicts = unit.inside("entry_conflicts")
        free_below = Mux(entry_valid, compared, fetched)
        valid = Array(bit for name in ("sends", "takes") for bit in dut.lists[name].valid)
        regions = [dut.lists[name].regions[i] for name in ("sends", "takes") for i in range(PLACES)]
        bases, ends = (Array(region[name] for region in regions) for name in ("base", "end"))
        m.d.comb += self.lemmas(
            implies(unit.inside("scan_begins"), first),
            implies(before(m, restart, "restarted"), unit.inside("scan_begins")),
            implies(first, ~entry_valid & (fetched == 0)),
            implies(entry_valid, fetched == (compared + 1)[: len(fetched)]),
            implies(
                entry_valid & valid[compared],
                unit.inside("entry_used")
                & (entry.end == ends[compared])
                & (entry.base <= bases[compared])
                & (entry.base[-1] == bases[compared][-1]),
            ),
            *(
                implies(~first & ((i < free_below) | done), ~each)
                for i, each in enumerate(conflicts)
            ),
            implies(unit.inside("gate_unneeded") & ~first, ~conflict),
            implies(
                ~(done | dut.passes) & (since >= 2),
                entry_valid & ~entry_conflicts & (compared + 2 >= since),
            ),
            implies(since != 0, ~first),
            implies((since != 0) & entry_valid & ~dut.passes, ~entry_conflicts),
        )

    def _conflict(self, dut: LinkGate, entry: data.View, sends: int) -> Value:
        """Return whether the waiting instruction conflicts with the rest of a link instruction.

        The rest is the lines or rows that the link instruction has not moved yet.
        """
        bits = place_bits(CONFIG)
        low, high, rows = entry.base[:bits], entry.end[:bits], entry.base[bits]

        def meets(region: data.View) -> Value:
            return (region.base < high) & (low < region.end)

        written = meets(dut.buffer) & dut.fills & ~rows
        touched = meets(dut.buffer) | meets(dut.source) | meets(dut.operand)
        summed = meets(dut.accumulator) & rows
        if sends:
            return written | (summed & dut.sums)
        return (touched & ~rows) | summed


class LinkInterlockHarness(Harness):
    """A proof harness for the interlock of one part of the links, beside the list of another part.

    Rows of any instructions come, and the harness follows one row.
    """

    SOON = 3
    """Cycles after which the interlock offers a row if no other instruction uses it."""

    def claims(self, m: Module) -> None:
        dut = LinkInterlock(config=CONFIG, others=("other",))
        unit = Unit(m, dut)
        push, free = anything(m, 1, "push"), Signal.like(dut.free)
        m.d.sync += free.eq(free + push)
        view = free_list(m, "other", Value.cast(1))
        rows, cleared = dut.rows, dut.cleared
        row = anything(m, rows.payload.shape(), "row")
        valid, taken = anything(m, 1, "valid"), anything(m, 1, "taken")
        m.d.comb += [
            dut.push.eq(push),
            dut.free.eq(free),
            dut.others.other.eq(view),
            rows.valid.eq(valid),
            rows.payload.eq(row),
            dut.taken.eq(taken),
            cleared.ready.eq(anything(m, 1, "ready")),
        ]
        assume_stays(m, rows.valid, rows.ready, row, "row")
        # The next instruction is taken when all rows of the instruction before have been taken.
        pushed = Signal(range(PLACES + 1))
        m.d.sync += pushed.eq(pushed + push - taken)
        m.d.comb += [
            Assume(implies(taken, (pushed != 0) & (~rows.valid | rows.ready))),
            Assume(implies(push, pushed != PLACES - 1)),
        ]
        # `of` is the place in the list of the instruction with the row on offer. `older` has a mask
        # for each place: the older instructions that the instruction in this place waits for.
        of, following = Signal.like(free), Signal.like(free)
        with m.If(taken):
            m.d.sync += [of.eq(following), following.eq(following + 1)]
        older = [Signal(PLACES, name=f"awaited_{place}") for place in range(PLACES)]
        stays = view.valid & ~view.leaving
        for place, mask in enumerate(older):
            m.d.sync += mask.eq(Mux(push & (free == place), stays, mask & stays))
        enters = rows.valid & rows.ready
        item = Tracked(m, enters=enters, word=row, exits=cleared.valid & cleared.ready, most=4)
        place = Signal.like(of)
        with m.If(item.chosen):
            m.d.sync += place.eq(of)
        # A place of the list is used again only after its instruction is done.
        begun = Signal()
        m.d.sync += begun.eq(begun | taken)
        m.d.comb += [
            Assume(implies(rows.valid, begun)),
            Assume(implies(push & begun, free != of)),
            Assume(implies(push & item.follows, free != place)),
        ]
        shown = data.View(rows.payload.shape(), item.word)
        address = link_address(shown.place, shown.sums, CONFIG)
        uses = Cat((region.base <= address) & (address < region.end) for region in view.regions)
        comes = item.follows & (item.ahead == 0)
        offered = comes & cleared.valid
        awaited = (uses & Array(older)[place]).any()
        free_for = Signal(range(self.SOON + 1))
        m.d.sync += free_for.eq(
            Mux(comes & ~awaited, Mux(free_for == self.SOON, free_for, free_for + 1), 0)
        )
        m.d.comb += [
            Assert(implies(cleared.valid, item.count != 0)),
            Assert(implies(offered, Value.cast(cleared.payload) == item.word)),
            Assert(implies(offered, ~awaited)),
            Assert(implies(comes & (free_for == self.SOON), cleared.valid)),
        ]
        # The followed row lies in the register of the waiting row, or in the skid buffer after it.
        row_waits, row_blocked = unit.inside("row_waits"), unit.inside("row_blocked")
        spare = unit.inside("skid.spare_valid")
        behind = cleared.valid + spare
        waits_here = item.follows & row_waits & (item.ahead == behind)
        in_spare = item.follows & spare & (item.ahead == 1)
        m.d.comb += self.lemmas(
            item.count == row_waits + behind,
            implies(spare, cleared.valid),
            spare == ~unit.inside("skid.spare_free"),
            unit.inside("row_place") == of,
            unit.inside("next_place") == following,
            implies(row_waits, begun),
            *(unit.inside(f"older_{i}") == mask for i, mask in enumerate(older)),
            *((mask & ~view.valid) == 0 for mask in older),
            implies(waits_here, Value.cast(unit.inside("waiting_row")) == item.word),
            implies(waits_here, unit.inside("waiting_place") == place),
            implies(in_spare, Value.cast(unit.inside("skid.spare")) == item.word),
            implies(waits_here & ~row_blocked, ~awaited),
            implies(item.follows & ~waits_here, ~awaited),
            implies(comes & waits_here, free_for <= 1),
            implies(comes & waits_here & row_blocked, free_for == 0),
        )


class PodControlHarness(Harness):
    """A proof harness for the control of a pod with two cores that may be in any state in any
    cycle.
    """

    SETTLE = 2
    LATER = SETTLE + 4
    """Cycles from a START of the pod to the START of its cores."""

    def claims(self, m: Module) -> None:
        dut = PodControl(cores=2, settle=self.SETTLE)
        Unit(m, dut)
        start, reset = anything(m, 1, "start"), anything(m, 1, "soft_reset")
        states = [anything(m, len(Status), f"status_{core}") for core in range(2)]
        causes = [anything(m, len(dut.cause), f"cause_{core}") for core in range(2)]
        m.d.comb += [
            dut.start.eq(start),
            dut.soft_reset.eq(reset),
            dut.moved.eq(anything(m, 2, "moved")),
            *(dut.statuses[core].eq(state) for core, state in enumerate(states)),
            *(dut.causes[core].eq(cause) for core, cause in enumerate(causes)),
        ]

        def ago(value: Value, cycles: int, name: str) -> Value:
            for cycle in range(cycles):
                value = before(m, value, f"{name}_{cycle}")
            return value

        def with_bit(state: Signal, bit: Status) -> Value:
            return (state & bit).any()

        is_busy = with_bit(dut.status, Status.BUSY)
        undisturbed = Value.cast(1)
        for cycle in range(self.LATER):
            undisturbed &= ~ago(reset, cycle + 1, f"reset_{cycle}")
        begun = ago(start & ~is_busy, self.LATER, "begun")
        asked = ago(start, self.LATER, "asked")
        failed = [
            ago(with_bit(state, Status.FAULT), 3, f"failed_{i}") for i, state in enumerate(states)
        ]
        done = ago(Cat(with_bit(state, Status.DONE) for state in states).all(), 2, "done")
        idle = ago(~Cat(with_bit(state, Status.BUSY) for state in states).any(), 2, "idle")
        cause = Mux(dut.first, ago(causes[1], 1, "cause_b"), ago(causes[0], 1, "cause_a"))
        told = dut.faulted & ~ago(reset | start, 1, "again")
        m.d.comb += [
            # All cores start together, after a START, on links that were emptied.
            Assert(implies(begun & undisturbed, dut.core_start)),
            Assert(implies(dut.core_start, asked & undisturbed)),
            Assert(implies(dut.core_start, ago(dut.clear_links, 2, "cleared"))),
            # The pod reports the fault of the lowest faulty core, once, with its cause.
            Assert(implies(told, Mux(dut.first, failed[1] & ~failed[0], failed[0]))),
            Assert(implies(told, dut.cause == cause)),
            Assert(implies(dut.stop, ago(with_bit(dut.status, Status.FAULT), 1, "fault"))),
            Assert(implies(dut.in_vain, dut.cause == Cause.LINK_TIMEOUT)),
            Assert(implies(dut.finished, done & idle)),
            Assert(implies(dut.stop | dut.core_start, ~(dut.stop & dut.core_start))),
        ]


class PageRouterHarness(Harness):
    """A proof harness for the page router between a host on AXI4-Lite and three pages of registers.

    The host keeps to the rules of the bus. The pages of the pod and of two cores answer after any
    delay.
    """

    def claims(self, m: Module) -> None:
        dut = PageRouter(cores=2)
        unit = Unit(m, dut)
        bus, pages = dut.bus, [dut.pages[i] for i in range(3)]
        for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            m.d.comb += getattr(bus, name).eq(anything(m, 1, name))
        for name in ("awaddr", "awprot", "wdata", "wstrb", "araddr", "arprot"):
            port = Value.cast(getattr(bus, name))
            m.d.comb += port.eq(anything(m, len(port), name))
        assume_stays(m, bus.awvalid, bus.awready, Cat(bus.awaddr, bus.awprot), "aw")
        assume_stays(m, bus.wvalid, bus.wready, Cat(bus.wdata, bus.wstrb), "w")
        assume_stays(m, bus.arvalid, bus.arready, Cat(bus.araddr, bus.arprot), "ar")
        for number, page in enumerate(pages):
            for name in ("awready", "arready", "bvalid", "rvalid"):
                m.d.comb += getattr(page, name).eq(anything(m, 1, f"{name}_{number}"))
            for name in ("bresp", "rresp", "rdata"):
                port = Value.cast(getattr(page, name))
                m.d.comb += port.eq(anything(m, len(port), f"{name}_{number}"))
            b, r = Cat(page.bresp), Cat(page.rdata, page.rresp)
            assume_stays(m, page.bvalid, page.bready, b, f"b_{number}")
            assume_stays(m, page.rvalid, page.rready, r, f"r_{number}")
            # Each page takes both halves of a write in one cycle, as the machine's registers do.
            m.d.comb += page.wready.eq(page.awready)
        for kind, access, address, asks, answer, parts in (
            ("aw", "write", bus.awaddr, "awvalid", "b", ("bresp",)),
            ("ar", "read", bus.araddr, "arvalid", "r", ("rdata", "rresp")),
        ):
            chosen = unit.inside(f"{access}_chosen")
            number = address[REGISTER_SPACE_BITS:]
            owes = [Signal(name=f"{kind}_owed_{i}") for i in range(3)]
            taken = [getattr(page, asks) & getattr(page, f"{kind}ready") for page in pages]
            answered = [
                getattr(page, f"{answer}valid") & getattr(page, f"{answer}ready") for page in pages
            ]
            for i, page in enumerate(pages):
                wanted = number == i
                offset = address[:REGISTER_SPACE_BITS]
                given = Value.cast(getattr(page, f"{kind}addr"))
                if i == 0:
                    beyond = number >= len(pages)
                    wanted |= beyond
                    offset = Mux(beyond, NOWHERE, offset)
                valid = getattr(page, f"{answer}valid")
                m.d.sync += owes[i].eq((owes[i] | taken[i]) & ~answered[i])
                m.d.comb += [
                    Assume(implies(valid, owes[i])),
                    Assert(implies(getattr(page, asks), wanted & (given == offset))),
                    Assert(implies(getattr(page, asks), getattr(bus, asks))),
                    Assert(implies(taken[i], ~Cat(owes).any())),
                    Assert(implies(valid, getattr(bus, f"{answer}valid"))),
                    *(
                        Assert(
                            implies(
                                valid,
                                Value.cast(getattr(bus, part)) == Value.cast(getattr(page, part)),
                            )
                        )
                        for part in parts
                    ),
                    Assert(
                        implies(
                            valid, getattr(page, f"{answer}ready") == getattr(bus, f"{answer}ready")
                        )
                    ),
                ]
            offered = getattr(bus, asks) & (bus.wvalid if kind == "aw" else 1)
            waits = offered & ~Cat(owes).any()
            asked = Cat(getattr(page, asks) for page in pages)
            m.d.comb += [
                Assert(implies(waits & before(m, waits, f"{kind}_waits"), asked.any())),
                Assert(getattr(bus, f"{kind}ready") == total(taken)),
                Assert(implies(getattr(bus, f"{answer}valid"), Cat(owes).any())),
            ]
            known = number < len(pages)
            # While a page is asked, the bus still offers the access to it, and no page owes an
            # answer.
            begun = asked.any()
            m.d.comb += self.lemmas(
                (chosen & (chosen - 1))[: len(pages)] == 0,
                Cat(owes) == Mux(begun, 0, chosen),
                implies(begun, offered),
                implies(begun, chosen == Mux(known, (Value.cast(1) << number)[: len(pages)], 1)),
                implies(
                    begun,
                    unit.inside(f"{access}_offset")
                    == Mux(known, address[:REGISTER_SPACE_BITS], NOWHERE),
                ),
            )
        for page in pages:
            m.d.comb += [
                Assert(page.wvalid == page.awvalid),
                Assert(implies(page.wvalid, bus.wvalid)),
                Assert(
                    implies(page.wvalid, Cat(page.wdata, page.wstrb) == Cat(bus.wdata, bus.wstrb))
                ),
            ]


PROOFS = (
    Proof(
        unit="pod_control",
        claim="cores start together on empty links; the first fault is told, with core and cause",
        harness=PodControlHarness,
        depth=14,
        faults=(
            Fault(
                unit="pod_control",
                old="(start_remaining == LAUNCH - 2) & ~self.soft_reset",
                new="(start_remaining == LAUNCH - 2)",
            ),
            Fault(
                unit="pod_control",
                old="for number in reversed(range(self._cores))",
                new="for number in range(self._cores)",
            ),
            Fault(
                unit="pod_control",
                old="self.finished.eq(program_ends & done.all())",
                new="self.finished.eq(program_ends)",
            ),
            Fault(
                unit="pod_control",
                old="self.stop.eq(cause_known & program_runs & ~program_ends)",
                new="self.stop.eq(fault_found)",
            ),
        ),
        fault_depth=20,
    ),
    Proof(
        unit="link_gate",
        claim="nothing is let go that older links still use; what nobody uses is let go soon",
        harness=LinkGateHarness,
        depth=3,
        faults=(
            Fault(
                unit="link_gate",
                old="fetched_entry.eq(compared_entry)",
                new="fetched_entry.eq(fetched_entry + 1)",
            ),
            Fault(
                unit="link_gate",
                old="(fills & (self.fills | ~from_sender))",
                new="(fills & self.fills & from_sender)",
            ),
            Fault(
                unit="link_gate",
                old="(rows & (self.sums | ~from_sender))",
                new="(rows & ~from_sender)",
            ),
            Fault(
                unit="link_gate",
                old="compared_entry == count - 1",
                new="compared_entry == count - 2",
            ),
        ),
        fault_depth=LinkGateHarness.SOON + 6,
    ),
    Proof(
        unit="link_interlock",
        claim="rows in order; none passes that older instructions of others use, all else soon",
        harness=LinkInterlockHarness,
        depth=3,
        faults=(
            Fault(
                unit="link_interlock",
                old="meets & (row_moves | row_blocked)",
                new="meets & row_moves",
            ),
            Fault(unit="link_interlock", old="older_entries & ~leaving", new="older_entries"),
            Fault(
                unit="link_interlock",
                old="Mux(row_moves, row_place, waiting_place)",
                new="row_place",
            ),
            Fault(
                unit="link_interlock",
                old="skid.input.valid.eq(row_waits & ~row_blocked)",
                new="skid.input.valid.eq(row_waits)",
            ),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="page_router",
        claim="an access reaches the page that it names, once, and gets its answer and no other",
        harness=PageRouterHarness,
        depth=3,
        faults=(
            Fault(
                unit="page_router",
                old="Mux(number < self._pages, Const(1) << number, 1)",
                new="Const(1) << number",
            ),
            Fault(unit="page_router", old="writes[number] & ~write_taken", new="writes[number]"),
            Fault(unit="page_router", old="~chosen.any() & offered", new="offered"),
            Fault(
                unit="page_router", old="[read_taken.eq(0), reads.eq(0)]", new="[read_taken.eq(0)]"
            ),
        ),
        fault_depth=10,
    ),
)
