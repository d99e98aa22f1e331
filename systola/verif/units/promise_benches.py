# SPDX-License-Identifier: Apache-2.0
"""Small units that make promises, with functions that keep their random inputs legal."""

from __future__ import annotations

import random
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.arch.isa import GATES, Function
from systola.arch.registers import BusPort
from systola.hdl.activation.curve_stage import GATHER_STAGE, CurveStage
from systola.hdl.activation.issued_vectors import IssuedVectors
from systola.hdl.activation.line_writer import LineWriter
from systola.hdl.activation.partition_entries import PartitionEntries
from systola.hdl.activation.spacings import SCALED_LATENCY, SUM_LATENCY
from systola.hdl.activation.table_lane import CURVE_LATENCY
from systola.hdl.commands import HostTransfer, Kind
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
from systola.hdl.matrix.weight_loader import WeightLoader
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
from systola.hdl.pod.link_wire import LinkWire
from systola.hdl.pod.page_router import PageRouter
from systola.hdl.pod.pod_control import PodControl
from systola.hdl.pod.read_mux import ReadMux
from systola.hdl.pod.read_widener import ReadWidener
from systola.hdl.pod.weight_broadcast import WeightBroadcast
from systola.hdl.pod.word_ports import NarrowPort
from systola.hdl.pod.write_mux import WriteMux
from systola.hdl.pod.write_widener import WriteWidener
from systola.hdl.transfers.burst_cutter import BurstCutter
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.hdl.transfers.host_read_port import HostReadPort
from systola.hdl.transfers.host_reader import HostReader
from systola.hdl.transfers.host_writer import WRITES_IN_FLIGHT, HostWriter
from systola.hdl.transfers.tile_reader import TileReader
from systola.hdl.transfers.weight_fetch import WeightFetch
from systola.hdl.transfers.weight_fifo import WeightFifo
from systola.verif.units.promise_bench import Bench
from systola.verif.units.unit import small_config

LINKED = small_config(links=True)
TRAINED = small_config(training=True)
ATTENTIVE = small_config(attention=True, tables=7)
SHARED = NarrowPort(address_bits=6, bus_bytes=1, word_bytes=2, max_burst_beats=4)
"""A core's port to a shared memory with words of two bytes."""
WORD = data.StructLayout({"word": 4})


