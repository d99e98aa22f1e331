# SPDX-License-Identifier: Apache-2.0
"""Planted faults, each of which breaks one promise, with the unit in which it shows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.arch.registers import BusPort
from systola.hdl.host.bus_watchdog import BusWatchdog
from systola.hdl.host.counters import Counters
from systola.hdl.host.machine_control import MachineControl
from systola.hdl.link.link_fifo import LinkFifo
from systola.hdl.link.link_receiver import LinkReceiver
from systola.hdl.link.link_sender import LinkSender
from systola.hdl.link.link_walk import LinkWalk
from systola.hdl.link.link_watchdog import LinkWatchdog
from systola.hdl.link.linked_accumulators import LinkedAccumulators
from systola.hdl.link.pod_barrier import PodBarrier
from systola.hdl.memories.accumulators import Accumulators
from systola.hdl.memories.block_ring import BlockRing
from systola.hdl.memories.unified_buffer import UnifiedBuffer
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.interlock import Check, Interlock
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.parts.walker import Level, Position, Walk, Walker
from systola.hdl.transfers.host_writer import WRITES_IN_FLIGHT
from systola.verif.formal.proof import Fault
from systola.verif.units.promise_bench import Bench
from systola.verif.units.unit import small_config

LINKED = small_config(links=True)
WORD = data.StructLayout({"word": 4})


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A promise that a fault breaks: `new` instead of `old` in `unit`.py, seen by `bench`."""

    bench: str
    promise: str
    old: str
    new: str
    unit: str = ""

    @property
    def fault(self) -> Fault:
        """Return the fault; without `unit` it is in the file of the bench."""
        return Fault(unit=self.unit or self.bench, old=self.old, new=self.new)


