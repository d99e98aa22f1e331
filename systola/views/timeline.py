# SPDX-License-Identifier: Apache-2.0
"""The recorded run of a program: the cycles of each instruction in its unit, and its waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Executor, Instruction, Opcode, decode, way_of
from systola.golden.scalar import ScalarUnit
from systola.sim.events import (
    AWAITING_WEIGHTS,
    ISSUE_WAITS,
    LEVEL_NAMES,
    LISTS,
    QUEUES,
    WEIGHTS,
    Event,
    Queue,
    list_of,
    waits,
)
from systola.sim.recording import Recording


class Track(StrEnum):
    """A unit, by its name in a timeline."""

    FETCH = "fetch"
    ISSUE = "decode and issue"
    HOST_READ = "host read"
    WEIGHT_FETCH = "weight fetch"
    ARRAY = "array"
    ACTIVATION = "activation"
    HOST_WRITE = "host write"


TRACKS = {
    Executor.HOST_READER: Track.HOST_READ,
    Executor.WEIGHT_FETCH: Track.WEIGHT_FETCH,
    Executor.MATRIX_UNIT: Track.ARRAY,
    Executor.ACTIVATION_UNIT: Track.ACTIVATION,
    Executor.HOST_WRITER: Track.HOST_WRITE,
}
"""Units with instructions that are shown."""
ISSUE_CYCLES = 2
"""Cycles from the offer of an instruction to its issue, if the instruction waits for nothing."""
_COLUMNS = {name: number for number, name in enumerate(LEVEL_NAMES)}


@dataclass(frozen=True)
class Wait:
    """A record of an instruction that waited for another instruction."""

    source: int
    """Place, in Timeline.work, of the last instruction that it had to wait for."""
    resource: str
    cycles: int


@dataclass
class Work:
    """An instruction and the cycles in which its unit works on it. Cycles count from START; in
    cycle `end` the unit is done with it.
    """

    number: int
    """Number of the instruction in the program."""
    entry: Instruction
    operands: dict[str, int]
    """Operands with index registers added."""
    track: Track | None
    """Unit of the instruction; None if it is only issued."""
    offered: int
    """First cycle in which it is the next instruction to be issued."""
    issued: int
    begin: int = -1
    """Cycle in which the unit began; -1 if it never began."""
    end: int = -1
    waits: list[Wait] = field(default_factory=list[Wait])
    awaited_weights: int = 0
    """Cycles in which the array waited for its weights."""


@dataclass(frozen=True)
class Timeline:
    """The recorded run of a program: when each instruction ran, and the cause of each wait."""

    work: tuple[Work, ...]
    """Instructions in the order of their issue."""
    fetches: tuple[tuple[int, int], ...]
    """Begin and end of bursts of instructions, in cycles."""


def executed(program: bytes) -> Iterator[tuple[int, Instruction, dict[str, int]]]:
    """Yield the instructions of a program in the order in which they run, with effective operands.

    Instructions that a loop repeats come again.
    """
    scalar, pc = ScalarUnit(), 0
    while True:
        decoded = decode(program[pc * INSTRUCTION_BYTES : (pc + 1) * INSTRUCTION_BYTES])
        if decoded is None:
            return
        entry, fields = decoded
        operands = scalar.effective(entry, fields)
        yield pc, entry, operands
        pc += 1
        if entry.opcode == Opcode.SET_REGISTER:
            scalar.set_register(**operands)
        elif entry.opcode == Opcode.LOOP:
            scalar.open_loop(operands["count"], pc)
        elif entry.opcode == Opcode.END_LOOP:
            back = scalar.end_loop()
            pc = pc if back is None else back
        elif entry.opcode == Opcode.HALT:
            return


def make_timeline(config: Config, image: Image, recording: Recording) -> Timeline:
    """Return the recorded run of `image` on a machine of configuration `config`."""
    return _Course(config, image, recording).run()


def take_lane(free: list[int], begin: int, end: int) -> int:
    """Return the first of a unit's rows in the picture that is free in cycle `begin`, and occupy it
    until `end`.

    `free` has for each row the cycle from which on it is free.
    """
    lane = next(i for i, since in enumerate(free) if since <= begin)
    free[lane] = end
    return lane


class _Course:
    """A reader of events that keeps queues and lists as the scoreboard does."""

    def __init__(self, config: Config, image: Image, recording: Recording) -> None:
        self._config = config
        self._recording = recording
        self._program = executed(image.program)
        self._work: list[Work] = []
        self._rows: list[int] = []
        """Row of the recording in which each instruction was issued or, later, in which it began.
        """
        self._lists = {name: deque[int]() for name in LISTS}
        self._pushed = dict.fromkeys(LISTS, 0)
        """Number of instructions that have entered each list."""
        self._queues = {queue.name: deque[int]() for queue in QUEUES}
        self._free = dict.fromkeys(self._queues, 0)
        """For each queue: the first row of the recording in which its oldest instruction waits."""
        self._issue_row = 0
        self._in_the_way: dict[int, dict[str, int]] = {}
        """For each instruction and each of its masks, the instruction that it may have to wait for.
        """
        self._weight_queue = deque[int]()
        self._weight_reads = deque[tuple[int, int]]()
        """For each weight read under way: the read, and the total number of beats that have been
        moved when its last beat has come.
        """
        self._beats = 0
        self._fetching = deque[int]()
        self._fetches: list[tuple[int, int]] = []

    def run(self) -> Timeline:
        handlers: dict[Event, Callable[[int, int], None]] = {
            # Masks refer to the content of the lists before any instruction leaves them in this
            # cycle.
            Event.MASKED: self._mask,
            **{event: partial(self._leave, name) for name, (event, _) in LISTS.items()},
            **{queue.begin: partial(self._begin, queue) for queue in QUEUES if queue.begin},
            Event.WEIGHTS_BEGIN: self._begin_weights,
            Event.WEIGHT_BURST_END: self._end_weights,
            Event.FETCH_BEGIN: lambda row, cycle: self._fetching.append(cycle),
            Event.FETCH_END: self._end_fetch,
            Event.ISSUE: self._issue,
        }
        order = [(1 << event, handler) for event, handler in handlers.items()]
        rows = zip(self._recording.cycles.tolist(), self._recording.events.tolist(), strict=True)
        for row, (cycle, now) in enumerate(rows):
            for bit, handler in order:
                if now & bit:
                    handler(row, cycle)
        return Timeline(tuple(self._work), tuple(self._fetches))

    def _issue(self, row: int, cycle: int) -> None:
        number = int(self._recording.values[row])
        pc, entry, operands = next(self._program)
        while pc != number:  # some instructions, such as Loop, end before the issue
            pc, entry, operands = next(self._program)
        waited = self._cycles(ISSUE_WAITS, self._issue_row, row)
        self._issue_row = row
        before = self._work[-1].issued if self._work else -1
        track = TRACKS.get(entry.executor)
        index = len(self._work)
        self._work.append(
            Work(
                number=pc,
                entry=entry,
                operands=operands,
                track=track,
                offered=max(before + 1, cycle - waited - ISSUE_CYCLES),
                issued=cycle,
            )
        )
        self._rows.append(row)
        way = way_of(entry)
        if track is None or way is None:
            return
        for name in way.lists:
            self._lists[name].append(index)
            self._pushed[name] += 1
        if way.lists:
            self._queues[way.queue].append(index)
        if not way.lists or operands.get("from_buffer"):
            self._weight_queue.append(index)

    def _way(self, work: Work) -> tuple[Queue, tuple[str, ...]]:
        """Return the queue of an instruction, and the lists of the scoreboard that it passes
        through in order.
        """
        way = way_of(work.entry)
        assert way is not None
        return next(queue for queue in QUEUES if queue.name == way.queue), way.lists

    def _mask(self, row: int, cycle: int) -> None:
        index = len(self._work) - 1
        queue, _ = self._way(self._work[index])
        value = int(self._recording.values[row])
        bits = (self._config.queue_depth - 1).bit_length()
        found: dict[str, int] = {}
        for number, mask in enumerate(queue.masks):
            field = value >> number * (1 + 2 * bits)
            if field & 1:
                # Places in the ring of a list are counted from the list's first instruction on.
                name = list_of(mask)
                ahead = ((field >> 1) - self._pushed[name]) % (1 << bits) - (1 << bits)
                found[mask] = self._lists[name][ahead]
        self._in_the_way[index] = found

    def _begin(self, queue: Queue, row: int, cycle: int) -> None:
        index = self._queues[queue.name].popleft()
        self._work[index].begin = cycle
        if queue.waits_before:
            self._waited(queue, index, row)
        self._rows[index] = row

    def _leave(self, name: str, row: int, cycle: int) -> None:
        index = self._lists[name].popleft()
        work = self._work[index]
        queue, lists = self._way(work)
        if name == lists[0] and not queue.waits_before:
            if queue.begin is None:
                self._queues[queue.name].popleft()
                first = max(self._rows[index], self._free[queue.name])
                work.begin = int(self._recording.cycles[first]) + 1
            if work.track == Track.ARRAY:
                first = max(self._rows[index], self._free[queue.name])
                work.awaited_weights = self._cycles(AWAITING_WEIGHTS, first, row)
            self._waited(queue, index, row)
        if name == lists[-1]:
            work.end = cycle + 1
            self._in_the_way.pop(index, None)

    def _waited(self, queue: Queue, index: int, row: int) -> None:
        """Record the waits of an instruction, up to row `row` of the recording. There the next
        instruction begins to wait.
        """
        first = max(self._rows[index], self._free[queue.name])
        self._free[queue.name] = row
        for name, source in self._in_the_way[index].items():
            cycles = self._cycles(waits(queue, name), first, row)
            if cycles:
                self._work[index].waits.append(Wait(source, LISTS[list_of(name)][1], cycles))

    def _cycles(self, level: str, first: int, last: int) -> int:
        """Return the number of cycles, after row `first` of the recording up to row `last`, in
        which a level was high.
        """
        totals = self._recording.totals[:, _COLUMNS[level]]
        return int(totals[last]) - int(totals[first])

    def _begin_weights(self, row: int, cycle: int) -> None:
        index = self._weight_queue.popleft()
        work = self._work[index]
        if work.entry.opcode != Opcode.READ_WEIGHTS:
            return  # this multiplication takes weights from the buffer
        work.begin = cycle
        tile_beats = self._config.tile_bytes // self._config.weight_bus_bytes
        self._beats += work.operands["count"] * tile_beats
        self._weight_reads.append((index, self._beats))

    def _end_weights(self, row: int, cycle: int) -> None:
        moved = int(self._recording.totals[row, _COLUMNS[WEIGHTS]])
        while self._weight_reads and self._weight_reads[0][1] <= moved:
            index, _ = self._weight_reads.popleft()
            self._work[index].end = cycle + 1

    def _end_fetch(self, row: int, cycle: int) -> None:
        self._fetches.append((self._fetching.popleft(), cycle + 1))
