# SPDX-License-Identifier: Apache-2.0
"""Planted faults, each of which breaks one promise, with the unit in which it shows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.arch.registers import BusPort
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
from systola.verif.formal.proof import Fault
from systola.verif.units.promise_bench import Bench
from systola.verif.units.unit import small_config

LINKED = small_config(links=True)
TRAINED = small_config(training=True)
SHARED = NarrowPort(address_bits=6, bus_bytes=1, word_bytes=2, max_burst_beats=4)
"""Port of a core, on a memory of two bytes a word."""
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


def _some_beats(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Give runs of at least one beat."""
    if not state.get("waits"):
        context.set(unit.run.payload.beats, drawn.randint(1, 20))
        context.set(unit.run.payload.address, 4 * drawn.randrange(1 << 8))
    state["waits"] = context.get(unit.run.valid) and not context.get(unit.run.ready)


def _some_transfers(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Give transfers of at least one beat, row and block."""
    if not state.get("waits"):
        transfer = unit.transfer.payload
        for name in ("beats", "rows", "blocks"):
            context.set(transfer[name], drawn.randint(1, 3))
    state["waits"] = context.get(unit.transfer.valid) and not context.get(unit.transfer.ready)


def _reads_answered(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Answer only bursts that were requested, which a long wait may lie before."""
    count = state.setdefault("count", 0)
    silent = state["cycle"] = state.get("cycle", 0) + 1
    if not count or silent < 200:
        context.set(unit.bus.rvalid, 0)
    ends = context.get(unit.bus.rvalid) and context.get(unit.bus.rready)
    ends = ends and context.get(unit.bus.rlast)
    asks = context.get(unit.bus.arvalid) and context.get(unit.bus.arready)
    state["count"] = count + bool(asks) - bool(ends)


def _tiles(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Ask for tiles while the reader is idle."""
    context.set(unit.start, context.get(unit.start) and context.get(unit.idle))
    context.set(unit.tiles, drawn.randint(1, 3))


def _rows_with_room(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Reserve room for a row before it comes, and take rows that are there."""
    reserved = state.setdefault("reserved", 0)
    reserves = context.get(unit.reserve) and not context.get(unit.full)
    pushes = context.get(unit.push) and reserved + reserves > 0
    context.set(unit.reserve, reserves)
    context.set(unit.push, pushes)
    context.set(unit.row_take, context.get(unit.row_take) and context.get(unit.row_valid))
    state["reserved"] = reserved + reserves - pushes


def _words_of_reads(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Send the words of the requests."""
    if not state.get("waits"):
        context.set(unit.bus.arlen, drawn.randrange(4))
    state["waits"] = context.get(unit.bus.arvalid) and not context.get(unit.bus.arready)
    words = state.setdefault("words", 0)
    comes = context.get(unit.word_valid) and words > 0
    context.set(unit.word_valid, comes)
    asks = context.get(unit.request.valid) and context.get(unit.request.ready)
    state["words"] = words - comes + asks * (context.get(unit.request.payload.length) + 1)


def _beats_of_writes(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Send as many beats as were announced, and take words of requests that were taken.

    A core is ready for answers.
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
    """Send words of bursts that were asked for, late."""
    words = state.setdefault("words", 0)
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    comes = context.get(unit.word_valid) and words > 0 and cycle > 150
    context.set(unit.word_valid, comes)
    ends = comes and context.get(unit.last)
    asks = context.get(unit.request.valid) and context.get(unit.request.ready)
    state["words"] = words - ends + asks


def _pages(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Answer the accesses of each page, one at a time."""
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
    """Give back as many credits as a sender has spent at most."""
    kept = state.setdefault("kept", 0)
    comes = context.get(unit.receiver.credit) and kept < LINKED.link_beats
    context.set(unit.receiver.credit, comes)
    state["kept"] = kept + comes - context.get(unit.sender.credit)


def _swaps(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Swap a tile in when it is ready; a row that has arrived stays until it is taken."""
    if state.get("there"):
        context.set(unit.arrived, 1)
    context.set(unit.swap, context.get(unit.swap) and context.get(unit.ready))
    state["there"] = context.get(unit.arrived) and not context.get(unit.take)


def _weight_commands(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Offer whole tiles until they are popped, and answer what was requested, after a while."""
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    context.set(unit.stop, cycle > 300)
    if cycle == 1 or context.get(unit.command_pop):
        command = unit.command
        buffered = drawn.random() < state.setdefault("buffered", drawn.choice((0, 0.5)))
        tiles = drawn.randint(1, 3)
        context.set(command.from_buffer, buffered)
        context.set(command.transfer.address, 16 * drawn.randrange(1 << 6))
        context.set(command.transfer.beats, tiles if buffered else 4 * tiles)
    if cycle == 1 or state["popped"]:
        state["valid"] = True
    context.set(unit.command_valid, state["valid"])
    state["popped"] = context.get(unit.command_pop)
    bursts = state.setdefault("bursts", [])
    comes = (
        context.get(unit.bus.rvalid)
        and bursts
        and cycle > state.setdefault("silent", drawn.choice((0, 200)))
    )
    context.set(unit.bus.rvalid, bool(comes))
    context.set(unit.bus.rlast, bool(bursts) and bursts[0] == 0)
    context.set(unit.row_take, context.get(unit.row_take) and context.get(unit.row_valid))
    if comes and context.get(unit.bus.rready):
        bursts[0] -= 1
        if bursts[0] < 0:
            bursts.pop(0)
    if context.get(unit.bus.arvalid) and context.get(unit.bus.arready):
        bursts.append(context.get(unit.bus.arlen))


def _entries(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Show an entry until it is popped, with few addresses and lines without a tail."""
    if state.get("popped", True):
        first = drawn.randrange(4)
        context.set(unit.entry.kind, drawn.choice((Kind.BUFFER, Kind.PARAMETERS)))
        context.set(unit.entry.destination, first)
        context.set(unit.entry.last, first + drawn.randrange(3))
        state["entry"] = context.get(unit.entry)
    context.set(unit.entry, state["entry"])
    context.set(unit.transfer_valid, 0)
    state["popped"] = context.get(unit.entry_pop)


def _lines_out(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Show a command of some lines, each a run, until it is done, and answer the bursts written."""
    cycle = state["cycle"] = state.get("cycle", 0) + 1
    command, bus = unit.command, unit.bus
    if cycle == 1 or context.get(unit.done):
        first, lines = drawn.randrange(8), drawn.randint(1, 30)
        context.set(command.buffer.base, first)
        context.set(command.buffer.end, first + lines)
        context.set(command.transfer.beats, 1)
        context.set(command.transfer.rows, lines)
        context.set(command.transfer.blocks, 1)
        context.set(command.transfer.address, 4 * drawn.randrange(64))
        state["command"] = context.get(command)
    context.set(command, state["command"])
    context.set(unit.command_valid, 1)
    context.set(Value.cast(unit.masks), 0)
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
    "weight_fetch": Bench(make=lambda: WeightFetch(config=TRAINED), legal=_weight_commands),
    "host_reader": Bench(make=lambda: HostReader(config=LINKED), legal=_entries),
    "host_writer": Bench(make=lambda: HostWriter(config=LINKED), legal=_lines_out),
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
    Broken(
        bench="burst_cutter",
        promise="a burst changes before it is taken",
        old="m.If(self.run.ready | self.burst.ready)",
        new="m.If(1)",
    ),
    Broken(
        bench="burst_cutter",
        promise="a burst crosses a multiple of the largest size",
        old="run.beats - 1, ~first_beat)",
        new="run.beats - 1, largest)",
    ),
    Broken(
        bench="burst_cutter",
        promise="a run is taken before the last one ends",
        old="(is_last_burst & self.burst.ready)",
        new="self.burst.ready",
    ),
    Broken(
        bench="burst_cutter",
        promise="a run has no last burst",
        old="next_is_last.eq(bursts_remaining == Mux(",
        new="next_is_last.eq(bursts_remaining == 0 * Mux(",
    ),
    Broken(
        bench="burst_planner",
        promise="a transfer changes before its last run goes to the cutter",
        old="run_valid & cutter.run.ready & run_is_last",
        new="run_valid & cutter.run.ready & row_is_last",
    ),
    Broken(
        bench="burst_planner",
        promise="another row is taken for the last one",
        old="row_is_last.eq(rows_remaining == 2)",
        new="row_is_last.eq(rows_remaining == 1)",
    ),
    Broken(
        bench="burst_planner",
        promise="another block is taken for the last one",
        old="block_is_last.eq(blocks_remaining == 2)",
        new="block_is_last.eq(blocks_remaining == 1)",
    ),
    Broken(
        bench="host_read_port",
        promise="more reads are under way than may be",
        old="READS_IN_FLIGHT - 2",
        new="READS_IN_FLIGHT",
    ),
    Broken(
        bench="host_read_port",
        promise="data and fetch are granted at once",
        old=" & ~(fetch_waits & fetch_is_urgent)",
        new="",
    ),
    Broken(
        bench="host_read_port",
        promise="a burst is sent while the port stops",
        old="has_room & ~self.stop",
        new="has_room",
    ),
    Broken(
        bench="host_read_port",
        promise="a beat goes to both sides",
        old="(bus.rid == number)",
        new="(bus.rid >= number)",
    ),
    Broken(
        bench="host_read_port",
        promise="the port is quiet while reads are under way",
        old="(bursts_under_way == 0) & ~burst_began & ~burst_sent",
        new="~burst_began & ~burst_sent",
    ),
    Broken(
        bench="tile_reader",
        promise="a tile too many is read",
        old="busy.eq(tiles_remaining != 1)",
        new="busy.eq(tiles_remaining != 0)",
    ),
    Broken(
        bench="tile_reader",
        promise="a row is read that has no room",
        old="busy & self.room",
        new="busy",
    ),
    Broken(
        bench="tile_reader",
        promise="the reader is idle while rows come",
        old=" | rows_coming[:-1].any()",
        new="",
    ),
    Broken(
        bench="weight_fifo",
        promise="a pointer of the FIFO is beyond its rows",
        old="Mux(pointer == depth - 1, 0, pointer + 1)",
        new="pointer + 1",
    ),
    Broken(
        bench="weight_fifo",
        promise="a row of weights comes that has no room",
        old="rows_stored.eq(rows_stored - 1)",
        new="rows_stored.eq(rows_stored)",
    ),
    Broken(
        bench="read_mux",
        promise="an address changes before memory takes it",
        old="m.If(address_free)",
        new="m.If(1)",
    ),
    Broken(
        bench="read_mux",
        promise="a burst belongs to no reader",
        old="one_of(turn.chosen, range(self._readers))",
        new="one_of(turn.chosen, range(1, self._readers + 1))",
    ),
    Broken(
        bench="write_mux",
        promise="an address of a write changes before memory takes it",
        old="m.If(bus.awready)",
        new="m.If(1)",
    ),
    Broken(
        bench="write_mux",
        promise="a word changes before memory takes it",
        old="m.If(data_free)",
        new="m.If(1)",
    ),
    Broken(
        bench="write_mux",
        promise="two writers send their words",
        old="sending_writer.eq(turn.chosen)",
        new="sending_writer.eq(turn.wants)",
    ),
    Broken(
        bench="write_mux",
        promise="a burst begins among the words of another",
        old="(~sending_writer.any() | last_word_goes) & ",
        new="",
    ),
    Broken(
        bench="write_mux",
        promise="a burst belongs to no writer",
        old="one_of(turn.chosen, range(count))",
        new="one_of(turn.chosen, range(1, count + 1))",
    ),
    Broken(
        bench="read_widener",
        promise="a request changes before it is taken",
        old="m.If(request.ready)",
        new="m.If(1)",
    ),
    Broken(
        bench="read_widener",
        promise="a beat for a core changes before it is taken",
        old="m.If(free)",
        new="m.If(1)",
    ),
    Broken(
        bench="read_widener",
        promise="more places are free than there are",
        old="+ words.r_en)",
        new="+ words.r_rdy)",
    ),
    Broken(
        bench="read_widener",
        promise="a word comes that has no room",
        old="request.payload.length.eq(word_count)",
        new="request.payload.length.eq(word_count + 1)",
    ),
    Broken(
        bench="write_widener",
        promise="a request changes before it is taken",
        old="bursts.retire.eq(burst_goes)",
        new="bursts.retire.eq(request.valid)",
    ),
    Broken(
        bench="write_widener",
        promise="a word changes before it is taken",
        old="words.r_en.eq(shown.ready)",
        new="words.r_en.eq(1)",
    ),
    Broken(
        bench="write_widener",
        promise="more places are free than there are",
        old="(words.r_en & words.r_rdy)",
        new="words.r_en",
    ),
    Broken(
        bench="write_widener",
        promise="a word is complete that has no room",
        old="depth=places + 1)",
        new="depth=2)",
    ),
    Broken(
        bench="weight_broadcast",
        promise="a request changes before it is taken",
        old="m.If(request.ready)",
        new="m.If(1)",
    ),
    Broken(
        bench="weight_broadcast",
        promise="more bursts are under way than may be",
        old="                & (under_way != BURSTS_AHEAD)\n",
        new="",
    ),
    Broken(
        bench="weight_broadcast",
        promise="a burst is granted to no request",
        old="Mux(burst_goes, _SETTLES, ",
        new="Mux(burst_goes, 0, ",
    ),
    Broken(
        bench="weight_broadcast",
        promise="a word that nobody asked for",
        old="under_way + burst_goes - ends",
        new="under_way + burst_goes - self.word_valid",
    ),
    Broken(
        bench="page_router",
        promise="an access is for two pages",
        old="Const(1) << number",
        new="Const(3) << number",
    ),
    Broken(
        bench="page_router",
        promise="a write is taken for no page",
        old="[write_taken.eq(0), writes.eq(0)]",
        new="[writes.eq(0)]",
    ),
    Broken(
        bench="page_router",
        promise="a read is taken for no page",
        old="[read_taken.eq(0), reads.eq(0)]",
        new="[reads.eq(0)]",
    ),
    Broken(
        bench="page_router",
        promise="an answer to a write is withdrawn",
        old="m.If(bus.bvalid & bus.bready)",
        new="m.If(bus.bvalid)",
    ),
    Broken(
        bench="page_router",
        promise="an answer to a read is withdrawn",
        old="m.If(bus.rvalid & bus.rready)",
        new="m.If(bus.rvalid)",
    ),
    Broken(
        bench="pod_control",
        promise="a pod has succeeded and failed",
        old="                & (fault_found == cause_known)\n",
        new="",
    ),
    Broken(
        bench="pod_control",
        promise="the cause of no fault is known",
        old="                cause_known.eq(0),\n",
        new="",
    ),
    Broken(
        bench="pod_control",
        promise="the cores start without a program",
        old=" & ~self.soft_reset),\n            self.alive",
        new="),\n            self.alive",
    ),
    Broken(
        bench="pod_control",
        promise="another fault is taken for a timeout of links",
        old="self.in_vain.eq(self.causes[self.first] == Fault",
        new="self.in_vain.eq(self.causes[self.first] != Fault",
    ),
    Broken(
        bench="link_wire",
        promise="a wire keeps more credits than there are",
        old="credits_kept + credit - credit_goes",
        new="credits_kept + credit",
    ),
    Broken(
        bench="weight_loader",
        promise="two rows are loaded at once",
        old="next_row.rotate_left(1)",
        new="(next_row | next_row.rotate_left(1))",
    ),
    Broken(
        bench="weight_loader",
        promise="a row is taken that has not arrived",
        old="tile_begins | (self.arrived & inside)",
        new="tile_begins | inside",
    ),
    Broken(
        bench="weight_loader",
        promise="a tile that is ready is lost",
        old="tile_loaded.eq(tile_begins | tile_waits)",
        new="tile_loaded.eq(tile_begins)",
    ),
    Broken(
        bench="weight_loader",
        promise="the last swap has left the array too soon",
        old="cooled.eq(cooling_remaining == 0)",
        new="cooled.eq(1)",
    ),
    Broken(
        bench="weight_fetch",
        promise="more reads of weights are under way than may be",
        old="                | (last_one & (burst_asked | burst_asks))\n",
        new="",
    ),
    Broken(
        bench="weight_fetch",
        promise="weights are requested after a stop",
        old=" & ~reads_full & ~self.stop",
        new=" & ~reads_full",
    ),
    Broken(
        bench="weight_fetch",
        promise="a row of weights for a full FIFO",
        old="bus.rvalid & ~fifo.full & beat_allowed",
        new="bus.rvalid & beat_allowed",
    ),
    Broken(
        bench="weight_fetch",
        promise="tiles are asked for before the last have come",
        old="                & reader.idle\n                & no_command",
        new="                & no_command",
    ),
    Broken(
        bench="host_reader",
        promise="a line changes before the buffer takes it",
        old="m.If(write_free)",
        new="m.If(1)",
    ),
    Broken(
        bench="host_reader",
        promise="two planes are written at once",
        old="plane.rotate_left(1)",
        new="(plane | plane.rotate_left(1))",
    ),
    Broken(
        bench="host_reader",
        promise="a plane is a line, too",
        old="moved.buffer.eq(line_moves & (kind == Kind.BUFFER))",
        new="moved.buffer.eq(line_moves)",
    ),
    Broken(
        bench="host_writer",
        promise="a beat changes before memory takes it",
        old="m.If(channel_free)",
        new="m.If(1)",
    ),
    Broken(
        bench="host_writer",
        promise="a burst is kept that has no room",
        old="ahead[BURSTS_AHEAD - 2] | ",
        new="",
    ),
    Broken(
        bench="host_writer",
        promise="a line is kept that has no room",
        old=" & ~lines_held[exact_log2(LINES_AHEAD)]",
        new="",
    ),
    Broken(
        bench="host_writer",
        promise="a burst leaves that is not there",
        old="channel_free & some_bursts & (",
        new="channel_free & (",
    ),
    Broken(
        bench="host_writer",
        promise="a line leaves that is not there",
        old="beat_goes & last_part & some_lines",
        new="beat_goes & last_part",
    ),
)
