# SPDX-License-Identifier: Apache-2.0
"""The machine as the text of the instruction set describes it: one instruction at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.features import unavailable
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    INSTRUCTION_BYTES,
    LINK_OPCODES,
    LOOP_DEPTH,
    PARAMETER_PLANES,
    TABLE_BYTES,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Function,
    Instruction,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    Source,
    decode,
)
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.golden import ranges
from systola.golden.legality import fields_legal
from systola.golden.links import link_part
from systola.golden.outcome import FaultReport, LimitReached, Outcome
from systola.golden.ranges import Access
from systola.golden.requantise import (
    Integers,
    activate,
    activate_wide,
    clamped,
    parameter_entry,
    requantise,
)
from systola.golden.scalar import ScalarUnit
from systola.golden.training import Exponents, Generators, magnitude_bits
from systola.golden.vector import Scale, depthwise_sums, pooled, vector_sums
from systola.golden.wide import joined, parted
from systola.golden.window import UNSET, Window


class Machine:
    """Golden model of a machine of configuration `config`.

    `run` executes a program. The on-chip memories below start at zero, persist from one run to
    the next and may be read and written between runs. The methods named like instructions are
    the instructions themselves, free of checks, and take effective operands, index registers
    added: `run` sees to both.

    Memories
    --------
    buffer : int8, (buffer_lines, line_bytes)
    accumulators : int32, (accumulator_rows, cols)
    parameters : uint8, (parameter_entries, PARAMETER_PLANES, cols), planes as Load_Parameters
        found them
    tables : int8, (tables, TABLE_BYTES)
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.buffer = np.zeros((config.buffer_lines, config.line_bytes), np.int8)
        self.accumulators = np.zeros((config.accumulator_rows, config.cols), np.int32)
        self.parameters = np.zeros(
            (config.parameter_entries, PARAMETER_PLANES, config.cols), np.uint8
        )
        self.tables = np.zeros((config.tables, TABLE_BYTES), np.int8)
        self._host = np.zeros(0, np.uint8)
        self._tiles = np.zeros((0, config.rows, config.weight_row_pitch), np.uint8)
        self._program = 0
        self._reset()
        self._execute: dict[Opcode, Callable[..., None]] = {
            Opcode.NOP: self.nop,
            Opcode.HALT: self.halt,
            Opcode.SYNCHRONIZE: self.synchronize,
            Opcode.INTERRUPT_HOST: self.interrupt_host,
            Opcode.SYNCHRONIZE_HOST: self.synchronize_host,
            Opcode.DEBUG_TAG: self.debug_tag,
            Opcode.SET_REGISTER: self.set_register,
            Opcode.LOOP: self.loop,
            Opcode.END_LOOP: self.end_loop,
            Opcode.SET_CONFIG_WINDOW: self.set_config_window,
            Opcode.SET_CONFIG_SCALE: self.set_config_scale,
            Opcode.READ_HOST_MEMORY: self.read_host_memory,
            Opcode.WRITE_HOST_MEMORY: self.write_host_memory,
            Opcode.LOAD_PARAMETERS: self.load_parameters,
            Opcode.LOAD_TABLE: self.load_table,
            Opcode.READ_HOST_MEMORY_ALTERNATE: self.read_host_memory_alternate,
            Opcode.WRITE_HOST_MEMORY_ALTERNATE: self.write_host_memory_alternate,
            Opcode.READ_WEIGHTS: self.read_weights,
            Opcode.MATRIX_MULTIPLY: self.matrix_multiply,
            Opcode.CONVOLVE: self.convolve,
            Opcode.ACTIVATE: self.activate,
            Opcode.DEPTHWISE: self.depthwise,
            Opcode.POOL: self.pool,
            Opcode.VECTOR: self.vector,
            Opcode.MEASURE: self.measure,
            Opcode.TRANSPOSE: self.transpose,
            Opcode.RANDOM: self.random,
        }

    def run(
        self,
        host: NDArray[np.uint8],
        weights: NDArray[np.uint8],
        program_offset: int,
        *,
        limit: int | None = None,
    ) -> Outcome:
        """Executes the program at byte `program_offset` of `host` up to Halt or a fault.

        `host` is the host window: 1-D, contiguous, whole pages of 4096 bytes, modified in place.
        `weights` is the weight window: 1-D, whole tiles of `config.tile_bytes`, may be empty.
        `program_offset` is a multiple of 128. Raises ValueError where one of these is not so, and
        LimitReached before the program executes more than `limit` instructions; what goes wrong
        in the program itself is reported in the outcome. Each instruction is fetched when all
        earlier ones have completed. A machine by itself has no neighbours: instructions of the
        links end in LINK_TIMEOUT here, and run in a pod (golden/pod.py).
        """
        self.start(host, weights, program_offset)
        while True:
            found = self.next_instruction()
            if isinstance(found, Outcome):
                return found
            entry, operands = found
            if self.executed == limit:
                raise LimitReached(
                    f"the program still runs after {limit} instructions, at {self._next}"
                )
            if entry.opcode in LINK_OPCODES:
                return self.stopped(Fault.LINK_TIMEOUT, 0, link_part(entry.opcode, operands))
            self.execute(entry, operands)
            if entry.opcode == Opcode.HALT:
                return self.outcome(None)

    def start(
        self, host: NDArray[np.uint8], weights: NDArray[np.uint8], program_offset: int
    ) -> None:
        """Before the first instruction of a program; see `run`."""
        config = self.config
        if host.ndim != 1 or host.size % HOST_PAGE_BYTES or not host.flags.c_contiguous:
            raise ValueError(
                f"host window must be 1-D, contiguous, a multiple of {HOST_PAGE_BYTES} bytes"
            )
        if weights.ndim != 1 or weights.size % config.tile_bytes:
            raise ValueError(
                f"weight window must be 1-D, a multiple of {config.tile_bytes} bytes (one tile)"
            )
        if program_offset < 0 or program_offset % PROGRAM_ALIGNMENT:
            raise ValueError(f"program_offset must be a multiple of {PROGRAM_ALIGNMENT}")
        self._host = host
        self._tiles = weights.reshape(
            weights.size // config.tile_bytes, config.rows, config.weight_row_pitch
        )
        self._program = program_offset
        self._reset()

    def next_instruction(self) -> tuple[Instruction, Mapping[str, int]] | Outcome:
        """The next instruction and its effective operands, or the end where it is no sound one."""
        config, host, pc = self.config, self._host, self._next
        offset = self._program + pc * INSTRUCTION_BYTES
        if offset + INSTRUCTION_BYTES > host.size:
            return self.stopped(Fault.FETCH_WINDOW, pc, offset)
        word = host[offset : offset + INSTRUCTION_BYTES].tobytes()
        decoded = _decoded(word)
        if decoded is None:
            return self.stopped(Fault.ILLEGAL_OPCODE, pc, word[0])
        entry, fields = decoded
        if entry.opcode in LINK_OPCODES and not config.links:
            return self.stopped(Fault.UNAVAILABLE, pc, entry.opcode)
        operands = self._scalar.effective(entry, fields)
        if not fields_legal(config, entry, operands, word):
            return self.stopped(Fault.ILLEGAL_FIELD, pc, 0)
        for cause in entry.checks:
            address = self._failed(cause, entry.opcode, operands)
            if address is not None:
                return self.stopped(cause, pc, address)
        return entry, operands

    def skip(self) -> None:
        """Goes on to the instruction after the next one."""
        self._next += 1

    def execute(self, entry: Instruction, operands: Mapping[str, int]) -> None:
        """Does what the next instruction says, unless it is one of the links."""
        self.skip()
        self._execute[entry.opcode](**operands)
        self.executed += 1

    def nop(self) -> None:
        """Does nothing."""

    def halt(self) -> None:
        """Drops the weight tiles that nothing consumed. `run` ends the program."""
        self._queue.clear()

    def synchronize(self) -> None:
        """Does nothing: here every instruction has completed before the next one starts."""

    def interrupt_host(self, *, code: int) -> None:
        """Notes the code."""
        self._interrupts.append(code)

    def synchronize_host(self) -> None:
        """Does nothing: there is no host beside this model that could write RESUME."""

    def debug_tag(self, *, tag: int, wait: int) -> None:
        """Notes the tag. It waits for nothing: all earlier instructions have completed."""
        self._tags.append(tag)

    def set_register(self, *, register: int, value: int, first: int, second: int) -> None:
        """Computes an index register."""
        self._scalar.set_register(register, value, first, second)

    def loop(self, *, count: int) -> None:
        """Opens a loop that begins with the next instruction."""
        self._scalar.open_loop(count, self._next)

    def end_loop(self) -> None:
        """Goes back to the beginning of the innermost loop, or closes it."""
        body = self._scalar.end_loop()
        if body is not None:
            self._next = body

    def set_config_window(self, **operands: int) -> None:
        """Sets the window of Convolve, Depthwise and Pool."""
        self._window = Window(**operands)

    def set_config_scale(self, **operands: int) -> None:
        """Sets the scales of the operands of Vector."""
        self._scale = Scale(**operands)

    def read_host_memory(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copies blocks of R bytes from host memory into buffer lines, padded with zeros."""
        lines = self._lines(buffer, blocks, rows)
        self._read_host(lines, host, stride, tail)

    def read_host_memory_alternate(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """The same with the blocks of a row in lines that follow one another."""
        lines = self._lines(buffer, rows, blocks).transpose(1, 0, 2)
        self._read_host(lines, host, stride, tail)

    def write_host_memory(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copies the first C bytes of buffer lines to host memory, block after block."""
        size = self.config.cols
        lines = self._lines(buffer, blocks, rows).view(np.uint8)
        for block in range(blocks):
            count = tail if block == blocks - 1 else size
            target = self._host_rows(host + block * self.config.output_pitch, rows, stride, count)
            if stride >= count:
                target[:] = lines[block, :, :count]
            else:
                # Rows overlap: numpy does not promise an order within one assignment.
                for row in range(rows):
                    target[row] = lines[block, row, :count]

    def write_host_memory_alternate(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copies the first C bytes of buffer lines to host memory, row after row."""
        size, pitch = self.config.cols, self.config.output_pitch
        lines = self._lines(buffer, rows, blocks).view(np.uint8)
        # Where rows do not overlap, their order does not show.
        apart = stride >= blocks * pitch
        spans = [slice(0, rows)] if apart else [slice(row, row + 1) for row in range(rows)]
        for span in spans:
            for block in range(blocks):
                count = tail if block == blocks - 1 else size
                target = self._host_rows(host + block * pitch, rows, stride, count)
                target[span] = lines[span, block, :count]

    def load_parameters(self, *, host: int, parameter: int, count: int) -> None:
        """Copies `count` parameter entries from host memory."""
        pitch = self.config.output_pitch
        size = count * PARAMETER_PLANES * pitch
        planes = self._host[host : host + size].reshape(count, PARAMETER_PLANES, pitch)
        self.parameters[parameter : parameter + count] = planes[:, :, : self.config.cols]

    def load_table(self, *, host: int, table: int) -> None:
        """Copies one activation table from host memory."""
        self.tables[table] = self._host[host : host + TABLE_BYTES].view(np.int8)

    def read_weights(self, *, tile: int, count: int) -> None:
        """Queues `count` tiles from tile number `tile` on."""
        self._queue.append(range(tile, tile + count))

    def matrix_multiply(
        self,
        *,
        buffer: int,
        accumulator: int,
        rows: int,
        k_tiles: int,
        n_tiles: int,
        accumulate: int,
        wide_vectors: int,
        wide_weights: int,
        from_buffer: int,
        weights: int,
    ) -> None:
        """Multiplies buffer lines by the next tiles, or other lines, into accumulator rows."""
        size = self.config.rows
        depth = k_tiles * size
        # Element m, k * R + i is byte i of line buffer + k * rows + m, or of a pair of lines. A
        # product is at most 2^30 and depth below 2^20: float64 holds every partial sum exactly,
        # and BLAS is fast.
        vectors = (
            self._values(buffer, k_tiles, rows, bool(wide_vectors))[:, :, :size]
            .transpose(1, 0, 2)
            .reshape(rows, depth)
            .astype(np.float64)
        )
        for n in range(n_tiles):
            if from_buffer:
                first = weights + (n * depth << wide_weights)
                lines = self._values(first, 1, depth, bool(wide_weights))
                tiles: Integers = lines[0, :, : self.config.cols]
            elif wide_weights:
                pairs = self._next_tiles(2 * k_tiles).reshape(k_tiles, 2, -1)
                tiles = joined(pairs).reshape(depth, -1)
            else:
                tiles = self._next_tiles(k_tiles).reshape(depth, -1)
            product = (vectors @ tiles.astype(np.float64)).astype(np.int64).astype(np.int32)
            start = accumulator + n * rows
            if accumulate:
                self.accumulators[start : start + rows] += product
            else:
                self.accumulators[start : start + rows] = product

    def convolve(
        self,
        *,
        buffer: int,
        accumulator: int,
        plane: int,
        k_tiles: int,
        n_tiles: int,
        accumulate: int,
        channels: int,
        fill: int,
    ) -> None:
        """Multiplies the pixels under the taps of each window by the next tiles."""
        window, cols = self._window, self.config.cols
        depth = k_tiles * self.config.rows
        if channels:
            steps = [(i, 0) for i in range(window.kernel_height)]
        else:
            steps = [divmod(tap, window.kernel_width) for tap in range(window.taps)]
        # All n at once: (steps, depth, n_tiles * C).
        weights = (
            self._next_tiles(n_tiles * len(steps) * k_tiles)
            .reshape(n_tiles, len(steps), depth, cols)
            .transpose(1, 2, 0, 3)
            .reshape(len(steps), depth, n_tiles * cols)
        )
        # Sums stay below 2^14 * 2^8 * 2^12 * 2^16: float64 is exact.
        product = np.zeros((window.windows, n_tiles * cols))
        for (i, j), tiles in zip(steps, weights, strict=True):
            if channels:
                vectors = self._packed_pixels(buffer, i, channels, fill)
            else:
                vectors = self._pixels(buffer, i, j, plane, k_tiles, fill)
            product += vectors.astype(np.float64) @ tiles.astype(np.float64)
        rows = product.astype(np.int64).astype(np.int32).reshape(-1, n_tiles, cols)
        rows = rows.transpose(1, 0, 2).reshape(-1, cols)
        if accumulate:
            self.accumulators[accumulator : accumulator + len(rows)] += rows
        else:
            self.accumulators[accumulator : accumulator + len(rows)] = rows

    def activate(
        self,
        *,
        accumulator: int,
        buffer: int,
        rows: int,
        n_tiles: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        ceiling: int,
        table: int,
        wide: int,
        accumulate: int,
        exponent: int,
        stochastic: int,
    ) -> None:
        """Requantises accumulator rows, applies the function and writes buffer lines."""
        shape = n_tiles, rows, self.config.cols
        sums = self.accumulators[accumulator : accumulator + n_tiles * rows].reshape(shape)
        entries = range(parameter, parameter + n_tiles)
        dither = self._generators.dither(n_tiles * rows).reshape(shape) if stochastic else None
        y = self._requantised(sums, entries, rounding, exponent, dither)
        if wide:
            addend: Integers | int = zero_point
            if accumulate:
                addend = self._values(buffer, n_tiles, rows, True)[:, :, : self.config.cols]
            result = activate_wide(y, Function(function), addend, table)
            self._store_wide(buffer, result)
        else:
            self._store(buffer, self._activated(y, function, zero_point, ceiling, table))

    def depthwise(
        self,
        *,
        buffer: int,
        taps: int,
        destination: int,
        blocks: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        ceiling: int,
        fill: int,
    ) -> None:
        """Convolves each channel with its own kernel and requantises the sums."""
        window, cols = self._window, self.config.cols
        kernels = self._lines(taps, blocks, window.taps)[:, :, :cols]
        for b in range(blocks):
            lines = self.buffer[buffer + b * window.map_lines :, :cols]
            sums = depthwise_sums(lines, kernels[b], window, fill)
            y = self._requantised(sums, parameter + b, rounding)
            result = self._activated(y, function, zero_point, ceiling, 0)
            self._store(destination + b * window.windows, result)

    def pool(
        self,
        *,
        buffer: int,
        destination: int,
        blocks: int,
        parameter: int,
        reduction: int,
        rounding: int,
        zero_point: int,
        floor: int,
        ceiling: int,
    ) -> None:
        """Reduces the taps of each window and requantises the result."""
        window, cols = self._window, self.config.cols
        for b in range(blocks):
            lines = self.buffer[buffer + b * window.map_lines :, :cols]
            sums, inside = pooled(lines, window, Reduction(reduction))
            y = np.empty(sums.shape, np.int64)
            entries = np.zeros_like(inside)
            if reduction == Reduction.AVERAGE:
                entries = np.maximum(inside, 1) - 1
            for entry in np.unique(entries).tolist():
                chosen = entries == entry
                y[chosen] = self._requantised(sums[chosen], parameter + entry, rounding)
            result = clamped(y + zero_point, floor, ceiling).astype(np.int8)
            self._store(destination + b * window.windows, result)

    def vector(
        self,
        *,
        operation: int,
        buffer: int,
        operand: int,
        destination: int,
        rows: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        table: int,
        wide_operands: int,
        wide: int,
        accumulate: int,
        exponent: int,
    ) -> None:
        """Computes with the elements of one or two operands and requantises the results."""
        cols = self.config.cols
        a = self._values(buffer, 1, rows, bool(wide_operands))[0, :, :cols]
        b = None
        if operation != Operation.COPY:
            b = self._values(operand, 1, rows, bool(wide_operands))[0, :, :cols]
        scale = self._scale
        sums = vector_sums(Operation(operation), a, b, scale, 16 if wide_operands else 11)
        y = self._requantised(sums, parameter, rounding, exponent)
        if not wide:
            result = self._activated(y, function, zero_point, scale.ceiling, table)
            self._store(destination, result)
            return
        addend: Integers | int = zero_point
        if accumulate:
            addend = self._values(destination, 1, rows, True)[0, :, :cols]
        result = activate_wide(y, Function(function), addend, table)
        if function == Function.NONE and scale.limit:
            result = np.clip(result, -scale.limit, scale.limit)
        self._store_wide(destination, result)

    def measure(
        self,
        *,
        source: int,
        exponent: int,
        accumulator: int,
        buffer: int,
        rows: int,
        bits: int,
        first: int,
        second: int,
        third: int,
        value: int,
    ) -> None:
        """Sets an exponent register."""
        result = self._exponents.total(first, second, third, value)
        if source == Source.ACCUMULATORS:
            sums = self.accumulators[accumulator : accumulator + rows]
            result = max(result, magnitude_bits(sums) - bits)
        elif source == Source.LINES:
            values = self._values(buffer, 1, rows, True)[0, :, : self.config.cols]
            result = max(result, magnitude_bits(values) - bits)
        self._exponents.set(exponent, result)

    def transpose(self, *, buffer: int, destination: int, count: int, step: int) -> None:
        """Transposes tiles of lines."""
        size = self.config.cols
        tiles = np.empty((count, size, size), np.int8)
        for t in range(count):
            tiles[t] = self.buffer[buffer + t * step :][:size].T
        self._store(destination, tiles)

    def random(self, *, destination: int, rows: int, seed: int, counter: int) -> None:
        """Fills lines with random bytes."""
        self._store(destination, self._generators.lines(rows, seed, counter))

    def _reset(self) -> None:
        """The state in which every program starts; memories are no part of it."""
        self._next = 0
        self.executed = 0
        """Instructions that have completed."""
        self._queue: deque[range] = deque()
        """Tiles not yet consumed; one range, never empty, for each Read_Weights."""
        self._interrupts: list[int] = []
        self._tags: list[int] = []
        self._scalar = ScalarUnit()
        self._window = UNSET
        self._scale = Scale()
        self._exponents = Exponents()
        self._generators = Generators(self.config.cols)

    def _failed(self, cause: Fault, opcode: Opcode, at: Mapping[str, int]) -> int | None:
        """What FAULT_ADDRESS holds where the check for `cause` fails; None if it does not."""
        config = self.config
        match cause:
            case Fault.UNAVAILABLE:
                return int(opcode) if unavailable(config, opcode, at) else None
            case Fault.WINDOW:
                return None if self._window_fits(opcode, at) else 0
            case Fault.BUFFER_RANGE:
                regions = ranges.buffer_lines(opcode, at, self._window, config.rows)
                return next((r.start for r in regions if r.stop > config.buffer_lines), None)
            case Fault.OVERLAP:
                *sources, result = ranges.buffer_lines(opcode, at, self._window, config.rows)
                if opcode == Opcode.VECTOR:
                    sources = [source for source in sources if source != result]
                meets = any(s.start < result.stop and result.start < s.stop for s in sources)
                return result.start if meets else None
            case Fault.ACCUMULATOR_RANGE:
                rows = ranges.accumulator_rows(opcode, at, self._window)
                if not ranges.uses_accumulators(opcode, at):
                    return None
                return rows.start if rows.stop > config.accumulator_rows else None
            case Fault.PARAMETER_RANGE:
                entries = ranges.parameter_entries(opcode, at, self._window)
                return entries.start if entries.stop > config.parameter_entries else None
            case Fault.TABLE_RANGE:
                used = opcode == Opcode.LOAD_TABLE or at["function"] == Function.TABLE
                return at["table"] if used and at["table"] >= config.tables else None
            case Fault.HOST_WINDOW:
                span = ranges.host_bytes(opcode, at, config)
                return span.start if span.stop > self._host.size else None
            case Fault.WEIGHT_WINDOW:
                return at["tile"] if at["tile"] + at["count"] > len(self._tiles) else None
            case Fault.WEIGHT_OVERFLOW if opcode == Opcode.MATRIX_MULTIPLY:
                return at["weights"] if at["from_buffer"] and self._queue else None
            case Fault.WEIGHT_OVERFLOW:
                # Tiles leave in order: when the oldest of the last WEIGHT_READS_IN_FLIGHT has
                # tiles left, so have all after it, and each has its range in the queue.
                return at["tile"] if len(self._queue) >= WEIGHT_READS_IN_FLIGHT else None
            case Fault.WEIGHT_UNDERFLOW:
                queued = sum(len(span) for span in self._queue)
                return queued if ranges.tiles_consumed(opcode, at, self._window) > queued else None
            case Fault.LOOP:
                loops_open = self._scalar.loops_open
                if opcode == Opcode.LOOP:
                    bad = loops_open == LOOP_DEPTH or at["count"] == 0
                else:
                    bad = loops_open == 0
                return loops_open if bad else None
            case _:
                raise ValueError(f"{cause.name} is no check of an instruction")

    def accesses(self, entry: Instruction, operands: Mapping[str, int]) -> list[Access]:
        """The parts of the unified buffer and the accumulators that the instruction uses."""
        return ranges.accesses(entry, operands, self._window, self.config.rows)

    def _window_fits(self, opcode: Opcode, at: Mapping[str, int]) -> bool:
        """Whether the window is one that the instruction can use."""
        window = self._window
        if window is UNSET:
            return False
        if opcode == Opcode.CONVOLVE and at["channels"]:
            return at["k_tiles"] == 1 and window.fits_packed(at["channels"], self.config.rows)
        if opcode == Opcode.DEPTHWISE and window.taps > DEPTHWISE_TAPS:
            return False
        return window.width <= window.pitch

    def stopped(self, cause: Fault, pc: int, address: int) -> Outcome:
        """The end of the program by a fault."""
        return self.outcome(FaultReport(cause, pc, address & 0xFFFF_FFFF))

    def outcome(self, fault: FaultReport | None) -> Outcome:
        """The end of the program, as it stands."""
        return Outcome(fault, tuple(self._interrupts), tuple(self._tags), self.executed)

    def _next_tiles(self, count: int) -> NDArray[np.int8]:
        """Takes `count` tiles from the queue: (count, R, C)."""
        parts: list[NDArray[np.uint8]] = []
        while count:
            span = self._queue.popleft()
            used, rest = span[:count], span[count:]
            if rest:
                self._queue.appendleft(rest)
            parts.append(self._tiles[used.start : used.stop, :, : self.config.cols])
            count -= len(used)
        return np.concatenate(parts).view(np.int8)

    def _lines(self, first: int, groups: int, rows: int) -> NDArray[np.int8]:
        """Buffer lines from `first` on as a view: (groups, rows, line_bytes)."""
        lines = self.buffer[first : first + groups * rows]
        return lines.reshape(groups, rows, self.config.line_bytes)

    def _values(self, first: int, groups: int, rows: int, wide: bool) -> Integers:
        """Whole lines as int8, or pairs of lines as int16: (groups, rows, line_bytes)."""
        if not wide:
            return self._lines(first, groups, rows)
        return joined(self._lines(first, groups * rows, 2)).reshape(groups, rows, -1)

    def _pixels(
        self, buffer: int, i: int, j: int, plane: int, k_tiles: int, fill: int
    ) -> NDArray[np.int8]:
        """The pixels under tap (i, j) of each window, all blocks: (windows, k_tiles * R)."""
        lines, inside = self._window.tap_lines(i, j)
        blocks = buffer + plane * np.arange(k_tiles)
        pixels = self.buffer[lines[:, np.newaxis] + blocks, : self.config.rows]
        pixels[~inside] = fill
        return pixels.reshape(len(lines), -1)

    def _packed_pixels(self, buffer: int, i: int, channels: int, fill: int) -> NDArray[np.int8]:
        """The bytes under row i of the kernel in each window: (windows, R)."""
        lines, byte, inside = self._window.packed_bytes(i, channels, self.config.rows)
        return np.where(inside, self.buffer[buffer + lines, byte], np.int8(fill))

    def _requantised(
        self,
        sums: NDArray[np.int32],
        entries: int | range,
        rounding: int,
        exponent: int = 0,
        dither: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """The y of Activate for sums (..., C) and one entry, or (n, rows, C) and n entries."""
        if isinstance(entries, range):
            planes = self.parameters[entries.start : entries.stop, np.newaxis]
        else:
            planes = self.parameters[entries]
        entry = parameter_entry(planes)
        if exponent:
            left, right = map(np.int64, self._exponents.shifts(exponent))
            entry = entry._replace(left=left, right=right)
        return requantise(sums, *entry, rounding=Rounding(rounding), dither=dither)

    def _activated(
        self, y: NDArray[np.int64], function: int, zero_point: int, ceiling: int, table: int
    ) -> NDArray[np.int8]:
        """The int8 results of Activate."""
        lookup = self.tables[table] if function == Function.TABLE else None
        return activate(y, Function(function), zero_point, ceiling, lookup)

    def _store(self, first: int, results: NDArray[np.int8]) -> None:
        """Writes (..., C) results to lines, one each; bytes beyond C become 0."""
        cols = self.config.cols
        vectors = results.reshape(-1, cols)
        lines = self.buffer[first : first + len(vectors)]
        lines[:, :cols] = vectors
        lines[:, cols:] = 0

    def _store_wide(self, first: int, results: NDArray[np.int16]) -> None:
        """Writes (..., C) results to pairs of lines."""
        self._store(first, parted(results))

    def _read_host(self, lines: NDArray[np.int8], host: int, stride: int, tail: int) -> None:
        """Fills lines (blocks, rows, line_bytes) from host memory."""
        blocks, rows, _ = lines.shape
        lines[:] = 0
        for block in range(blocks):
            count = tail if block == blocks - 1 else self.config.rows
            source = self._host_rows(host + block * self.config.input_pitch, rows, stride, count)
            lines[block, :, :count] = source.view(np.int8)

    def _host_rows(self, offset: int, rows: int, stride: int, count: int) -> NDArray[np.uint8]:
        """`count` bytes of host memory every `stride` bytes as a view: (rows, count)."""
        return as_strided(self._host[offset:], shape=(rows, count), strides=(stride, 1))


@lru_cache(maxsize=4096)
def _decoded(word: bytes) -> tuple[Instruction, Mapping[str, int]] | None:
    """`decode`, remembered for the passes of a loop."""
    return decode(word)
