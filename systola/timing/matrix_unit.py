# SPDX-License-Identifier: Apache-2.0
"""A model of MatrixMultiply and Convolve: passes of vectors, one pass for each tile."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.matrix.matrix_unit import (
    COMMAND_GAP,
    FOLLOW_LATENCY,
    FRONT_LATENCY,
    SUMS_ANNOUNCED,
)
from systola.hdl.matrix.matrix_unit import MatrixUnit as Hardware
from systola.hdl.memories.accumulators import SUMS_LATENCY, UPDATE_LATENCY
from systola.timing.bank_conflicts import ComingReads
from systola.timing.recent import FORGOTTEN
from systola.timing.regions import Regions, Times, paced
from systola.timing.runs import Entry, WriterList, run_of
from systola.timing.span import Span
from systola.timing.weight_fetch import WeightFetch
from systola.timing.window import WindowGrid

RECENT = 64
"""Number of last passes that the model keeps, for bank conflicts with the activation unit."""

MatrixState = tuple[float, tuple[tuple[bytes, bytes], ...]]
"""Type of the state of a MatrixUnit: `free`, and the passes that have not ended.

A pass has the cycles and the buffer lines of its vectors.
"""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The passes of an instruction for one tile along N.

    Each tap and each tile along K has a pass over all vectors.
    """

    offsets: Times
    """Cycles from the first vector of a pass to each vector, if no vector has to wait."""
    lines: list[NDArray[np.int64]]
    """Buffer line of each vector of each pass, negative for a vector outside the map."""
    n_tiles: int
    halves: int
    """Number of vectors for each row of accumulators: two for vectors of int16, else one."""
    sequential: bool
    """True if the last tile along N releases each line for writers as soon as it has been read.

    Otherwise the instruction releases all lines together at its end.
    """
    buffer: int
    """First line of the source, which has `count` lines."""
    count: int
    accumulator: int


