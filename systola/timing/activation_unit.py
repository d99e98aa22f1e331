# SPDX-License-Identifier: Apache-2.0
"""A model of the activation unit: Activate, Depthwise, Pool, Vector, Measure, Transpose, Random.

In this file a vector is the elements of one result, one for each column. It is read in one step or
several, and the last of its steps issues it to the lanes. A vector with gates has one of the
functions GATES, which run in the gate lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import GATES, Function, Opcode, Operation, Source
from systola.hdl.activation.activation_unit import FOLLOW_LATENCY, FRONT_LATENCY
from systola.hdl.activation.activation_unit import ActivationUnit as Hardware
from systola.hdl.activation.gate_sequencer import GateSequencer
from systola.hdl.activation.partition_entries import entry_latency
from systola.hdl.activation.spacings import (
    ADDEND_SPACING,
    ANNOUNCED,
    DRAIN_SPACING,
    GATHER_SPACING,
    LONG_SPACING,
    READ_SLACK,
    SCALED_LATENCY,
    SUM_LATENCY,
    TAP_SPACING,
    alone_after,
    gate_pause,
    left_out,
)
from systola.hdl.activation.step_kind import HALF
from systola.hdl.activation.table_lane import CURVE_LATENCY
from systola.hdl.parts.walker import WALK_GAP
from systola.timing.bank_conflicts import OtherReads, Reader, yielding_times
from systola.timing.curves import gathers, is_curve, is_partition, one_line, tables
from systola.timing.gates import Gates, GatesState, gate_distance, inverts
from systola.timing.in_turn import in_turn
from systola.timing.recent import recent
from systola.timing.regions import Regions, Times, paced
from systola.timing.runs import ListState, WriterList
from systola.timing.span import Span
from systola.timing.window import WindowGrid

FOLLOWS = 1 + FOLLOW_LATENCY
"""Cycles from the announcement of a line or row to the first step that may read it."""
ADDEND = 2
"""Number of buffer lines that hold a vector of int16 addends."""

ActivationState = tuple[
    float, float, float, float, float, tuple[tuple[str, int], ...], ListState, GatesState
]
"""Type of the state of an ActivationUnit.

In this order: `free`, both cycles of `_left`, `_looked_up`, `_entry_done`, `scale`, `writers` and
`_gates`.
"""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The number of vectors of an instruction, and the steps, cycles and lines of each vector."""

    vectors: int
    reads: int
    """Number of steps that read a vector. The last of these steps issues the vector to the lanes.
    """
    spacing: int
    """Least number of cycles without a step between two vectors."""
    latency: int
    """Cycles from the issue of a vector to the write of its first result line."""
    destination: int
    lines: int
    """Number of lines that each vector's result takes, 0 if no results are written."""
    blocks: int = 1
    before_block: int = 0
    """Cycles of the steps before the first vector of each block, such as reads of taps."""
    between_blocks: int = 0
    """Cycles lost after each block except the last one."""
    drain: int = 0
    """Least number of cycles without a step between the instruction and the next one."""
    gate: bool = False
    """True if the function runs in the gate lanes: one of GATES."""
    sums_lines: bool = False
    alone: bool = False
    """True if each vector must be alone in the lanes: 1/x, 1/sqrt(x), and sums of scaled operands.

    This matters only for vectors with gates; others wait for older gates in any case.
    """
    shared: bool = False
    """True if scaled operands and their sums take turns in the requantisers, see timing/in_turn.py.
    """
    halved: tuple[bool, bool] = (False, False)
    """For operands a and b of a Vector: True if the operand is scaled by one half."""
    read_lines: NDArray[np.int64] | None = None
    """Buffer line that each step reads, [vector][step]; negative for a step without a read."""
    paired: bool = False
    """True if each step also reads the line before the line in `read_lines`."""