def _ring_users(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Keep at most 5 payloads in the ring, and pop each at least two cycles after its push."""
    pushed = state.setdefault("pushed", [])
    count, visible = len(pushed), sum(age >= 2 for age in pushed)
    push = context.get(unit.push) and count < 5
    pop = context.get(unit.pop) and visible
    context.set(unit.push, push)
    context.set(unit.pop, pop)
    state["pushed"] = [age + 1 for age in pushed[bool(pop) :]] + [1] * bool(push)


def _walks(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer walks with small counts, and with flags that fit the counts."""
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
    """Send a beat only with a credit; output `credit` gives one back for each beat taken."""
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
    """Send only beats of the kind (lines or sums) that the offered row has.

    Beats of the other kind would never be taken.
    """
    context.set(unit.beat.payload.sums, context.get(unit.cleared.payload.sums))


def _some_rows(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer only commands of at least one row."""
    if not state.get("waits"):
        context.set(unit.command.payload.rows, drawn.randint(1, 4))
    state["waits"] = context.get(unit.command.valid) and not context.get(unit.command.ready)


def _answers_of_writes(
    context: Any, unit: Any, state: dict[str, Any], drawn: random.Random
) -> None:
    """Answer only writes that have begun, with at most WRITES_IN_FLIGHT at a time."""
    count = state.setdefault("count", 0)
    taken = unit.from_memory[exact_log2(BusPort.HOST_WRITE)].taken
    writes = context.get(unit.written) and count < WRITES_IN_FLIGHT
    answers = context.get(taken) and count > 0
    context.set(unit.written, writes)
    context.set(taken, answers)
    state["count"] = count + writes - answers


def _neighbours(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let the core come to barriers and wait there; each neighbour sends two tokens a barrier."""
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
    """Announce a read of the row's bank with each update that adds to an accumulator row."""
    update = unit.update
    adds = context.get(update.enable) and context.get(update.adds)
    context.set(update.reads, (1 << context.get(update.address) % 2) if adds else 0)
    context.set(update.shift, drawn.randrange(3))


def _some_beats(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer only runs of at least one beat."""
    if not state.get("waits"):
        context.set(unit.run.payload.beats, drawn.randint(1, 20))
        context.set(unit.run.payload.address, 4 * drawn.randrange(1 << 8))
    state["waits"] = context.get(unit.run.valid) and not context.get(unit.run.ready)


def _some_transfers(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer only transfers of at least one beat, row and block."""
    if not state.get("waits"):
        transfer = unit.transfer.payload
        for name in ("beats", "rows", "blocks"):
            context.set(transfer[name], drawn.randint(1, 3))
    state["waits"] = context.get(unit.transfer.valid) and not context.get(unit.transfer.ready)


def _reads_answered(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let the memory answer only requested bursts, and be silent for the first 200 cycles."""
    count = state.setdefault("count", 0)
    silent = state["cycle"] = state.get("cycle", 0) + 1
    if not count or silent < 200:
        context.set(unit.bus.rvalid, 0)
    ends = context.get(unit.bus.rvalid) and context.get(unit.bus.rready)
    ends = ends and context.get(unit.bus.rlast)
    asks = context.get(unit.bus.arvalid) and context.get(unit.bus.arready)
    state["count"] = count + bool(asks) - bool(ends)


def _tiles(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Start tiles only while the reader is idle."""
    context.set(unit.start, context.get(unit.start) and context.get(unit.idle))
    context.set(unit.tiles, drawn.randint(1, 3))


def _rows_with_room(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Reserve room for a row before it comes, and take only rows that are present."""
    reserved = state.setdefault("reserved", 0)
    reserves = context.get(unit.reserve) and not context.get(unit.full)
    pushes = context.get(unit.push) and reserved + reserves > 0
    context.set(unit.reserve, reserves)
    context.set(unit.push, pushes)
    context.set(unit.rows.pop, context.get(unit.rows.pop) and context.get(unit.rows.valid))
    state["reserved"] = reserved + reserves - pushes


def _words_of_reads(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let the memory send as many words as were requested, and no more."""
    if not state.get("waits"):
        context.set(unit.bus.arlen, drawn.randrange(4))
    state["waits"] = context.get(unit.bus.arvalid) and not context.get(unit.bus.arready)
    words = state.setdefault("words", 0)
    comes = context.get(unit.word_valid) and words > 0
    context.set(unit.word_valid, comes)
    asks = context.get(unit.request.valid) and context.get(unit.request.ready)
    state["words"] = words - comes + asks * (context.get(unit.request.payload.length) + 1)


def _beats_of_writes(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let a core send as many beats as it announced, and the memory take only requested words.

    The core is always ready for answers.
    """
    granted = state.setdefault("granted", 0)
    words = unit.words
    context.set(words.ready, context.get(words.ready) and granted > 0)
    asks = context.get(unit.request.valid) and context.get(unit.request.ready)
    granted += asks * (context.get(unit.request.payload.length) + 1)
    state["granted"] = granted - (context.get(words.valid) and context.get(words.ready))
    bus = unit.bus
    context.set(bus.bready, 1)
    if not state.get("address_waits"):
        context.set(bus.awlen, drawn.randrange(4))
    bursts = state.setdefault("bursts", [])
    if not state.get("beat_waits"):
        context.set(bus.wvalid, context.get(bus.wvalid) and bool(bursts))
        context.set(bus.wlast, bool(bursts) and bursts[0] == 0)
    state["beat_waits"] = context.get(bus.wvalid) and not context.get(bus.wready)
    state["address_waits"] = context.get(bus.awvalid) and not context.get(bus.awready)
    if context.get(bus.wvalid) and context.get(bus.wready):
        bursts[0] -= 1
        if bursts[0] < 0:
            bursts.pop(0)
    if context.get(bus.awvalid) and context.get(bus.awready):
        bursts.append(context.get(bus.awlen))


def _words_for_all(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let the memory send words of requested bursts only, and none in the first 150 cycles."""
    words = state.setdefault("words", 0)
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    comes = context.get(unit.word_valid) and words > 0 and cycle > 150
    context.set(unit.word_valid, comes)
    ends = comes and context.get(unit.last)
    asks = context.get(unit.request.valid) and context.get(unit.request.ready)
    state["words"] = words - ends + asks


def _pages(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let each page of registers answer its accesses, one at a time."""
    for number in range(3):
        page = unit.pages[number]
        for kind, asked, back in (("w", page.awvalid, "b"), ("r", page.arvalid, "r")):
            open_now = state.setdefault((kind, number), False)
            valid, ready = getattr(page, f"{back}valid"), getattr(page, f"{back}ready")
            if not open_now:
                context.set(valid, 0)
            takes = getattr(page, "awready" if kind == "w" else "arready")
            context.set(takes, context.get(takes) and not open_now)
            if kind == "w":
                context.set(page.wready, context.get(takes))
            if context.get(asked) and context.get(takes):
                state[kind, number] = True
            if context.get(valid) and context.get(ready):
                state[kind, number] = False


def _few_credits(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let no more credits be on the way to the sender than the sender can have spent."""
    kept = state.setdefault("kept", 0)
    comes = context.get(unit.receiver.credit) and kept < LINKED.link_beats
    context.set(unit.receiver.credit, comes)
    state["kept"] = kept + comes - context.get(unit.sender.credit)


def _swaps(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Swap a tile in only when it is ready; a row that has arrived stays until it is taken."""
    if state.get("there"):
        context.set(unit.arrived, 1)
    context.set(unit.swap, context.get(unit.swap) and context.get(unit.ready))
    state["there"] = context.get(unit.arrived) and not context.get(unit.take)


def _weight_commands(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer each Read_Weights of whole tiles until it is popped, and answer the unit's bursts.

    In some runs the memory is silent for the first 200 cycles.
    """
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    context.set(unit.stop, cycle > 300)
    if cycle == 1 or context.get(unit.queue.pop):
        command = unit.queue.command
        buffered = drawn.random() < state.setdefault("buffered", drawn.choice((0, 0.5)))
        tiles = drawn.randint(1, 3)
        context.set(command.from_buffer, buffered)
        context.set(command.transfer.address, 16 * drawn.randrange(1 << 6))
        context.set(command.transfer.beats, tiles if buffered else 4 * tiles)
    if cycle == 1 or state["popped"]:
        state["valid"] = True
    context.set(unit.queue.valid, state["valid"])
    state["popped"] = context.get(unit.queue.pop)
    bursts = state.setdefault("bursts", [])
    comes = (
        context.get(unit.bus.rvalid)
        and bursts
        and cycle > state.setdefault("silent", drawn.choice((0, 200)))
    )
    context.set(unit.bus.rvalid, bool(comes))
    context.set(unit.bus.rlast, bool(bursts) and bursts[0] == 0)
    context.set(unit.rows.pop, context.get(unit.rows.pop) and context.get(unit.rows.valid))
    if comes and context.get(unit.bus.rready):
        bursts[0] -= 1
        if bursts[0] < 0:
            bursts.pop(0)
    if context.get(unit.bus.arvalid) and context.get(unit.bus.arready):
        bursts.append(context.get(unit.bus.arlen))


def _entries(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Show each entry, for one to three lines or parameters, until it is popped."""
    if state.get("popped", True):
        first = drawn.randrange(4)
        context.set(unit.entries.command.kind, drawn.choice((Kind.BUFFER, Kind.PARAMETERS)))
        context.set(unit.entries.command.destination, first)
        context.set(unit.entries.command.last, first + drawn.randrange(3))
        state["entry"] = context.get(unit.entries.command)
    context.set(unit.entries.command, state["entry"])
    context.set(unit.transfers.unblocked, 0)
    state["popped"] = context.get(unit.entries.pop)


def _lines_out(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer each command until it is popped: up to 30 lines, each of one beat.

    The memory answers only bursts that were written.
    """
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    command, bus = unit.queue.command, unit.bus
    if cycle == 1 or context.get(unit.queue.pop):
        first, lines = drawn.randrange(8), drawn.randint(1, 30)
        context.set(command.buffer.base, first)
        context.set(command.buffer.end, first + lines)
        context.set(command.transfer.beats, 1)
        context.set(command.transfer.rows, lines)
        context.set(command.transfer.blocks, 1)
        context.set(command.transfer.address, 4 * drawn.randrange(64))
        state["command"] = context.get(command)
    context.set(command, state["command"])
    context.set(unit.queue.valid, 1)
    context.set(Value.cast(unit.queue.masks), 0)
    context.set(unit.stop, cycle > 350)
    written = state.setdefault("written", 0)
    answers = context.get(bus.bvalid) and written > 0
    context.set(bus.bvalid, answers)
    ends = context.get(bus.wvalid) and context.get(bus.wready) and context.get(bus.wlast)
    state["written"] = written - answers + bool(ends)


_POSITION = Position(line_bits=6, y_bits=4, x_bits=4)
_LEVELS = (
    Level(name="inner", count_bits=3, moves={"line": 6, "x": 4}),
    Level(name="outer", count_bits=3, moves={"line": 6, "y": 4}),
)


def _vectors_apart(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Show each issued vector in both cycles of a step.

    Vectors are issued so that the value of an earlier vector never comes after a later one's.
    """
    cycle = state["cycle"] = state.get("cycle", -1) + 1
    context.set(unit.first_turn, cycle % 2 == 0)
    if cycle % 2:
        context.set(unit.issue, state["issue"])
        context.set(unit.vector, state["vector"])
        return
    vector = unit.vector
    delay = 0
    if context.get(vector.use_sum):
        delay = SCALED_LATENCY if context.get(vector.scaled) else SUM_LATENCY
    issue = context.get(unit.issue) and cycle + delay >= state.get("free", 0)
    context.set(unit.issue, issue)
    state |= {"issue": issue, "vector": context.get(vector)}
    if issue:
        state["free"] = cycle + delay + 2


def _look_ups_apart(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Look up no result in a cycle in which a gathered line is looked up, or a curve ends."""
    cycle = state["cycle"] = state.get("cycle", -1) + 1
    gathers, ends = state.setdefault("gathers", set()), state.setdefault("ends", set())
    if context.get(unit.gathers):
        gathers.add(cycle + GATHER_STAGE)
    looks_up = context.get(unit.control.function) == Function.TABLE
    curve = looks_up and context.get(unit.control.wide)
    if (
        (looks_up and cycle in gathers)
        or (curve and cycle + 1 in gathers)
        or (not curve and cycle in ends)
    ):
        context.set(unit.valid, 0)
    elif curve and context.get(unit.valid):
        ends.add(cycle + CURVE_LATENCY)


def _results_apart(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let vectors end only so that no two results need the same cycle to write a line."""
    cycle = state["cycle"] = state.get("cycle", -1) + 1
    taken = state.setdefault("taken", set())
    if context.get(unit.finishes):
        if taken & {cycle + 1, cycle + 2}:
            context.set(unit.finishes, 0)
        else:
            taken |= {cycle + 1, cycle + 2}
    if context.get(unit.end.control.function) in GATES:
        return
    lines = {cycle, cycle + 1} if context.get(unit.end.control.wide) else {cycle}
    if taken & lines:
        context.set(unit.end.valid, 0)
    elif context.get(unit.end.valid):
        taken |= lines


def _ends_alone(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Keep results apart, and let partitions end only in cycles without an announcement."""
    _results_apart(context, unit, state, drawn)
    one, two = unit.announced, unit.announced_wide
    announces = context.get(unit.finishes)
    announces |= context.get(one.valid) and not context.get(one.control.wide)
    is_gate = context.get(two.control.function) in GATES
    announces |= context.get(two.valid) and context.get(two.control.wide) and not is_gate
    if announces:
        context.set(unit.entry_done, 0)


def _one_entry(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Let the sums of a partition come only after the entry before is written."""
    due = state.get("due", False) and not context.get(unit.done)
    if due:
        context.set(unit.comes, 0)
    state["due"] = due or context.get(unit.comes)


BENCHES = {
    "skid_buffer": Bench(make=lambda: SkidBuffer(payload=WORD)),
    "round_robin": Bench(make=lambda: RoundRobin(count=4)),
    "issued_vectors": Bench(
        make=lambda: IssuedVectors(config=small_config(columns_per_lane=2)),
        fixed={"made": 1},
        legal=_vectors_apart,
    ),
    "curve_stage": Bench(
        make=lambda: CurveStage(config=ATTENTIVE),
        legal=_look_ups_apart,
    ),
    "line_writer": Bench(make=lambda: LineWriter(config=ATTENTIVE), legal=_ends_alone),
    "partition_entries": Bench(
        make=lambda: PartitionEntries(config=ATTENTIVE), fixed={"loads.planes": 0}, legal=_one_entry
    ),
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
    "burst_cutter": Bench(
        make=lambda: BurstCutter(address_bits=12, beat_bits=6, bus_bytes=4, max_burst_beats=4),
        legal=_some_beats,
    ),
    "burst_planner": Bench(
        make=lambda: BurstPlanner(
            transfer=HostTransfer(config=LINKED), bus_bytes=4, max_burst_beats=4, pitch=4
        ),
        legal=_some_transfers,
    ),
    "host_read_port": Bench(make=lambda: HostReadPort(config=LINKED), legal=_reads_answered),
    "tile_reader": Bench(make=lambda: TileReader(config=TRAINED), legal=_tiles),
    "weight_fifo": Bench(make=lambda: WeightFifo(width=4, depth=3), legal=_rows_with_room),
    "read_mux": Bench(make=lambda: ReadMux(readers=3, address_bits=6, word_bytes=2)),
    "write_mux": Bench(make=lambda: WriteMux(writers=3, address_bits=6, word_bytes=2)),
    "read_widener": Bench(make=lambda: ReadWidener(port=SHARED), legal=_words_of_reads),
    "write_widener": Bench(make=lambda: WriteWidener(port=SHARED), legal=_beats_of_writes),
    "weight_broadcast": Bench(
        make=lambda: WeightBroadcast(cores=2, address_bits=4, word_bytes=2, patience=5),
        legal=_words_for_all,
    ),
    "page_router": Bench(make=lambda: PageRouter(cores=2), legal=_pages),
    "pod_control": Bench(make=lambda: PodControl(cores=2, settle=3)),
    "link_wire": Bench(
        make=lambda: LinkWire(config=LINKED, stages=1, uneven=7), legal=_few_credits
    ),
    "weight_loader": Bench(make=lambda: WeightLoader(config=LINKED), legal=_swaps),
    "weight_fetch": Bench(
        make=lambda: WeightFetch(config=TRAINED), fixed={"settled": 1}, legal=_weight_commands
    ),
    "host_reader": Bench(make=lambda: HostReader(config=LINKED), legal=_entries),
    "host_writer": Bench(make=lambda: HostWriter(config=LINKED), legal=_lines_out),
}
"""The benches by the name of the unit's file."""