class MatrixUnit:
    """A model of the matrix unit.

    The unit takes a vector in each cycle, unless the vector's line, accumulator row or tile is
    missing.
    """

    def __init__(
        self, config: Config, regions: Regions, weights: WeightFetch, writers: WriterList
    ) -> None:
        """Begin without instructions.

        `writers` are instructions of the activation unit, which write lines that this unit reads.
        """
        self._rows = config.rows
        self._writers = writers
        self._regions = regions
        self._weights = weights
        # The hardware's latency ends with the sums. A row is written UPDATE_LATENCY cycles after
        # its update, and announced SUMS_ANNOUNCED cycles before it is written.
        self._latency = Hardware.latency(config) - SUMS_LATENCY + UPDATE_LATENCY - SUMS_ANNOUNCED
        self.free = 0.0
        """First cycle after the last vector of all instructions so far."""
        self._convolutions: dict[tuple[WindowGrid, tuple[int, ...]], Passes] = {}
        self._recent: deque[tuple[Times, NDArray[np.int64]]] = deque(maxlen=RECENT)
        """Cycle and line of each vector in the last passes."""

    def passes(
        self, opcode: Opcode, operands: Mapping[str, int], window: WindowGrid | None
    ) -> Passes:
        """Return the passes of a MatrixMultiply, or of a Convolve with the window `window`."""
        if opcode == Opcode.MATRIX_MULTIPLY:
            return self._product(operands)
        if window is None:
            raise ValueError("the program uses a window that it has not set")
        # Another iteration of a loop makes the same passes again.
        key = window, tuple(operands.values())
        if key not in self._convolutions:
            self._convolutions[key] = self._convolution(operands, window)
        return self._convolutions[key]

    def _product(self, operands: Mapping[str, int]) -> Passes:
        halves = 1 + operands["wide_vectors"]
        vectors = operands["rows"] * halves
        lines: list[NDArray[np.int64]] = []
        for k in range(operands["k_tiles"]):
            here = operands["buffer"] + k * vectors + np.arange(vectors)
            lines += [here] * (1 + operands["wide_weights"])
        return Passes(
            offsets=np.arange(vectors, dtype=np.float64),
            lines=lines,
            n_tiles=operands["n_tiles"],
            halves=halves,
            sequential=True,
            buffer=operands["buffer"],
            count=operands["k_tiles"] * vectors,
            accumulator=operands["accumulator"],
        )

    def _convolution(self, operands: Mapping[str, int], window: WindowGrid) -> Passes:
        channels, buffer = operands["channels"], operands["buffer"]
        shape = window.operands
        offsets = np.arange(window.pixels, dtype=np.float64)
        lines: list[NDArray[np.int64]] = []
        if channels:
            for ky in range(shape["kernel_height"]):
                places = window.packed_lines(ky, channels, self._rows)
                lines.append(np.where(places < 0, -1, buffer + places))
            if shape["left"] >= 0:
                # If a row of windows begins inside the map, its first vector is cut from two lines.
                # The read of the first of these lines takes a cycle more.
                offsets += 1 + np.arange(window.pixels) // shape["out_width"]
        else:
            for ky in range(shape["kernel_height"]):
                for kx in range(shape["kernel_width"]):
                    places, inside = window.lines(ky, kx)
                    for block in range(operands["k_tiles"]):
                        first = buffer + block * operands["plane"]
                        lines.append(np.where(inside, first + places, -1))
        return Passes(
            offsets=offsets,
            lines=lines,
            n_tiles=operands["n_tiles"],
            halves=1,
            sequential=False,
            buffer=buffer,
            count=window.map_lines + (operands["k_tiles"] - 1) * operands["plane"],
            accumulator=operands["accumulator"],
        )

    def lines_in_order(self, passes: Passes) -> NDArray[np.int64]:
        """Return the line that the unit reads in each cycle if nothing has to wait.

        The line is negative for a cycle without a read.
        """
        # A pass takes at least as many cycles as its tile has rows.
        size = max(self._rows, len(passes.offsets))
        lines = np.full((passes.n_tiles, len(passes.lines), size), -1)
        lines[:, :, : len(passes.offsets)] = passes.lines
        return lines.reshape(-1)

    def coming_reads(
        self, lines: NDArray[np.int64], issued: float, run: Sequence[Entry], *, behind_first: bool
    ) -> ComingReads:
        """Return the reads of `lines` by an instruction that is issued in cycle `issued`.

        `run` has the writers under way that the instruction waits for. The meaning of
        `behind_first` is in ComingReads.
        """
        ready = self._there(lines, run)
        return ComingReads(lines, np.maximum(ready, issued) + 1, behind_first)

    def _there(self, lines: NDArray[np.int64], run: Sequence[Entry]) -> Times:
        """Return the cycle in which each line's last write was announced; 0 for negative lines.

        If `run` is not empty, a line also waits until the run has passed it.
        """
        there = self._regions.buffer.written[lines]
        if run:
            there = np.maximum(there, self._writers.announced(run, lines))
        return np.where(lines < 0, 0.0, there)

    def reads_from(self, time: float) -> dict[float, int]:
        """Return the lines that the unit read from cycle `time` on, with the cycles as keys."""
        reads: dict[float, int] = {}
        for times, lines in self._recent:
            if times[-1] >= time:
                reads.update(zip(times.tolist(), lines.tolist(), strict=True))
        return {cycle: line for cycle, line in reads.items() if line >= 0}

    def run(self, passes: Passes, issued: float) -> Span:
        """Return the span of an instruction that is issued in cycle `issued`."""
        lines = slice(passes.buffer, passes.buffer + passes.count)
        accumulator = passes.accumulator
        space, sums = self._regions.buffer, self._regions.accumulators
        under_way = self._writers.pending(issued)
        in_run = run_of(under_way, lines.start, lines.stop)
        run = under_way[in_run.start : in_run.stop]
        complete = float(self._there(np.arange(lines.start, lines.stop), run).max()) + 1
        offsets, vectors = passes.offsets, len(passes.offsets)
        rows = vectors // passes.halves
        free = max(issued + 1 + FRONT_LATENCY, self.free + COMMAND_GAP)
        begin = read = summed = 0.0
        for n in range(passes.n_tiles):
            here = slice(accumulator + n * rows, accumulator + (n + 1) * rows)
            for k, pass_lines in enumerate(passes.lines):
                begun, loaded = self._weights.next_tile()
                start = max(free, begun)
                needed: Times | None = None
                if n == 0 and complete + FOLLOW_LATENCY > start:
                    needed = self._there(pass_lines, run) + 1 + FOLLOW_LATENCY
                if k == 0 and sums.read[here].max() + 1 + FOLLOW_LATENCY > start:
                    row_free = sums.read[here] + 1 + FOLLOW_LATENCY
                    row_free = np.repeat(row_free, passes.halves)
                    needed = row_free if needed is None else np.maximum(needed, row_free)
                times = paced(start, offsets, needed)
                first = float(times[0])
                self._weights.swap(first)
                # Late rows of the tile hold up the first vectors on their way into the array, and
                # all vectors on their way through it.
                held = max(0.0, loaded - (first + self._rows - 1))
                ends = times + held + self._latency
                if held:
                    step = np.minimum(np.arange(vectors), self._rows - 1)
                    times = times + step * (held / (self._rows - 1))
                read = float(times[-1])
                free = max(read + 1, loaded + 1 if held else 0.0)
                if n == k == 0:
                    begin = first
                if passes.sequential and n == passes.n_tiles - 1:
                    space.read[pass_lines] = np.maximum(space.read[pass_lines], times)
                self._recent.append((times, pass_lines))
                if k == len(passes.lines) - 1:
                    sums.written[here] = ends[passes.halves - 1 :: passes.halves]
                    summed = float(ends[-1])
        self.free = free
        if not passes.sequential:
            space.read[lines] = np.maximum(space.read[lines], read)
        space.used[lines] = np.maximum(space.used[lines], read)
        return Span(begin, read, summed, passes.n_tiles * len(passes.lines) * vectors)

    def run_from_buffer(self, passes: Passes, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of an instruction with weights from the buffer.

        The lines of the weights are in use until the last sum is written.
        """
        tiles = operands["n_tiles"] * operands["k_tiles"] << operands["wide_weights"]
        lines = slice(operands["weights"], operands["weights"] + tiles * self._rows)
        space = self._regions.buffer
        self._weights.read_buffer(issued, float(space.written[lines].max()) + 1, tiles)
        span = self.run(passes, issued)
        for used in (space.read, space.used):
            used[lines] = np.maximum(used[lines], span.end)
        return span

    def state(self, now: float) -> MatrixState:
        """Return the state with times relative to cycle `now`."""
        free = self.free - now
        if free < -FORGOTTEN:
            # An interlock looks at an instruction in every other cycle, so it still matters if
            # `free` is even or odd.
            free = free % 2 - FORGOTTEN
        return free, tuple(
            ((times - now).tobytes(), lines.tobytes())
            for times, lines in self._recent
            if times[-1] >= now
        )

    def resume(self, state: MatrixState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        free, passes = state
        self.free = now + free
        self._recent.clear()
        for times, lines in passes:
            self._recent.append((now + np.frombuffer(times), np.frombuffer(lines, np.int64)))
