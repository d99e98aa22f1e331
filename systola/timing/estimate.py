# SPDX-License-Identifier: Apache-2.0
"""An estimate of a program's cycles that does not run the program.

A walk goes through the program in its order, an instruction at a time. Units work in order, and an
instruction waits for older ones only. So the times of an instruction follow from the times of older
instructions. These decide when the instruction is fetched, when its queue and unit have room, and
when its lines and rows are there.

A loop is walked through until its course repeats itself. A segment is a piece of a loop. If the
walk comes to a segment in a state that it has seen there, it takes over the known events. The
cycles of these events move with the start of the segment.

The model leaves out:

- waits for a bank of the buffer or of the accumulators, except as in timing/bank_conflicts.py
- bursts cut at pages
- a fetch that overtakes a read, if the read was on its way from its queue to the bus before the
  fetch was requested
- the time of each single stall of a memory: stalls count with their mean
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    REGISTERS,
    TAGS_WAITING,
    Instruction,
    Opcode,
    decode,
)
from systola.hdl.control.sequencer import ISSUE_INTERVAL
from systola.timing.activation_unit import ActivationState, ActivationUnit, result_lines
from systola.timing.bank_conflicts import ComingReads, OtherReads
from systola.timing.fetch import Fetch, FetchState
from systola.timing.host_read_port import HostReadPort, PortState
from systola.timing.host_reader import HostReader, ReaderState
from systola.timing.host_writer import HostWriter
from systola.timing.matrix_unit import MatrixState, MatrixUnit
from systola.timing.memory_speed import MemorySpeed
from systola.timing.recent import recent
from systola.timing.record import Estimate, Mark, Part, Record, Unit
from systola.timing.regions import Regions, RegionsState
from systola.timing.runs import run_of
from systola.timing.span import Span
from systola.timing.unit_of import COMPARED, UNIT_OF, WAIT_FOR
from systola.timing.weight_fetch import WeightFetch, WeightState
from systola.timing.window import WindowGrid

QUEUED = 1
"""Cycles from the issue to the start of an instruction, in addition to the unit's own latency."""
SEEN = 1
"""Cycles from the end of an instruction to the first event that waited for it, such as an issue."""
HALT = 3
"""Cycles from the end of all work to DONE."""
STEADY = 2
"""Number of successive iterations that equal the iteration before, cycle by cycle.

After these iterations a loop is steady: all later iterations are taken to have the same cycles.
"""
LAST = 2
"""Number of last iterations of a loop that are always walked through.

Later instructions depend on the addresses that these iterations use.
"""
UNSTEADY = 64
"""Number of iterations after which a loop that is not yet steady is no longer walked through.

The remaining iterations count with the mean duration of the last half of the UNSTEADY iterations.
"""
SAME = 1e-3
"""Largest difference, in cycles, of two times that count as the same."""
SEGMENT = 32
"""Number of instructions in a loop between comparisons of the walk's state with earlier states.

The state is also compared at the end of each layer. A comparison takes as long as a walk through a
few instructions.
"""
LOOKED_AHEAD = 512
"""Largest number of lines in one ComingReads. A short instruction reads about as many."""

WAITS = (Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST, Opcode.SYNCHRONIZE_HOST)
READERS = (Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR)
BARRIERS = (Opcode.LOOP, Opcode.END_LOOP, Opcode.HALT, *WAITS)
"""Instructions beyond which the walk does not look ahead."""


def estimate(config: Config, image: Image, memory: MemorySpeed | None = None) -> Estimate:
    """Return the cycles of `image` with the memories `memory`, by default without any delay.

    The program must end with Halt and break no rule. If the program waits for the host, the host
    resumes it at once. Raises ValueError if the program leaves the image or uses a window that it
    has not set.
    """
    known = _estimates.setdefault(image, {})
    key = config, memory or MemorySpeed()
    if key not in known:
        known[key] = Walk(config, image, key[1]).run()
    return known[key]


