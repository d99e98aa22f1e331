# SPDX-License-Identifier: Apache-2.0
"""The machine as the text of the instruction set describes it: one instruction at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Function,
    Instruction,
    Opcode,
    Rounding,
    decode,
    reserved_bits,
)
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.golden.outcome import FaultReport, Outcome
from systola.golden.requantise import activate, requantise

ADDRESS_OPERAND: Mapping[Fault, str] = {
    Fault.BUFFER_RANGE: "buffer",
    Fault.ACCUMULATOR_RANGE: "accumulator",
    Fault.PARAMETER_RANGE: "parameter",
    Fault.TABLE_RANGE: "table",
    Fault.HOST_WINDOW: "host",
    Fault.WEIGHT_WINDOW: "tile",
    Fault.WEIGHT_OVERFLOW: "tile",
}
"""The operand that FAULT_ADDRESS repeats, for the causes where it does."""


class Machine:
    """Golden model of a machine of configuration `config`.

    `run` executes a program. The on-chip memories below start at zero, persist from one run to
    the next and may be read and written between runs. The methods named like instructions are
    the instructions themselves, free of checks: `run` makes those first.

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
        self._queue: deque[range] = deque()
        """Tiles not yet consumed; one range, never empty, for each Read_Weights."""
        self._interrupts: list[int] = []
        self._execute: dict[Opcode, Callable[..., None]] = {
            Opcode.NOP: self.nop,
            Opcode.HALT: self.halt,
            Opcode.SYNCHRONIZE: self.synchronize,
            Opcode.INTERRUPT_HOST: self.interrupt_host,
            Opcode.READ_HOST_MEMORY: self.read_host_memory,
            Opcode.WRITE_HOST_MEMORY: self.write_host_memory,
            Opcode.LOAD_PARAMETERS: self.load_parameters,
            Opcode.LOAD_TABLE: self.load_table,
            Opcode.READ_WEIGHTS: self.read_weights,
            Opcode.MATRIX_MULTIPLY: self.matrix_multiply,
            Opcode.ACTIVATE: self.activate,
        }

    def run(
        self, host: NDArray[np.uint8], weights: NDArray[np.uint8], program_offset: int
    ) -> Outcome:
        """Executes the program at byte `program_offset` of `host` up to Halt or a fault.

        `host` is the host window: 1-D, contiguous, whole pages of 4096 bytes, modified in place.
        `weights` is the weight window: 1-D, whole tiles of `config.tile_bytes`, may be empty.
        `program_offset` is a multiple of 128. Raises ValueError where one of these is not so;
        what goes wrong in the program itself is reported in the outcome. Each instruction is
        fetched when all earlier ones have completed.
        """
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
        self._queue.clear()
        self._interrupts.clear()

        pc = 0
        while True:
            offset = program_offset + pc * INSTRUCTION_BYTES
            if offset + INSTRUCTION_BYTES > host.size:
                return self._stopped(Fault.FETCH_WINDOW, pc, offset)
            word = host[offset : offset + INSTRUCTION_BYTES].tobytes()
            decoded = decode(word)
            if decoded is None:
                return self._stopped(Fault.ILLEGAL_OPCODE, pc, word[0])
            entry, operands = decoded
            if not self._fields_legal(entry, operands, word):
                return self._stopped(Fault.ILLEGAL_FIELD, pc, 0)
            violations = self._violations(entry.opcode, operands)
            for cause in entry.checks:
                if violations[cause]:
                    return self._stopped(cause, pc, self._address(cause, operands))
            self._execute[entry.opcode](**operands)
            pc += 1
            if entry.opcode == Opcode.HALT:
                return Outcome(None, tuple(self._interrupts), pc)

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

    def read_host_memory(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copies blocks of R bytes from host memory into buffer lines, padded with zeros."""
        size = self.config.rows
        lines = self._lines(buffer, blocks, rows)
        lines[:] = 0
        for block in range(blocks):
            count = tail if block == blocks - 1 else size
            source = self._host_rows(host + block * self.config.input_pitch, rows, stride, count)
            lines[block, :, :count] = source.view(np.int8)

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
    ) -> None:
        """Multiplies buffer lines by the next k_tiles * n_tiles tiles into accumulator rows."""
        size = self.config.rows
        depth = k_tiles * size
        # Element m, k * R + i is byte i of line buffer + k * rows + m. A product is at most 2^14
        # and depth below 2^20: float64 holds every partial sum exactly, and BLAS is fast.
        vectors = (
            self._lines(buffer, k_tiles, rows)[:, :, :size]
            .transpose(1, 0, 2)
            .reshape(rows, depth)
            .astype(np.float64)
        )
        for n in range(n_tiles):
            weights = self._next_tiles(k_tiles).reshape(depth, -1).astype(np.float64)
            product = (vectors @ weights).astype(np.int64).astype(np.int32)
            start = accumulator + n * rows
            if accumulate:
                self.accumulators[start : start + rows] += product
            else:
                self.accumulators[start : start + rows] = product

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
    ) -> None:
        """Requantises accumulator rows, applies the function and writes buffer lines."""
        cols = self.config.cols
        # Planes to one little-endian word each: (n_tiles, 1, cols), to broadcast over rows.
        planes = self.parameters[parameter : parameter + n_tiles, :, np.newaxis].astype(np.int64)
        place = np.arange(0, 32, 8).reshape(1, 4, 1, 1)
        bias = (planes[:, 0:4] << place).sum(axis=1).astype(np.int32)
        multiplier = (planes[:, 4:8] << place).sum(axis=1) & 0x7FFF_FFFF
        shift = planes[:, 8]
        y = requantise(
            self.accumulators[accumulator : accumulator + n_tiles * rows].reshape(
                n_tiles, rows, cols
            ),
            bias,
            multiplier,
            shift >> 5,
            shift & 0x1F,
            Rounding(rounding),
        )
        lookup = self.tables[table] if function == Function.TABLE else None
        lines = self._lines(buffer, n_tiles, rows)
        lines[:, :, :cols] = activate(y, Function(function), zero_point, ceiling, lookup)
        lines[:, :, cols:] = 0

    def _fields_legal(self, entry: Instruction, operands: Mapping[str, int], word: bytes) -> bool:
        """Whether nothing about the word alone is ILLEGAL_FIELD."""
        if reserved_bits(entry, word):
            return False
        for field in entry.fields:
            if field.minimum is not None and operands[field.name] < field.minimum:
                return False
        bus = self.config.host_bus_bytes
        if operands.get("host", 0) % bus or operands.get("stride", 0) % bus:
            return False
        if entry.opcode == Opcode.READ_HOST_MEMORY:
            return operands["tail"] <= self.config.rows
        if entry.opcode == Opcode.WRITE_HOST_MEMORY:
            return operands["tail"] <= self.config.cols
        return True

    def _violations(self, opcode: Opcode, operands: Mapping[str, int]) -> dict[Fault, bool]:
        """For every check of the instruction, whether it fails."""
        config = self.config
        at = operands

        def buffer(lines: int) -> bool:
            return at["buffer"] + lines > config.buffer_lines

        def accumulator(rows: int) -> bool:
            return at["accumulator"] + rows > config.accumulator_rows

        def parameter(entries: int) -> bool:
            return at["parameter"] + entries > config.parameter_entries

        def window(size: int) -> bool:
            return at["host"] + size > self._host.size

        match opcode:
            case Opcode.READ_HOST_MEMORY | Opcode.WRITE_HOST_MEMORY:
                reads = opcode == Opcode.READ_HOST_MEMORY
                pitch = config.input_pitch if reads else config.output_pitch
                rows, blocks = at["rows"], at["blocks"]
                return {
                    Fault.BUFFER_RANGE: buffer(rows * blocks),
                    Fault.HOST_WINDOW: window((rows - 1) * at["stride"] + blocks * pitch),
                }
            case Opcode.LOAD_PARAMETERS:
                size = at["count"] * PARAMETER_PLANES * config.output_pitch
                return {
                    Fault.PARAMETER_RANGE: parameter(at["count"]),
                    Fault.HOST_WINDOW: window(size),
                }
            case Opcode.LOAD_TABLE:
                return {
                    Fault.TABLE_RANGE: at["table"] >= config.tables,
                    Fault.HOST_WINDOW: window(TABLE_BYTES),
                }
            case Opcode.READ_WEIGHTS:
                # Tiles leave in order: when the oldest of the last WEIGHT_READS_IN_FLIGHT has
                # tiles left, so have all after it, and each has its range in the queue.
                return {
                    Fault.WEIGHT_WINDOW: at["tile"] + at["count"] > len(self._tiles),
                    Fault.WEIGHT_OVERFLOW: len(self._queue) >= WEIGHT_READS_IN_FLIGHT,
                }
            case Opcode.MATRIX_MULTIPLY:
                tiles = at["k_tiles"] * at["n_tiles"]
                return {
                    Fault.BUFFER_RANGE: buffer(at["rows"] * at["k_tiles"]),
                    Fault.ACCUMULATOR_RANGE: accumulator(at["rows"] * at["n_tiles"]),
                    Fault.WEIGHT_UNDERFLOW: tiles > self._tiles_queued(),
                }
            case Opcode.ACTIVATE:
                vectors = at["rows"] * at["n_tiles"]
                uses_table = at["function"] == Function.TABLE
                return {
                    Fault.ACCUMULATOR_RANGE: accumulator(vectors),
                    Fault.BUFFER_RANGE: buffer(vectors),
                    Fault.PARAMETER_RANGE: parameter(at["n_tiles"]),
                    Fault.TABLE_RANGE: uses_table and at["table"] >= config.tables,
                }
            case _:
                return {}

    def _address(self, cause: Fault, operands: Mapping[str, int]) -> int:
        """What FAULT_ADDRESS holds after a failed check."""
        if cause == Fault.WEIGHT_UNDERFLOW:
            return self._tiles_queued()
        return operands[ADDRESS_OPERAND[cause]]

    def _stopped(self, cause: Fault, pc: int, address: int) -> Outcome:
        report = FaultReport(cause, pc, address & 0xFFFF_FFFF)
        return Outcome(report, tuple(self._interrupts), pc)

    def _tiles_queued(self) -> int:
        return sum(len(span) for span in self._queue)

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

    def _host_rows(self, offset: int, rows: int, stride: int, count: int) -> NDArray[np.uint8]:
        """`count` bytes of host memory every `stride` bytes as a view: (rows, count)."""
        return as_strided(self._host[offset:], shape=(rows, count), strides=(stride, 1))