def _ring_users(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Keep payloads between 0 and 5, and drop none before it can be seen."""
    pushed = state.setdefault("pushed", [])
    count, visible = len(pushed), sum(age >= 2 for age in pushed)
    push = context.get(unit.push) and count < 5
    retire = context.get(unit.retire) and visible
    context.set(unit.push, push)
    context.set(unit.retire, retire)
    state["pushed"] = [age + 1 for age in pushed[bool(retire) :]] + [1] * bool(push)


def _walks(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Give walks whose flags fit their counts."""
    if not state.get("waits"):
        walk = unit.walk.payload
        for name, _ in walk.count.shape():
            number = drawn.randint(1, 3)
            context.set(walk.count[name], number)
            context.set(walk.single[name], number == 1)
            context.set(walk.double[name], number == 2)
    state["waits"] = context.get(unit.walk.valid) and not context.get(unit.walk.ready)


def _beats_with_credits(
    context: Any, unit: Any, state: dict[str, Any], drawn: random.Random
) -> None:
    """Send a beat only with a credit, which comes back a cycle after a beat was taken."""
    credits = state.setdefault("credits", LINKED.link_beats) + context.get(unit.credit)
    sends = context.get(unit.valid) and credits > 0
    context.set(unit.valid, sends)
    state["credits"] = credits - sends


def _credits_for_beats(
    context: Any, unit: Any, state: dict[str, Any], drawn: random.Random
) -> None:
    """Give a credit back only for a beat that went out in an earlier cycle."""
    gone = state.setdefault("gone", 0)
    gives = context.get(unit.credit) and gone > 0
    context.set(unit.credit, gives)
    state["gone"] = gone - gives + context.get(unit.valid)


def _one_kind(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Send beats of the kind of the row: beats of the other kind are never taken."""
    context.set(unit.beat.payload.sums, context.get(unit.cleared.payload.sums))


def _some_rows(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Give commands of at least one row."""
    if not state.get("waits"):
        context.set(unit.command.payload.rows, drawn.randint(1, 4))
    state["waits"] = context.get(unit.command.valid) and not context.get(unit.command.ready)


def _answers_of_writes(
    context: Any, unit: Any, state: dict[str, Any], drawn: random.Random
) -> None:
    """Answer as many writes as there are, and leave room for all of them."""
    count = state.setdefault("count", 0)
    taken = unit.from_memory[exact_log2(BusPort.HOST_WRITE)].taken
    writes = context.get(unit.written) and count < WRITES_IN_FLIGHT
    answers = context.get(taken) and count > 0
    context.set(unit.written, writes)
    context.set(taken, answers)
    state["count"] = count + writes - answers


def _neighbours(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Come to a barrier and wait there, with the tokens that neighbours send."""
    cycle = state["cycle"] = state.get("cycle", -1) + 1
    state["barriers"] = state.get("barriers", 1) + context.get(unit.passed)
    if state.get("waits"):
        context.set(unit.arrived, 1)
    if cycle < 2:
        context.set(unit.arrived, 0)
    state["waits"] = context.get(unit.arrived) and not context.get(unit.passed)
    for port in (unit.from_left, unit.from_right):
        tokens = state.get(port.name, 0)
        comes = context.get(port) and tokens < 2 * state["barriers"]
        context.set(port, comes)
        state[port.name] = tokens + comes


def _reads_of_updates(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Read the bank of a row that is added to."""
    adds = context.get(unit.update) and context.get(unit.accumulate)
    context.set(unit.reads, (1 << context.get(unit.row) % 2) if adds else 0)
    context.set(unit.shift, drawn.randrange(3))


_POSITION = Position(line_bits=6, y_bits=4, x_bits=4)
_LEVELS = (
    Level(name="inner", count_bits=3, moves={"line": 6, "x": 4}),
    Level(name="outer", count_bits=3, moves={"line": 6, "y": 4}),
)

BENCHES = {
    "skid_buffer": Bench(make=lambda: SkidBuffer(payload=WORD)),
    "round_robin": Bench(make=lambda: RoundRobin(count=4)),
    "delay_line": Bench(make=lambda: DelayLine(layout=WORD, cycles=3)),
    "delay_ring": Bench(make=lambda: DelayRing(width=4, cycles=5)),
    "payload_ring": Bench(make=lambda: PayloadRing(payload=WORD, depth=5)),
    "block_ring": Bench(make=lambda: BlockRing(payload=WORD, depth=8), legal=_ring_users),
    "interlock": Bench(
        make=lambda: Interlock(
            item=data.StructLayout({"line": 4, "used": 1}),
            checks=[Check(watched="list", address="line", used="used")],
            depth=2,
            widths={"list": 4},
        )
    ),
    "walker": Bench(make=lambda: Walker(walk=Walk(_LEVELS, _POSITION)), legal=_walks),
    "link_fifo": Bench(make=lambda: LinkFifo(config=LINKED), legal=_beats_with_credits),
    "link_sender": Bench(make=lambda: LinkSender(config=LINKED), legal=_credits_for_beats),
    "link_receiver": Bench(make=lambda: LinkReceiver(config=LINKED), legal=_one_kind),
    "link_walk": Bench(make=lambda: LinkWalk(config=LINKED), legal=_some_rows),
    "link_watchdog": Bench(make=LinkWatchdog, fixed={"limit": 1}),
    "bus_watchdog": Bench(make=BusWatchdog, fixed={"limit": 1}, legal=_answers_of_writes),
    "pod_barrier": Bench(make=PodBarrier, fixed={"cores": 5}, legal=_neighbours),
    "linked_accumulators": Bench(
        make=lambda: LinkedAccumulators(config=LINKED), legal=_reads_of_updates
    ),
    "accumulators": Bench(make=lambda: Accumulators(config=LINKED), legal=_reads_of_updates),
    "unified_buffer": Bench(make=lambda: UnifiedBuffer(config=LINKED)),
    "counters": Bench(make=Counters),
    "machine_control": Bench(
        make=lambda: MachineControl(units=("one", "other"), links=True), fixed={"corrupt": 0}
    ),
}
"""Benches by the file of the unit."""

BROKEN = (
    Broken(
        bench="skid_buffer",
        promise="a payload changes before it is taken",
        old="m.If(output_free)",
        new="m.If(output_free | self.input.valid)",
    ),
    Broken(
        bench="skid_buffer",
        promise="the second place is full and free",
        old="spare_free.eq(~spare_fills)",
        new="spare_free.eq(output_free)",
    ),
    Broken(
        bench="round_robin",
        promise="two requesters are chosen",
        old="bits & (~bits + 1)[: len(bits)]",
        new="bits",
    ),
    Broken(
        bench="round_robin",
        promise="one is chosen that wants nothing",
        old="_lowest(self.wants & later_requesters),",
        new="_lowest(later_requesters),",
    ),
    Broken(
        bench="round_robin",
        promise="no requester is chosen",
        old="_lowest(self.wants),",
        new="0,",
    ),
    Broken(
        bench="delay_line",
        promise="a delay moves while it is held",
        old="m.If(~self.hold)",
        new="m.If(~self.hold | self.input_valid)",
    ),
    Broken(
        bench="delay_ring",
        promise="a delay leaves its ring",
        old="stepped(ring_place, self._cycles)",
        new="ring_place + 1",
    ),
    Broken(
        bench="payload_ring",
        promise="a payload is written beyond the ring",
        old="stepped(write_place, self._depth)",
        new="write_place + 1",
    ),
    Broken(
        bench="payload_ring",
        promise="a payload is read beyond the ring",
        old="stepped(read_place, self._depth)",
        new="read_place + 1",
    ),
    Broken(
        bench="interlock",
        promise="an item that passes is withdrawn",
        old="(looks_again | (judged_moves & compared_valid))",
        new="(looks_again | compared_valid)",
    ),
    Broken(
        bench="interlock",
        promise="the interlock is not ready as it has said",
        old="arrived_free.eq(self.frees)",
        new="arrived_free.eq(compared_moves)",
    ),
    Broken(
        bench="interlock",
        promise="an item is there and not there",
        old="arrived_valid.eq(~self.frees)",
        new="arrived_valid.eq(item_comes)",
    ),
    Broken(
        bench="interlock",
        promise="an item waits that is not there",
        old="(judged_moves & compared_valid)",
        new="judged_moves",
    ),
    Broken(
        bench="walker",
        promise="a walk changes before its last place is left",
        old="self.walk.ready.eq(self.present & self.advance & self.ends)",
        new="self.walk.ready.eq(self.present & self.advance)",
    ),
    Broken(
        bench="walker",
        promise="a place is not present as foretold",
        old="self.present.eq(self.will_be_present)",
        new="self.present.eq(valid)",
    ),
    Broken(
        bench="walker",
        promise="a walk ends too soon",
        old="self.ends.eq(Cat(values).all())",
        new="self.ends.eq(values[0])",
    ),
    Broken(
        bench="walker",
        promise="a walk is idle and present",
        old="idle.eq(~self.will_be_present)",
        new="idle.eq(~valid)",
    ),
    Broken(
        bench="block_ring",
        promise="the oldest payload changes before it is dropped",
        old="memory.output_enable.eq(~has_shown | self.retire)",
        new="memory.output_enable.eq(1)",
    ),
    Broken(
        bench="link_fifo",
        promise="a beat changes before it is taken",
        old="ring.retire.eq(beat_taken)",
        new="ring.retire.eq(self.taken.valid)",
    ),
    Broken(
        bench="link_fifo",
        promise="a beat is not there",
        old="self.taken.valid.eq(next_count != 0)",
        new="self.taken.valid.eq(beat_count != 0)",
    ),
    Broken(
        bench="link_fifo",
        promise="a neighbour sends more than it has credits for",
        old="self.credit.eq(beat_taken)",
        new="self.credit.eq(self.taken.ready)",
    ),
    Broken(
        bench="link_sender",
        promise="a line and sums come in the same cycle",
        old="Mux(row.sums, row_beats, line_beats - 1)",
        new="Mux(row.sums, 0, line_beats - 1)",
    ),
    Broken(
        bench="link_sender",
        promise="a row comes before the last went",
        old=" & (gap_remaining <= row.sums)",
        new="",
    ),
    Broken(
        bench="link_sender",
        promise="a credit comes that was not spent",
        old="Mux(row_read, row_beats_needed, 0)",
        new="row_read",
    ),
    Broken(
        bench="link_sender",
        promise="an instruction is done without a row",
        old="self.done.eq(row_read & row.last)",
        new="self.done.eq(row_wanted & row.last)",
    ),
    Broken(
        bench="link_sender",
        promise="a row is read from both memories",
        old="buffer.enable.eq(row_wanted & ~row.sums)",
        new="buffer.enable.eq(row_wanted)",
    ),
    Broken(
        bench="link_sender",
        promise="a read of a line is withdrawn",
        old="(credits >= row_beats_needed)",
        new="(credits >= row_beats_needed) & ~self.credit",
    ),
    Broken(
        bench="link_receiver",
        promise="a line changes before it is written",
        old="(row_complete & ~row_written)",
        new="(row_complete & ~row_written & ~self.beat.valid)",
    ),
    Broken(
        bench="link_receiver",
        promise="sums change before they are taken",
        old=" & (~row_complete | row_written)",
        new="",
    ),
    Broken(
        bench="link_receiver",
        promise="a row is written to both memories",
        old="accumulators.enable.eq(row_complete & target_row.sums)",
        new="accumulators.enable.eq(row_complete)",
    ),
    Broken(
        bench="link_receiver",
        promise="an instruction is done without a write",
        old="self.done.eq(row_written & target_row.last)",
        new="self.done.eq(row_complete & target_row.last)",
    ),
    Broken(
        bench="link_walk",
        promise="a row changes before it is taken",
        old="row_moves.eq(~self.rows.valid | self.rows.ready)",
        new="row_moves.eq(1)",
    ),
    Broken(
        bench="link_walk",
        promise="the last row is not the one that is marked",
        old="row.last.eq(rows_after == 0)",
        new="row.last.eq(rows_after == 1)",
    ),
    Broken(
        bench="link_walk",
        promise="a command begins before the last one has ended",
        old="row_moves & (row.last | ~self.rows.valid)",
        new="row_moves",
    ),
    Broken(
        bench="link_watchdog",
        promise="no part has waited too long",
        old="self.parts.eq(parts_counted)",
        new="self.parts.eq(self.waits)",
    ),
    Broken(
        bench="link_watchdog",
        promise="the watchdog of the links expires twice",
        old="cycles_remaining.eq(cycles_remaining - 1)",
        new="cycles_remaining.eq(cycles_remaining)",
    ),
    Broken(
        bench="bus_watchdog",
        promise="no port has waited too long",
        old="self.ports.eq(ports_counted)",
        new="self.ports.eq(ports_owing)",
    ),
    Broken(
        bench="bus_watchdog",
        promise="more writes are under way than may be",
        old="self.written - self.from_memory[writes].taken",
        new="self.written",
    ),
    Broken(
        bench="pod_barrier",
        promise="more tokens are sent than are needed",
        old="                    & (tokens_sent != tokens_wanted)\n",
        new="",
    ),
    Broken(
        bench="pod_barrier",
        promise="a token goes before the one that allows it",
        old="                    & (tokens_sent <= tokens_received)\n",
        new="",
    ),
    Broken(
        bench="pod_barrier",
        promise="a barrier is passed before all have come",
        old=" & (tokens_received >= tokens_wanted)",
        new="",
    ),
    Broken(
        bench="linked_accumulators",
        promise="a read of the links wins over Activate",
        old="memory.ready & ~self.enable",
        new="memory.ready",
    ),
    Broken(
        bench="linked_accumulators",
        promise="sums of the links win over the array",
        old="update.ready.eq(~self.update)",
        new="update.ready.eq(1)",
    ),
    Broken(
        bench="linked_accumulators",
        promise="another bank is read than the row's",
        old="adds << update.address[0]",
        new="adds",
        unit="linked_accumulators",
    ),
    Broken(
        bench="linked_accumulators",
        promise="sums are shifted too far",
        old="Mux(self.update, self.shift, 0)",
        new="Mux(self.update, self.shift, 3)",
        unit="linked_accumulators",
    ),
    Broken(
        bench="unified_buffer",
        promise="two reads are granted in one bank",
        old="for winner in ports[:rank]",
        new="for winner in ports[:1]",
    ),
    Broken(
        bench="unified_buffer",
        promise="two writes are granted in one bank",
        old="winner.enable & banks_meet(port, winner) for",
        new="(port is not incoming) & winner.enable & banks_meet(port, winner) for",
    ),
    Broken(
        bench="unified_buffer",
        promise="a read of the array has to wait",
        old="for winner in ports[:rank]",
        new="for winner in ports[rank:]",
    ),
    Broken(
        bench="unified_buffer",
        promise="a write of Activate has to wait",
        old="writers = (self.activate, incoming)",
        new="writers = (incoming, self.activate)",
    ),
    Broken(
        bench="counters",
        promise="a counter is written that seems to be 0",
        old="written_counters | (1 << class_counted)",
        new="written_counters",
    ),
    Broken(
        bench="machine_control",
        promise="a program is in two states",
        old="[drains.eq(0), stops.eq(1), self.stop.eq(1)]\n        # For",
        new="[stops.eq(1), self.stop.eq(1)]\n        # For",
    ),
    Broken(
        bench="machine_control",
        promise="a program is busy and in no state",
        old="                stops.eq(0),\n",
        new="",
    ),
    Broken(
        bench="machine_control",
        promise="a program stops, and its transfers go on",
        old="[drains.eq(0), stops.eq(1), self.stop.eq(1)]\n        # For",
        new="[drains.eq(0), stops.eq(1)]\n        # For",
    ),
    Broken(
        bench="machine_control",
        promise="a program runs without transfers",
        old="with m.If(clear):",
        new="with m.If(clear & ~self.start):",
    ),
    Broken(
        bench="machine_control",
        promise="a program has succeeded and failed",
        old="~program_failed & ~program_abandoned),\n            self.faulted",
        new="~program_abandoned),\n            self.faulted",
    ),
    Broken(
        bench="machine_control",
        promise="a program is not forgotten",
        old="[done.eq(0), fault.eq(0)]",
        new="[done.eq(0)]",
    ),
    Broken(
        bench="machine_control",
        promise="a unit is not cleared",
        old="copy.input.eq(will_clear)",
        new="copy.input.eq(program_ends & ~self.start)",
    ),
)