_estimates: WeakKeyDictionary[Image, dict[tuple[Config, MemorySpeed], Estimate]] = (
    WeakKeyDictionary()
)
"""Estimates of all images in use.

Compilation makes an estimate, and a report asks for the same estimate later.
"""


@dataclass(frozen=True)
class UnitWork:
    """The estimated work of a unit on an instruction, in cycles since START."""

    number: int
    """Number of the instruction, counted from 0.

    A fetch of weights has the number of the instruction that uses the weights.
    """
    unit: Unit
    begin: float
    end: float


def estimated_work(
    config: Config, image: Image, memory: MemorySpeed | None = None
) -> tuple[UnitWork, ...]:
    """Return the work of all units on each executed instruction, with all iterations of loops.

    No iteration is skipped, so some 10,000 executed instructions take a second.
    """
    work: list[UnitWork] = []
    Walk(config, image, memory or MemorySpeed(), work).run()
    return tuple(work)


@dataclass
class _Loop:
    """A loop of the program in which the walk is at present."""

    start: int
    left: int
    begun: float
    registers: list[int]
    mark: Mark
    noted: int
    """Length of the walk's `_notes` at the start of the present iteration."""
    before: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Times noted in the iteration before, and its end, in cycles since its start."""
    steady: int = 0
    """Number of successive iterations that were like their predecessor, cycle by cycle."""
    periods: list[float] = field(default_factory=list[float])
    resumed: tuple[float, Record] | None = None
    """Cycle and record with which the walk goes on after the present iteration.

    The cycle and the record are known before the iteration, as they follow from the skipped
    iterations. None if no iterations were skipped just before the present one.
    """


class _State(NamedTuple):
    """The state of a walk: all facts that later times depend on, except loops and registers."""

    window: WindowGrid | None
    ends: tuple[tuple[float, ...], ...]
    tagged: tuple[float, ...]
    tags_in_a_row: bool
    port: PortState
    fetch: FetchState
    regions: RegionsState
    weights: WeightState
    matrix: MatrixState
    activation: ActivationState
    reader: ReaderState
    writer: float


_Place = tuple[int, int]
"""Type of a place of the walk: the next instruction's number, and the state's number in `_states`.
"""


@dataclass(frozen=True)
class _Segment:
    """A piece of a program without loops or registers, with times relative to its start."""

    cycles: float
    notes: list[float]
    part: Part
    next_place: _Place
    next_state: _State


class Walk:
    """The walk of one core through its program, an instruction at a time."""

    def __init__(
        self,
        config: Config,
        image: Image,
        memory: MemorySpeed,
        work: list[UnitWork] | None = None,
    ) -> None:
        """Begin a walk.

        If `work` is a list, the walk adds the work of all units to the list, and skips no
        iteration.
        """
        self._work = work
        self._number = 0
        self._pc = 0
        """Number of the next instruction in the program, counted from 0."""
        self._config = config
        self._program = image.program
        self._decoded: dict[int, tuple[Instruction, dict[str, int]]] = {}
        self._indexed: dict[int, list[tuple[str, int]]] = {}
        """For each instruction: its operands with an index register, and the register of each."""
        self._scale_used: dict[int, bool] = {}
        """For each instruction: True if the present scale may still be used in it or after it."""
        self._registers = [0] * REGISTERS
        self._loops: list[_Loop] = []
        self._port = HostReadPort(memory)
        self._fetch = Fetch(config, self._port)
        self._regions = Regions(config)
        self._weights = WeightFetch(config, memory)
        self._activation = ActivationUnit(config, self._regions)
        self._matrix = MatrixUnit(config, self._regions, self._weights, self._activation.writers)
        self._reader = HostReader(config, self._regions, self._port)
        self._writer = HostWriter(config, self._regions, memory)
        self._windows: dict[tuple[int, ...], WindowGrid] = {}
        self._window: WindowGrid | None = None
        self._issued = 0.0
        depth = config.queue_depth
        self._ends = {unit: deque([0.0] * depth, depth) for unit in Unit}
        self._tagged = deque([0.0] * TAGS_WAITING, TAGS_WAITING)
        """Cycles in which the last Debug_Tags entered the trace."""
        self._tags_in_a_row = False
        """True if the last two Debug_Tags entered the trace in consecutive cycles."""
        self._record = Record()
        self._notes: list[float] = []
        """Times noted for the comparison of iterations of the open loops."""
        self._states: dict[_State, int] = {}
        """Numbers of all states of the walk so far, in the order of their first appearance."""
        self._known: dict[_Place, _Segment] = {}
        """Segments that the walk has been through, by the place at which each begins."""
        self._open: tuple[_Place, float, int, Mark] | None = None
        """Start of the present segment: its place, cycle, length of `_notes`, and mark.

        None if there is no segment at present.
        """

    def run(self) -> Estimate:
        """Walk through the program and return the estimate."""
        ended = False  # True if a layer has just ended.
        while True:
            if self._loops and (ended or self._pc % SEGMENT == 0) and self._work is None:
                self._take_known()
            opcode, operands, seen = self._offered()
            if not self._issue(opcode, operands, seen):
                return self.result()
            ended = opcode == Opcode.DEBUG_TAG

    def _take_known(self) -> None:
        """Go through the next segments without a walk, as long as their events are known.

        The events in a segment follow from the state at its start. If the walk was in the same
        state before, at another cycle, the same events follow, moved to the present cycle.
        """
        state = self._state()
        place = self._pc, self._states.setdefault(state, len(self._states))
        if self._open is not None:
            before, begun, noted, mark = self._open
            self._known[before] = _Segment(
                self._issued - begun,
                [time - begun for time in self._notes[noted:]],
                self._record.since(mark, begun),
                place,
                state,
            )
        present = state
        while (segment := self._known.get(place)) is not None:
            self._notes += [self._issued + time for time in segment.notes]
            self._record.add(segment.part, self._issued)
            self._issued += segment.cycles
            place, present = segment.next_place, segment.next_state
        if present is not state:
            self._pc = place[0]
            self._resume(present)
        self._open = place, self._issued, len(self._notes), self._record.mark()

    def _state(self) -> _State:
        """Return the present state."""
        now = self._issued
        return _State(
            self._window,
            tuple(tuple(recent(end, now) for end in ends) for ends in self._ends.values()),
            tuple(recent(time, now) for time in self._tagged),
            self._tags_in_a_row,
            self._port.state(now, min(now, self._fetch.earliest())),
            self._fetch.state(now),
            self._regions.state(now),
            self._weights.state(now),
            self._matrix.state(now),
            self._activation.state(now, scaled=self._uses_scale(self._pc)),
            self._reader.state(now),
            self._writer.state(now),
        )

    def _uses_scale(self, pc: int) -> bool:
        """Return whether an instruction from `pc` on may use the present scale."""
        passed: list[int] = []
        while pc not in self._scale_used:
            passed.append(pc)
            opcode = self._decoded_at(pc)[0].opcode
            if opcode in (*BARRIERS, Opcode.VECTOR, Opcode.SET_CONFIG_SCALE):
                self._scale_used[pc] = opcode != Opcode.SET_CONFIG_SCALE
                break
            pc += 1
        self._scale_used.update(dict.fromkeys(passed, self._scale_used[pc]))
        return self._scale_used[pc]

    def _resume(self, state: _State) -> None:
        """Restore `state`, so that its relative times count from the present cycle."""
        now = self._issued
        self._window, self._tags_in_a_row = state.window, state.tags_in_a_row
        for known, times in zip(self._ends.values(), state.ends, strict=True):
            known.extend(now + time for time in times)
        self._tagged.extend(now + time for time in state.tagged)
        self._port.resume(state.port, now)
        self._fetch.resume(state.fetch, now)
        self._regions.resume(state.regions, now)
        self._weights.resume(state.weights, now)
        self._matrix.resume(state.matrix, now)
        self._activation.resume(state.activation, now)
        self._reader.resume(state.reader, now)
        self._writer.resume(state.writer, now)

    def _offered(self) -> tuple[Opcode, dict[str, int], float]:
        """Return the next instruction, its operands, and the cycle in which it is offered.

        From this cycle on the sequencer sees the instruction.
        """
        entry, operands = self._effective(self._pc, self._registers)
        ready = self._fetch.next(self._pc, entry.opcode)
        return entry.opcode, operands, max(ready - ISSUE_INTERVAL, self._issued)

    def _issue(self, opcode: Opcode, operands: dict[str, int], seen: float) -> bool:
        """Issue an instruction; return False after a Halt, else True."""
        pc = self._pc
        compared = self._compared(opcode, seen)
        self._issued = max(seen + ISSUE_INTERVAL, compared, self._room(opcode))
        self._fetch.issue(self._issued)
        self._note(self._issued)
        if opcode == Opcode.HALT:
            return False
        if opcode in BARRIERS or opcode == Opcode.SET_REGISTER:
            self._open = None
        self._number = pc
        self._pc = pc + 1
        if opcode in READERS:
            results = result_lines(opcode, operands, self._window, self._config.cols)
            self._activation.other = self._other_reads(pc + 1, results)
        if opcode == Opcode.LOOP:
            self._loops.append(
                _Loop(
                    pc + 1,
                    operands["count"],
                    self._issued,
                    list(self._registers),
                    self._record.mark(),
                    len(self._notes),
                )
            )
        elif opcode == Opcode.END_LOOP:
            self._pc = self._close(pc + 1)
        else:
            self._execute(opcode, operands)
        return True

    def result(self) -> Estimate:
        """Return the estimate, after the issue of the Halt."""
        idle = max(self._issued + SEEN, self._idle())
        # DONE also waits until the last fetch has arrived.
        return self._record.result(round(max(idle, self._fetch.end(self._pc)) + HALT))

    def _effective(self, pc: int, registers: Sequence[int]) -> tuple[Instruction, dict[str, int]]:
        """Return an instruction and its operands with index registers added.

        The caller must not change the operands.
        """
        entry, operands = self._decoded_at(pc)
        if indexed := self._indexed[pc]:
            self._open = None  # _State has no index registers, so no segment may go on here.
            operands = dict(operands)
            for name, register in indexed:
                total = operands[name] + registers[register]
                operands[name] = total % (1 << entry.field(name).width)
        return entry, operands

    def _decoded_at(self, pc: int) -> tuple[Instruction, dict[str, int]]:
        """Return instruction `pc` and its operands before the addition of index registers.

        Raises ValueError if the program has no such instruction.
        """
        if pc not in self._decoded:
            decoded = decode(self._program[pc * INSTRUCTION_BYTES : (pc + 1) * INSTRUCTION_BYTES])
            if decoded is None:
                raise ValueError(f"there is no instruction {pc} in the program")
            self._decoded[pc] = entry, operands = decoded
            self._indexed[pc] = [
                (each.indexes, operands[each.name])
                for each in entry.fields
                if each.indexes is not None and operands[each.name]
            ]
        return self._decoded[pc]

    def _other_reads(self, pc: int, results: tuple[int, int]) -> OtherReads | None:
        """Return the reads of the matrix unit during an instruction of the activation unit.

        Returns None if the matrix unit reads nothing. `pc` is the number of the instruction after
        the present one. `results` has the first line that the present instruction writes, and the
        number of its lines.
        """
        past = self._matrix.reads_from(max(self._issued, self._activation.free))
        coming = self._coming_reads(pc, results)
        first = next(coming, None)
        if first is None and not past:
            return None
        if first is not None:
            coming = chain([first], coming)
        return OtherReads(past, coming, self._matrix.free)

    def _coming_reads(self, pc: int, results: tuple[int, int]) -> Iterator[ComingReads]:
        """Yield the reads of each MatrixMultiply or Convolve from `pc` on.

        The present instruction belongs to the activation unit and writes the lines `results`. The
        reads end before the first line that waits for a later instruction of the activation unit,
        as that instruction has no times yet.
        """
        window, registers = self._window, list(self._registers)
        writers = self._activation.writers.following(self._issued, results)
        present = len(writers) - 1
        issued = self._issued
        ahead = dict.fromkeys(Unit, 0)
        ahead[Unit.ACTIVATION] = 1
        while True:
            entry, operands = self._effective(pc, registers)
            unit = UNIT_OF.get(entry.opcode)
            issued += 1
            if unit is not None:
                if ahead[unit] == len(self._ends[unit]):
                    return
                issued = max(issued, self._ends[unit][ahead[unit]] + SEEN)
                ahead[unit] += 1
            if entry.opcode == Opcode.SET_REGISTER:
                _set_register(registers, operands)
            elif entry.opcode == Opcode.SET_CONFIG_WINDOW:
                window = self._window_of(operands)
            elif unit == Unit.ARRAY:
                passes = self._matrix.passes(entry.opcode, operands, window)
                run = run_of(writers, passes.buffer, passes.buffer + passes.count)
                if run.start > present:
                    return
                lines = self._matrix.lines_in_order(passes)
                waits = np.zeros(len(lines), bool)
                if run.stop > present + 1:
                    waits = lines >= writers[present].stop
                end = int(waits.argmax()) if waits.any() else len(lines)
                before = writers[run.start : min(run.stop, present)]
                for first in range(0, end, LOOKED_AHEAD):
                    yield self._matrix.coming_reads(
                        lines[first : min(first + LOOKED_AHEAD, end)],
                        issued,
                        before if run.stop <= present else (),
                        behind_first=run.start == present,
                    )
                if end < len(lines):
                    return
            elif unit == Unit.ACTIVATION:
                if len(writers) - present > self._config.queue_depth + 1:
                    # The queue is full: later instructions are not issued yet.
                    return
                first, count = result_lines(entry.opcode, operands, window, self._config.cols)
                writers.append(writers[-1].followed_by(first, first + count))
            elif entry.opcode in BARRIERS:
                return
            pc += 1

    def _idle(self) -> float:
        """Return the cycle in which all instructions issued so far are complete."""
        return max(self._tagged[-1], *(max(ends) + SEEN for ends in self._ends.values()))

    def _room(self, opcode: Opcode) -> float:
        """Return the first cycle in which the queues have room for an instruction.

        An instruction that waits for all units has room when all earlier instructions are complete.
        """
        if opcode in WAITS:
            # If the last two tags entered the trace in consecutive cycles, the sequencer sees a
            # cycle later that all is complete.
            return self._idle() + 1 + self._tags_in_a_row
        if opcode == Opcode.DEBUG_TAG:
            return self._tagged[0] + SEEN
        unit = UNIT_OF.get(opcode)
        return self._ends[unit][0] + SEEN if unit else 0.0

    def _compared(self, opcode: Opcode, seen: float) -> float:
        """Return the cycle in which the sequencer can issue an instruction after its comparisons.

        The sequencer compares the instruction with all instructions under way that it may have to
        wait for. The comparison begins in the cycle after `seen`, and takes a cycle for each entry
        of the longest list.
        """
        time = 0.0
        for units in COMPARED.get(opcode, ()):
            entries = sum(end + SEEN > seen for unit in units for end in self._ends[unit])
            time = max(time, seen + entries + ISSUE_INTERVAL - 1)
        return time

    def _note(self, time: float) -> None:
        """Note a time by which iterations of the open loops are compared."""
        if self._loops:
            self._notes.append(time)

    def _execute(self, opcode: Opcode, operands: dict[str, int]) -> None:
        match opcode:
            case Opcode.SET_REGISTER:
                _set_register(self._registers, operands)
            case Opcode.SET_CONFIG_WINDOW:
                self._window = self._window_of(operands)
            case Opcode.SET_CONFIG_SCALE:
                self._activation.scale = operands
            case Opcode.READ_WEIGHTS:
                self._weights.read(self._issued + QUEUED, operands["count"])
            case Opcode.DEBUG_TAG:
                self._tag(operands["tag"], operands["wait"])
            case _ if opcode in UNIT_OF:
                span = self._span(opcode, operands)
                unit = UNIT_OF[opcode]
                self._ends[unit].append(span.end)
                self._note(span.last)
                self._note(span.end)
                self._record.work(unit, span.begin, span.last, span.busy)
                self._show(unit, span.begin, span.end)
                if unit == Unit.ACTIVATION:
                    self._hold_up_reads()
            case _:
                pass

    def _show(self, unit: Unit, begin: float, end: float) -> None:
        if self._work is not None:
            self._work.append(UnitWork(self._number, unit, begin, end))

    def _hold_up_reads(self) -> None:
        """Delay lines from host memory that would meet results of the activation unit in a bank."""
        ends = self._reader.yield_to(*self._activation.written)
        if ends is not None:
            known = self._ends[Unit.HOST_READ]
            self._ends[Unit.HOST_READ] = deque([*list(known)[: -len(ends)], *ends], known.maxlen)

    def _span(self, opcode: Opcode, operands: dict[str, int]) -> Span:
        match opcode:
            case Opcode.MATRIX_MULTIPLY | Opcode.CONVOLVE:
                return self._multiply(opcode, operands)
            case Opcode.WRITE_HOST_MEMORY | Opcode.WRITE_HOST_MEMORY_ALTERNATE:
                alternate = opcode != Opcode.WRITE_HOST_MEMORY
                span = self._writer.write(operands, self._issued + QUEUED, alternate)
                self._record.move(host_out=span.beats * self._config.host_bus_bytes)
                return span
            case Opcode.ACTIVATE:
                return self._activation.activate(operands, self._issued + QUEUED)
            case Opcode.DEPTHWISE:
                return self._activation.depthwise(
                    operands, self._set_window(), self._issued + QUEUED
                )
            case Opcode.POOL:
                return self._activation.pool(operands, self._set_window(), self._issued + QUEUED)
            case Opcode.VECTOR:
                return self._activation.vector(operands, self._issued + QUEUED)
            case Opcode.MEASURE:
                return self._activation.measure(operands, self._issued + QUEUED)
            case Opcode.TRANSPOSE:
                return self._activation.transpose(operands, self._issued + QUEUED)
            case Opcode.RANDOM:
                return self._activation.random(operands, self._issued + QUEUED)
            case _:
                span = self._read(opcode, operands)
                self._record.move(host_in=span.beats * self._config.host_bus_bytes)
                return span

    def _read(self, opcode: Opcode, operands: dict[str, int]) -> Span:
        match opcode:
            case Opcode.LOAD_PARAMETERS:
                return self._reader.load_parameters(operands, self._issued + QUEUED)
            case Opcode.LOAD_TABLE:
                return self._reader.load_table(operands, self._issued + QUEUED)
            case _:
                alternate = opcode != Opcode.READ_HOST_MEMORY
                return self._reader.read(operands, self._issued + QUEUED, alternate)

    def _multiply(self, opcode: Opcode, operands: dict[str, int]) -> Span:
        weights = self._weights
        before = weights.tiles
        passes = self._matrix.passes(opcode, operands, self._window)
        if operands.get("from_buffer"):
            return self._matrix.run_from_buffer(passes, operands, self._issued + QUEUED)
        span = self._matrix.run(passes, self._issued + QUEUED)
        tiles = weights.tiles - before
        busy = tiles * weights.tile_cycles
        self._note(weights.streamed)
        self._record.work(Unit.WEIGHTS, weights.streamed - busy, weights.streamed - 1, busy)
        self._show(Unit.WEIGHTS, weights.streamed - busy, weights.streamed)
        self._record.move(weights=tiles * self._config.tile_bytes)
        return span

    def _window_of(self, operands: dict[str, int]) -> WindowGrid:
        """Return the window of a Set_Config_Window.

        Equal windows share one object, so that the lines of a window are calculated once.
        """
        return self._windows.setdefault(tuple(operands.values()), WindowGrid(operands))

    def _set_window(self) -> WindowGrid:
        if self._window is None:
            raise ValueError("the program uses a window that it has not set")
        return self._window

    def _tag(self, number: int, wait: int) -> None:
        done = [max(self._ends[unit]) + SEEN for bit, unit in WAIT_FOR.items() if wait & bit]
        # One tag enters the trace in a cycle, at the earliest in the cycle after its issue.
        next_one = self._tagged[-1] + 1
        self._tagged.append(max(self._issued + 1, next_one, *done))
        self._tags_in_a_row = self._tagged[-1] == next_one
        self._record.tag(number, self._tagged[-1])
        self._note(self._tagged[-1])

    def _close(self, pc: int) -> int:
        """End an iteration; return the number of the instruction with which the program goes on.

        `pc` is the number of the instruction after the End_Loop.
        """
        loop = self._loops[-1]
        loop.left -= 1
        if not loop.left:
            self._loops.pop()
            if not self._loops:
                self._notes.clear()
            return pc
        if loop.resumed is None:
            self._compare(loop)
        else:
            end, self._record = loop.resumed
            self._shift(end - self._issued)
            loop.resumed = None
        loop.noted = len(self._notes)
        loop.begun = self._issued
        loop.registers = list(self._registers)
        loop.mark = self._record.mark()
        self._fetch.jump(loop.start)
        return loop.start

    def _compare(self, loop: _Loop) -> None:
        """Compare the iteration that has just ended with the iteration before it.

        If the loop is steady, or has been unsteady for UNSTEADY iterations, most of the remaining
        iterations are skipped.
        """
        period = self._issued - loop.begun
        course = np.array([*self._notes[loop.noted :], self._issued]) - loop.begun
        same = len(course) == len(loop.before) and np.allclose(course, loop.before, 0, SAME)
        loop.steady = loop.steady + 1 if same else 0
        loop.periods.append(period)
        loop.before = course
        count = loop.left - LAST
        if count > 0 and self._work is None:
            if loop.steady == STEADY:
                self._skip(loop, count, period)
            elif len(loop.periods) == UNSTEADY:
                self._skip(loop, count, float(np.mean(loop.periods[UNSTEADY // 2 :])))

    def _skip(self, loop: _Loop, count: int, period: float) -> None:
        """Go on as if `count` iterations like the last one had followed.

        The last of the `count` iterations is still walked through, so that its results are at its
        own addresses. Its times do not count, as the skipped iterations have left no times for
        their lines.
        """
        self._record.repeat(loop.mark, count, count * period)
        loop.resumed = self._issued + count * period, self._record
        self._record = Record()
        loop.left -= count - 1
        self._registers = [
            (now + (count - 1) * (now - then)) % (1 << 32)
            for now, then in zip(self._registers, loop.registers, strict=True)
        ]
        self._shift((count - 1) * period)

    def _shift(self, cycles: float) -> None:
        """Add `cycles` to the present cycle, and to the times of all events so far."""
        state = self._state()
        self._issued += cycles
        self._resume(state)


def _set_register(registers: list[int], operands: dict[str, int]) -> None:
    total = operands["value"] + registers[operands["first"]] + registers[operands["second"]]
    registers[operands["register"]] = total % (1 << 32)