class ActivationUnit:
    """A model of the unit that writes all results into the unified buffer."""

    def __init__(self, config: Config, regions: Regions) -> None:
        self._config = config
        self._turns = config.columns_per_lane
        """Cycles of a step: one for each column that shares a lane.

        A read is announced when its step has ended.
        """
        self._latency = Hardware.latency() + (1 + READ_SLACK) * (self._turns - 1)
        self._banks = config.buffer_banks
        self._regions = regions
        self.free = 0.0
        """First cycle in which a step of another instruction can begin."""
        self._left = 0.0, 0.0
        """Cycles in which the last two instructions took their last steps, the older one first."""
        self._looked_up = -float(GATHER_SPACING)
        """Cycle of the last step of the last instruction with function TABLE."""
        self._entry_done = -1.0
        """Cycle in which the last partition has written its entry. No vector is issued before."""
        self.written: tuple[Times, int] = np.zeros(1), 0
        """Cycles in which the last instruction writes its lines, and the address of the first line.
        """
        self.writers = WriterList(config.queue_depth, regions.buffer.written)
        """The last instructions, with the lines that each writes. Readers of these lines wait."""
        self._gates = Gates(self._turns)
        self.scale: Mapping[str, int] = {}
        """Operands of the last Set_Config_Scale."""
        self.other: OtherReads | None = None
        """Buffer reads of the matrix unit during the next instruction; None if there are none."""

    def activate(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of an Activate that is issued in cycle `issued`."""
        gate = operands["function"] in GATES
        wide, accumulate = operands["wide"], operands["accumulate"]
        rows = operands["rows"] * operands["n_tiles"]
        work = Work(
            vectors=rows,
            reads=1 + accumulate * (1 if self._pairs(operands["buffer"]) else ADDEND),
            spacing=0 if accumulate else wide,
            latency=self._latency + self._gate_latency(gate) + CURVE_LATENCY * is_curve(operands),
            destination=operands["buffer"],
            lines=1 + wide,
            drain=LONG_SPACING * (operands["stochastic"] or is_curve(operands)),
            gate=gate,
            alone=inverts(operands),
        )
        sums = self._regions.accumulators
        here = slice(operands["accumulator"], operands["accumulator"] + rows)
        needed = sums.written[here] + FOLLOWS
        entries = self._regions.parameters.written
        first = operands["parameter"]
        entry = entries[first : first + operands["n_tiles"]] + FOLLOWS
        needed = np.maximum(needed, np.repeat(entry, operands["rows"]))
        needed = np.maximum(needed, self._tables_written(operands))
        times, span = self._run(work, needed, issued)
        sums.read[here] = times + self._turns
        self._use_entries(first, operands["n_tiles"], span.end)
        self._use_table(operands, span.end)
        return span

    def depthwise(self, operands: Mapping[str, int], window: WindowGrid, issued: float) -> Span:
        """Return the span of a Depthwise with the window `window`."""
        blocks = operands["blocks"]
        work = Work(
            vectors=blocks * window.pixels,
            reads=window.taps,
            spacing=0,
            latency=SUM_LATENCY + self._latency,
            destination=operands["destination"],
            lines=1,
            blocks=blocks,
            before_block=self._turns * window.taps
            + self._pause(TAP_SPACING if window.taps <= TAP_SPACING else 0),
            drain=DRAIN_SPACING,
            read_lines=self._map_lines(operands, window),
        )
        taps = slice(operands["taps"], operands["taps"] + blocks * window.taps)
        return self._over_map(work, operands, window, blocks, taps, issued)

    def pool(self, operands: Mapping[str, int], window: WindowGrid, issued: float) -> Span:
        """Return the span of a Pool with the window `window`."""
        work = Work(
            vectors=operands["blocks"] * window.pixels,
            reads=window.taps,
            spacing=0,
            latency=SUM_LATENCY + self._latency,
            destination=operands["destination"],
            lines=1,
            blocks=operands["blocks"],
            drain=DRAIN_SPACING,
            read_lines=self._map_lines(operands, window),
        )
        return self._over_map(work, operands, window, 1, slice(0, 0), issued)

    def _map_lines(
        self, operands: Mapping[str, int], window: WindowGrid
    ) -> NDArray[np.int64] | None:
        """Return the buffer line of each tap, [vector][tap]; negative for a tap outside the map.

        Returns None if the matrix unit reads nothing at the same time.
        """
        if self.other is None:
            return None
        shape = window.operands
        taps: list[NDArray[np.int64]] = []
        for ky in range(shape["kernel_height"]):
            for kx in range(shape["kernel_width"]):
                lines, inside = window.lines(ky, kx)
                taps.append(np.where(inside, lines + operands["buffer"], -1))
        block = np.stack(taps, axis=1)
        starts = np.arange(operands["blocks"])[:, None, None] * window.map_lines
        return np.where(block < 0, -1, block + starts).reshape(-1, window.taps)

    def _over_map(
        self,
        work: Work,
        operands: Mapping[str, int],
        window: WindowGrid,
        entries: int,
        taps: slice,
        issued: float,
    ) -> Span:
        first = operands["parameter"]
        written = self._regions.parameters.written[first : first + entries]
        needed = float(written.max()) + FOLLOWS
        space = self._regions.buffer
        source = slice(operands["buffer"], operands["buffer"] + work.blocks * window.map_lines)
        late = max(space.written[source].max(), space.written[taps].max(initial=0.0)) + FOLLOWS
        times_needed: float | Times = needed
        if late > issued:
            last = window.last_lines()
            lines = [operands["buffer"] + n * window.map_lines + last for n in range(work.blocks)]
            times_needed = np.maximum(space.written[np.concatenate(lines)] + FOLLOWS, needed)
        times, span = self._run(work, times_needed, issued)
        self._read_lines(source, taps, float(times[-1]) + self._turns)
        self._use_entries(first, entries, span.end)
        return span

    def vector(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Vector."""
        gate = operands["function"] in GATES
        wide, accumulate = operands["wide"], operands["accumulate"]
        if is_partition(operands):
            return self._partition(operands, issued)
        halves = 1 + operands["wide_operands"]
        once = one_line(operands)
        both = operands["operation"] != Operation.COPY and not once
        places = [operands["buffer"]] + [operands["operand"]] * both
        paired = self._pairs(*places * (halves - 1), operands["destination"] * accumulate)
        steps = 1 if paired else halves
        addends = 1 if paired else ADDEND
        two_lines = wide and not both and steps == 1
        scaled = operands["operation"] in (Operation.ADD, Operation.SUBTRACT) and not once
        if scaled:
            spacing, drain = LONG_SPACING * accumulate, LONG_SPACING
        else:
            late_enough = self._config.training and (both or steps > 1)
            spacing = ADDEND_SPACING * (not late_enough) if accumulate else int(two_lines)
            drain = DRAIN_SPACING
        if is_curve(operands):
            drain = gate_pause(self._turns) if scaled else LONG_SPACING
        reads = [place + half for place in places for half in range(halves)[-steps:]]
        step = np.arange(operands["rows"])[:, None]
        read_lines = np.array(reads) + step * halves
        if accumulate:
            addend = operands["destination"] + np.arange(ADDEND - addends, ADDEND) + step * ADDEND
            read_lines = np.concatenate([read_lines, addend], axis=1)
        work = Work(
            vectors=operands["rows"],
            reads=steps * (1 + both) + addends * accumulate,
            spacing=spacing,
            latency=(SCALED_LATENCY if scaled else SUM_LATENCY)
            + self._latency
            + self._gate_latency(gate)
            + CURVE_LATENCY * is_curve(operands),
            destination=operands["destination"],
            lines=1 + wide,
            before_block=self._turns * once,
            drain=drain,
            gate=gate,
            sums_lines=True,
            alone=scaled or inverts(operands),
            shared=scaled and steps == 1 and not spacing and not gate,
            halved=self._halved() if halves == 1 else (False, False),
            read_lines=read_lines,
            paired=paired and (halves > 1 or bool(accumulate)),
        )
        space = self._regions.buffer
        count = operands["rows"] * halves
        source = slice(operands["buffer"], operands["buffer"] + count)
        second = operands["operand"] if both or once else 0
        operand = slice(second, second + (1 if once else count * both))
        needed = space.written[source][halves - 1 :: halves] + FOLLOWS
        if both or once:
            needed = np.maximum(needed, space.written[operand][halves - 1 :: halves] + FOLLOWS)
        first = operands["parameter"]
        needed = np.maximum(needed, self._regions.parameters.written[first] + FOLLOWS)
        needed = np.maximum(needed, self._tables_written(operands))
        if gathers(operands):
            self.free = max(self.free, self._looked_up + 1 + GATHER_SPACING)
        times, span = self._run(work, needed, issued)
        self._read_lines(source, operand, float(times[-1]) + self._turns)
        self._use_entries(first, 1, span.end)
        self._use_table(operands, span.end)
        return span

    def _partition(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a partition: one sum of many lines, and an entry made of it."""
        rows, entry = operands["rows"], operands["parameter"]
        lines = operands["buffer"] + np.arange(rows)
        latency = SUM_LATENCY + entry_latency(self._config.cols)
        work = Work(
            vectors=1,
            reads=rows,
            spacing=0,
            # The instruction ends in the cycle after the report that its entry is written.
            latency=latency + 1 + ANNOUNCED,
            destination=0,
            lines=0,
            before_block=1,
            drain=DRAIN_SPACING,
            sums_lines=True,
            read_lines=lines[np.newaxis],
        )
        space, entries = self._regions.buffer, self._regions.parameters
        source = slice(operands["buffer"], operands["buffer"] + rows)
        operand = slice(operands["operand"], operands["operand"] + 1)
        # The last line is read after all others, and operand b before them. No line is read before
        # tables and entry are there.
        each = space.written[source] + np.arange(rows)[::-1]
        first = max(float(space.written[operand][0]), float(entries.written[entry])) + FOLLOWS
        first = max(first, self._tables_written(operands))
        needed = max(float(each.max()) + FOLLOWS, first + rows)
        self.free = max(self.free, self._looked_up + 1 + GATHER_SPACING)
        times, span = self._run(work, needed, issued)
        self._entry_done = float(times[-1]) + latency
        self._read_lines(source, operand, float(times[-1]) + 1)
        self._use_entries(entry, 1, span.end)
        self._use_table(operands, span.end)
        return span

    def measure(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Measure of accumulators, of buffer lines, or of no data.

        A Measure of no data only combines exponent registers, but takes a step all the same.
        """
        source, rows = operands["source"], operands["rows"]
        sums, space = self._regions.accumulators, self._regions.buffer
        needed: float | Times = 0.0
        here = slice(operands["accumulator"], operands["accumulator"] + rows)
        lines = slice(operands["buffer"], operands["buffer"] + 2 * rows)
        if source == Source.ACCUMULATORS:
            needed = sums.written[here] + FOLLOWS
        elif source == Source.LINES:
            needed = space.written[lines][1::2] + FOLLOWS
        work = Work(
            vectors=rows if source else 1,
            reads=2 if source == Source.LINES else 1,
            spacing=0,
            latency=self._latency + SUM_LATENCY * (source == Source.LINES),
            destination=0,
            lines=0,
            before_block=0 if source else self._turns + self._pause(LONG_SPACING),
            drain=LONG_SPACING,
        )
        times, span = self._run(work, needed, issued)
        if source == Source.ACCUMULATORS:
            sums.read[here] = times + self._turns
        elif source == Source.LINES:
            self._read_lines(lines, slice(0, 0), float(times[-1]) + self._turns)
        return span

    def transpose(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Transpose, which reads all lines of a tile and then writes them."""
        size, count = self._config.cols, operands["count"]
        starts = operands["buffer"] + np.arange(count) * operands["step"]
        lines = starts[:, None] + np.arange(size)
        written = self._regions.buffer.written[lines].max(axis=1) + FOLLOWS
        work = Work(
            vectors=count * size,
            reads=1,
            spacing=0,
            latency=self._latency,
            destination=operands["destination"],
            lines=1,
            blocks=count,
            before_block=self._turns * size
            + self._pause(LONG_SPACING if size <= TAP_SPACING else 0),
            between_blocks=self._pause(LONG_SPACING),
            drain=LONG_SPACING,
        )
        times, span = self._run(work, np.repeat(written, size), issued)
        source = slice(operands["buffer"], int(lines[-1, -1]) + 1)
        self._read_lines(source, slice(0, 0), float(times[-1]) + self._turns)
        return span

    def random(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Random, which reads a seed and then writes a line in each step."""
        work = Work(
            vectors=operands["rows"],
            reads=1,
            spacing=0,
            latency=self._latency,
            destination=operands["destination"],
            lines=1,
            before_block=self._turns + self._pause(LONG_SPACING),
            drain=LONG_SPACING,
        )
        return self._run(work, 0.0, issued)[1]

    def _run(self, work: Work, needed: float | Times, issued: float) -> tuple[Times, Span]:
        """Return the cycle in which each vector is issued, and the span of the instruction.

        `needed` is the first cycle in which all data of a vector are ready: one cycle for all
        vectors, or one for each.
        """
        space = self._regions.buffer
        target = slice(work.destination, work.destination + work.vectors * work.lines)
        if not work.lines:
            free = np.zeros(work.vectors)
        elif work.lines == 1:
            # A result is written only after older instructions have read or filled its line.
            free = np.maximum(space.read[target], space.filled[target]) + FOLLOWS
        else:
            used = max(space.used[target].max(), space.filled[target].max())
            free = np.full(work.vectors, used + FOLLOWS)
        needed = np.maximum(needed, np.maximum(free, self._entry_done + 1))
        turns = self._turns
        # Cycles without a step after each vector, the last one included.
        between = turns * gate_pause(turns) if work.gate else self._pause(work.spacing)
        step = turns * work.reads + between
        if work.gate and work.alone:
            alone = alone_after(turns, sums_lines=work.sums_lines)
            step = turns * (work.reads - 1 + alone)
        elif work.gate:
            step = turns * gate_distance(work.reads, turns)
        offsets = step * np.arange(work.vectors, dtype=np.float64) + turns * (work.reads - 1)
        if work.shared:
            offsets = turns * in_turn(work.vectors, work.halved, turns)
        if work.before_block:
            block = np.arange(work.vectors) // (work.vectors // work.blocks)
            offsets += (block + 1) * work.before_block + block * work.between_blocks
        # The unit takes a command only after the last step of the last instruction but one.
        came = max(issued, self._left[0] + 1)
        kind = {"lines": work.sums_lines, "alone": work.alone}
        start = max(came + 1 + FRONT_LATENCY, self.free)
        start = self._gates.first_step(start, gate=work.gate, **kind)
        if turns > 1:  # Steps of several cycles begin at multiples of their length.
            needed = start + turns * np.ceil((needed - start) / turns)
        if work.read_lines is not None and self.other is not None:
            before = np.diff(offsets, prepend=-float(turns)) - turns * work.reads
            if work.gate and not work.alone:
                before[1:] = between
            reader = Reader(
                lines=work.read_lines,
                before=before,
                needed=needed,
                start=start,
                target=work.destination,
                target_lines=work.lines,
                latency=work.latency,
                turns=turns,
                paired=work.paired,
                gates=self._gates if work.gate and not work.alone else None,
            )
            times = yielding_times(reader, self.other, self._banks)
        elif work.gate and not work.alone:
            times = self._gate_times(work, start, needed)
        else:
            times = paced(start, offsets, needed)
        last = float(times[-1])
        if work.gate:
            self._gates.issue(last, **kind)
        self._left = self._left[1], last
        self.free = last + turns + max(between, self._pause(max(work.drain, WALK_GAP)))
        end = last + work.latency - ANNOUNCED
        busy = float(offsets[-1]) + turns + between + self._pause(work.drain)
        if not work.lines:
            self.written = np.zeros(1), 0
            self.writers.push(0, 0, end)
            return times, Span(float(times[0]) - offsets[0], last, end, busy)
        written = np.repeat(times + work.latency, work.lines)
        written[work.lines - 1 :: work.lines] += turns * (work.lines - 1)
        self.written = written, work.destination
        # Both lines of a result are announced together.
        told = written - ANNOUNCED
        space.written[target] = np.repeat(told[work.lines - 1 :: work.lines], work.lines)
        end = float(told[-1])
        self.writers.push(target.start, target.stop, end)
        space.activated[target] = np.maximum(space.activated[target], end)
        return times, Span(float(times[0]) - offsets[0], last, end, busy)

    def _pairs(self, *lines: int) -> bool:
        """Return whether a step reads both lines of an int16 value, for values from `lines` on."""
        return self._config.reads_pairs and not any(line % 2 for line in lines)

    def _gate_times(self, work: Work, start: float, needed: Times) -> Times:
        """Return the issue cycle of each vector with gates.

        A vector waits until the multipliers of the gate lanes have free slots for it.
        """
        turns, first = self._turns, start
        times: list[float] = []
        for need in np.broadcast_to(needed, work.vectors).tolist():
            time = self._gates.legal(max(first + turns * (work.reads - 1), need))
            self._gates.issue(time, lines=work.sums_lines, alone=False)
            first = time + turns * (1 + gate_pause(turns))
            times.append(time)
        return np.array(times)

    def _gate_latency(self, gate: bool) -> int:
        """Return the cycles that a gate function adds to a result's latency; 0 without `gate`."""
        return self._turns * GateSequencer.latency(self._turns) * gate

    def _pause(self, cycles: int) -> int:
        """Return the cycles of the steps that are left out for a pause of `cycles` cycles."""
        return self._turns * left_out(cycles, self._turns) if cycles else 0

    def _halved(self) -> tuple[bool, bool]:
        """Return for operands a and b of a Vector whether the operand is scaled by one half."""
        a, b = (
            (self.scale.get(f"multiplier_{n}"), self.scale.get(f"shift_{n}")) == (HALF, 0)
            for n in "ab"
        )
        return a, b

    def _read_lines(self, source: slice, operand: slice, end: float) -> None:
        used = self._regions.buffer.activated
        for lines in (source, operand):
            used[lines] = np.maximum(used[lines], end)

    def _use_entries(self, first: int, count: int, end: float) -> None:
        used: NDArray[np.float64] = self._regions.parameters.activated
        used[first : first + count] = end

    def _tables_written(self, operands: Mapping[str, int]) -> float:
        """Return the first cycle in which a step may read all tables of an instruction."""
        written: Times = self._regions.tables.written
        return float(written[tables(operands)].max(initial=-FOLLOWS)) + FOLLOWS

    def _use_table(self, operands: Mapping[str, int], end: float) -> None:
        self._regions.tables.activated[tables(operands)] = end
        if operands["function"] == Function.TABLE:
            self._looked_up = self._left[1]

    def state(self, now: float, *, scaled: bool) -> ActivationState:
        """Return the state with times relative to cycle `now`; the scale is left out unless
        `scaled`."""
        times = self.free, *self._left, self._looked_up, self._entry_done
        free, left, last, looked, done = (recent(time, now) for time in times)
        scale = tuple(self.scale.items()) if scaled else ()
        lists = self.writers.state(now), self._gates.state(now)
        return free, left, last, looked, done, scale, *lists

    def resume(self, state: ActivationState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        free, left, last, looked, done, scale, writers, gates = state
        self.writers.resume(writers, now)
        self._gates.resume(gates, now)
        self.free, self._left = now + free, (now + left, now + last)
        self._looked_up = now + looked
        self._entry_done = now + done
        self.scale = dict(scale)


def result_lines(
    opcode: Opcode, operands: Mapping[str, int], window: WindowGrid | None, size: int
) -> tuple[int, int]:
    """Return the first line that an instruction of the unit writes, and the number of its lines.

    `size` is the number of lines of a tile, for Transpose.
    """
    if opcode == Opcode.MEASURE or (opcode == Opcode.VECTOR and is_partition(operands)):
        return 0, 0
    if opcode == Opcode.TRANSPOSE:
        return operands["destination"], operands["count"] * size
    if opcode == Opcode.RANDOM:
        return operands["destination"], operands["rows"]
    if opcode == Opcode.ACTIVATE:
        count = operands["rows"] * operands["n_tiles"] * (1 + operands["wide"])
        return operands["buffer"], count
    if opcode == Opcode.VECTOR:
        return operands["destination"], operands["rows"] * (1 + operands["wide"])
    return operands["destination"], operands["blocks"] * (window.pixels if window else 0)
