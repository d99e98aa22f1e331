# SPDX-License-Identifier: Apache-2.0
"""Random programs, crowded into so few lines, rows and bytes that hazards of all kinds abound."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Function,
    Opcode,
    encode,
)
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.runtime.backend import Image
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_parameter_entry,
    random_tiles,
)

_LINES = 40
_ACCUMULATORS = 24
_ENTRIES = 3
_TILES = 8
_MOST_QUEUED = 12

_WEIGHTS: dict[Opcode, int] = {
    Opcode.MATRIX_MULTIPLY: 6,
    Opcode.ACTIVATE: 6,
    Opcode.READ_HOST_MEMORY: 5,
    Opcode.WRITE_HOST_MEMORY: 5,
    Opcode.READ_WEIGHTS: 5,
    Opcode.LOAD_PARAMETERS: 1,
    Opcode.LOAD_TABLE: 1,
    Opcode.NOP: 1,
    Opcode.SYNCHRONIZE: 1,
    Opcode.INTERRUPT_HOST: 1,
}

STATIC_FAULTS = tuple(
    fault
    for fault in Fault
    if fault
    not in (
        Fault.NONE,
        Fault.HOST_READ_ERROR,
        Fault.HOST_WRITE_ERROR,
        Fault.WEIGHT_READ_ERROR,
        Fault.FETCH_ERROR,
    )
)
"""Faults that the program alone causes, with no error on a bus."""


@dataclass(frozen=True)
class _Span:
    """A part of a memory, in lines, rows, entries or bytes."""

    start: int
    size: int


@dataclass
class _Writer:
    """Emits legal instructions that stay within a few spans of each memory."""

    config: Config
    rng: random.Random
    lines: _Span
    accumulators: _Span
    entries: _Span
    shared: _Span
    """Host bytes that programs both read and write."""
    parameters: int
    """Host offset of well-formed parameter entries."""
    tables: int
    """Host offset of tables."""
    window: int
    words: list[bytes] = field(default_factory=list[bytes])
    queued: deque[int] = field(default_factory=deque[int])
    """Tiles not yet consumed of each Read_Weights."""

    def emit(self, opcode: Opcode, **operands: int) -> None:
        self.words.append(encode(opcode, **operands))

    def within(self, span: _Span, size: int) -> int:
        return span.start + self.rng.randint(0, span.size - size)

    def rows(self, limit: int) -> int:
        return self.rng.choice((1, 1, 2, 3, self.rng.randint(1, limit), min(limit, 8)))

    def some_instruction(self) -> None:
        opcode = self.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        getattr(self, opcode.name.lower())()

    def nop(self) -> None:
        self.emit(Opcode.NOP)

    def synchronize(self) -> None:
        self.emit(Opcode.SYNCHRONIZE)

    def interrupt_host(self) -> None:
        self.emit(Opcode.INTERRUPT_HOST, code=self.rng.getrandbits(16))

    def read_host_memory(self) -> None:
        self.copy(Opcode.READ_HOST_MEMORY, self.config.input_pitch, self.config.rows)

    def write_host_memory(self) -> None:
        self.copy(Opcode.WRITE_HOST_MEMORY, self.config.output_pitch, self.config.cols)

    def copy(self, opcode: Opcode, pitch: int, vector: int) -> None:
        rng, bus = self.rng, self.config.host_bus_bytes
        blocks = rng.choice((1, 1, 2, 3))
        rows = min(self.rows(12), self.lines.size // blocks)
        stride = rng.choice(
            (blocks * pitch, blocks * pitch, (blocks + 1) * pitch, bus * rng.randint(0, 8))
        )
        while (rows - 1) * stride + blocks * pitch > self.shared.size:
            rows -= 1
        extent = (rows - 1) * stride + blocks * pitch
        offset = rng.randint(0, (self.shared.size - extent) // bus) * bus
        self.emit(
            opcode,
            host=self.shared.start + offset,
            buffer=self.within(self.lines, rows * blocks),
            rows=rows,
            stride=stride,
            blocks=blocks,
            tail=rng.choice((vector, rng.randint(1, vector))),
        )

    def load_parameters(self) -> None:
        count = self.rng.randint(1, self.entries.size)
        size = PARAMETER_PLANES * self.config.output_pitch
        sources = [self.parameters + self.rng.randint(0, self.entries.size - count) * size]
        if self.shared.size >= count * size:
            sources.append(self.shared.start)
        self.emit(
            Opcode.LOAD_PARAMETERS,
            host=self.rng.choice(sources),
            parameter=self.within(self.entries, count),
            count=count,
        )

    def load_table(self) -> None:
        bus = self.config.host_bus_bytes
        self.emit(
            Opcode.LOAD_TABLE,
            host=self.tables + self.rng.randint(0, TABLE_BYTES // bus) * bus,
            table=self.rng.randrange(self.config.tables),
        )

    def read_weights(self) -> None:
        count = self.rng.randint(1, 3)
        if len(self.queued) == WEIGHT_READS_IN_FLIGHT or sum(self.queued) + count > _MOST_QUEUED:
            self.matrix_multiply()
            return
        self.queued.append(count)
        self.emit(Opcode.READ_WEIGHTS, tile=self.rng.randint(0, _TILES - count), count=count)

    def matrix_multiply(self) -> None:
        available = sum(self.queued)
        if not available:
            self.read_weights()
            return
        k_tiles = self.rng.randint(1, min(3, available))
        n_tiles = self.rng.randint(1, min(3, available // k_tiles))
        rows = min(self.rows(9), self.lines.size // k_tiles, self.accumulators.size // n_tiles)
        self.consume(k_tiles * n_tiles)
        self.emit(
            Opcode.MATRIX_MULTIPLY,
            buffer=self.within(self.lines, rows * k_tiles),
            accumulator=self.within(self.accumulators, rows * n_tiles),
            rows=rows,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
            accumulate=self.rng.randrange(2),
        )

    def consume(self, tiles: int) -> None:
        while tiles:
            used = min(tiles, self.queued[0])
            tiles -= used
            self.queued[0] -= used
            if not self.queued[0]:
                self.queued.popleft()

    def activate(self) -> None:
        rng = self.rng
        n_tiles = rng.randint(1, self.entries.size)
        rows = min(self.rows(9), min(self.lines.size, self.accumulators.size) // n_tiles)
        self.emit(
            Opcode.ACTIVATE,
            accumulator=self.within(self.accumulators, rows * n_tiles),
            buffer=self.within(self.lines, rows * n_tiles),
            rows=rows,
            n_tiles=n_tiles,
            parameter=self.within(self.entries, n_tiles),
            function=rng.choice(list(Function)),
            rounding=rng.randrange(2),
            zero_point=rng.randint(-128, 127),
            ceiling=rng.randint(-128, 127),
            table=rng.randrange(self.config.tables),
        )

    def fill_everything(self) -> None:
        """Gives a value to all on-chip state that the other instructions may read."""
        config = self.config
        lines, rows = self.lines, self.accumulators
        self.emit(
            Opcode.READ_HOST_MEMORY,
            host=self.shared.start,
            buffer=lines.start,
            rows=lines.size,
            stride=config.input_pitch,
            blocks=1,
            tail=config.rows,
        )
        self.emit(Opcode.READ_WEIGHTS, tile=0, count=1)
        self.emit(
            Opcode.MATRIX_MULTIPLY,
            buffer=lines.start,
            accumulator=rows.start,
            rows=rows.size,
            k_tiles=1,
            n_tiles=1,
        )
        self.emit(
            Opcode.LOAD_PARAMETERS,
            host=self.parameters,
            parameter=self.entries.start,
            count=self.entries.size,
        )
        for table in range(config.tables):
            self.emit(Opcode.LOAD_TABLE, host=self.tables, table=table)

    def show_everything(self) -> None:
        """Writes what the program has left in buffer and accumulators to the shared bytes."""
        config = self.config
        for activated in (False, True):
            rows = self.accumulators.size if activated else self.lines.size
            if activated:
                self.emit(
                    Opcode.ACTIVATE,
                    accumulator=self.accumulators.start,
                    buffer=self.lines.start,
                    rows=rows,
                    n_tiles=1,
                    parameter=self.entries.start,
                )
            self.emit(
                Opcode.WRITE_HOST_MEMORY,
                host=self.shared.start + (self.lines.size * config.output_pitch) * activated,
                buffer=self.lines.start,
                rows=rows,
                stride=config.output_pitch,
                blocks=1,
                tail=config.cols,
            )

    def faulty(self, fault: Fault) -> list[bytes]:
        """Instructions of which one causes `fault`. FETCH_WINDOW is the caller's business."""
        config, bus = self.config, self.config.host_bus_bytes
        copy = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
        multiply = {"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 1}
        match fault:
            case Fault.ILLEGAL_OPCODE:
                unused = set(range(256)) - {int(opcode) for opcode in Opcode}
                return [bytes([self.rng.choice(sorted(unused))]) + self.rng.randbytes(15)]
            case Fault.ILLEGAL_FIELD:
                stuck = encode(Opcode.NOP)[:15] + b"\x01"
                longer = encode(Opcode.WRITE_HOST_MEMORY, **{**copy, "tail": config.cols + 1})
                skewed = encode(Opcode.READ_HOST_MEMORY, **{**copy, "stride": bus // 2})
                return [self.rng.choice((stuck, longer, skewed))]
            case Fault.BUFFER_RANGE:
                last = {**copy, "buffer": config.buffer_lines - 1, "rows": 2}
                return [encode(Opcode.READ_HOST_MEMORY, **last)]
            case Fault.ACCUMULATOR_RANGE:
                last = {**multiply, "accumulator": config.accumulator_rows}
                return [encode(Opcode.MATRIX_MULTIPLY, **last)]
            case Fault.PARAMETER_RANGE:
                return [
                    encode(
                        Opcode.LOAD_PARAMETERS,
                        host=self.parameters,
                        parameter=config.parameter_entries - 1,
                        count=2,
                    )
                ]
            case Fault.TABLE_RANGE:
                return [encode(Opcode.LOAD_TABLE, host=self.tables, table=config.tables)]
            case Fault.HOST_WINDOW:
                return [encode(Opcode.WRITE_HOST_MEMORY, **{**copy, "host": self.window})]
            case Fault.WEIGHT_WINDOW:
                return [encode(Opcode.READ_WEIGHTS, tile=_TILES - 1, count=2)]
            case Fault.WEIGHT_UNDERFLOW:
                return [encode(Opcode.MATRIX_MULTIPLY, **{**multiply, "k_tiles": 2 * _MOST_QUEUED})]
            case _:  # WEIGHT_OVERFLOW
                one_more = WEIGHT_READS_IN_FLIGHT + 1
                return [encode(Opcode.READ_WEIGHTS, tile=0, count=1)] * one_more


def random_program(
    config: Config, seed: int | str, *, instructions: int = 30, fault: Fault | None = None
) -> Image:
    """A program of about `instructions` random instructions, the same for the same arguments.

    It gives a value to all the state that it reads before it reads it, so it can be the first of
    a machine or come after any other. It ends at Halt, or at `fault`, one of STATIC_FAULTS.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    lines = min(_LINES, config.buffer_lines)
    rows = min(_ACCUMULATORS, config.accumulator_rows)
    entries = min(_ENTRIES, config.parameter_entries)
    entry_bytes = PARAMETER_PLANES * config.output_pitch
    program_pages = 1 + 2 * (instructions + 20) * INSTRUCTION_BYTES // HOST_PAGE_BYTES
    shared = _Span(
        program_pages * HOST_PAGE_BYTES,
        lines * config.input_pitch + 2 * lines * config.output_pitch,
    )
    parameters = _round_up(shared.start + shared.size, 256)
    tables = _round_up(parameters + entries * entry_bytes, 256)
    pages = -(-(tables + 2 * TABLE_BYTES) // HOST_PAGE_BYTES)
    host = random_memory(data, pages)
    host[parameters : parameters + entries * entry_bytes] = np.concatenate(
        [random_parameter_entry(data, config) for _ in range(entries)]
    )
    writer = _Writer(
        config=config,
        rng=rng,
        lines=_Span(rng.randint(0, config.buffer_lines - lines), lines),
        accumulators=_Span(rng.randint(0, config.accumulator_rows - rows), rows),
        entries=_Span(rng.randint(0, config.parameter_entries - entries), entries),
        shared=shared,
        parameters=parameters,
        tables=tables,
        window=pages * HOST_PAGE_BYTES,
    )
    writer.fill_everything()
    start = len(writer.words)
    while len(writer.words) < start + instructions:
        writer.some_instruction()
    if fault is not None and fault != Fault.FETCH_WINDOW:
        place = rng.randint(start, len(writer.words))
        writer.words[place:place] = writer.faulty(fault)
    writer.show_everything()
    space = program_pages * HOST_PAGE_BYTES - (len(writer.words) + 1) * INSTRUCTION_BYTES
    offset = rng.randint(0, space // PROGRAM_ALIGNMENT) * PROGRAM_ALIGNMENT
    if fault == Fault.FETCH_WINDOW:
        # No Halt, up to the last byte of the window: on a page of its own.
        host = np.concatenate([host, random_memory(data, program_pages)])
        while len(writer.words) * INSTRUCTION_BYTES % PROGRAM_ALIGNMENT:
            writer.emit(Opcode.NOP)
        offset = host.size - len(writer.words) * INSTRUCTION_BYTES
    else:
        writer.emit(Opcode.HALT)
    return make_image(
        writer.words,
        host=host,
        weights=random_tiles(data, config, _TILES),
        program_offset=offset,
    )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
