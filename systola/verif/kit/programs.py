# SPDX-License-Identifier: Apache-2.0
"""Random programs that use so few lines, rows and bytes that hazards of all kinds abound."""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, PARAMETER_PLANES, TABLE_BYTES, Fault, Opcode
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)
from systola.verif.kit.program_control import random_control
from systola.verif.kit.program_faults import FaultWriter
from systola.verif.kit.program_state import TILES, Span, Spans
from systola.verif.kit.program_writer import ProgramWriter
from systola.verif.kit.training_writer import TRAINING, TrainingWriter

_LINES = 72
_ACCUMULATORS = 32
_ENTRIES = 9

_WEIGHTS: dict[Opcode, int] = {
    Opcode.MATRIX_MULTIPLY: 6,
    Opcode.CONVOLVE: 6,
    Opcode.ACTIVATE: 7,
    Opcode.DEPTHWISE: 4,
    Opcode.POOL: 4,
    Opcode.VECTOR: 6,
    Opcode.READ_HOST_MEMORY: 4,
    Opcode.WRITE_HOST_MEMORY: 4,
    Opcode.READ_HOST_MEMORY_ALTERNATE: 3,
    Opcode.WRITE_HOST_MEMORY_ALTERNATE: 3,
    Opcode.READ_WEIGHTS: 4,
    Opcode.LOAD_PARAMETERS: 2,
    Opcode.LOAD_TABLE: 2,
    Opcode.SET_CONFIG_WINDOW: 1,
    Opcode.SET_CONFIG_SCALE: 3,
    Opcode.SET_REGISTER: 4,
    Opcode.LOOP: 2,
    Opcode.NOP: 2,
    Opcode.SYNCHRONIZE: 1,
    Opcode.SYNCHRONIZE_HOST: 1,
    Opcode.INTERRUPT_HOST: 1,
    Opcode.DEBUG_TAG: 1,
    Opcode.REQUIRE_MACHINE: 1,
}
_WEIGHTS_OF_TRAINING = _WEIGHTS | dict.fromkeys(TRAINING, 5)


def random_program(
    config: Config, seed: int | str, *, instructions: int = 30, fault: Fault | None = None
) -> Image:
    """Make a program of about `instructions` random instructions, the same for the same arguments.

    The program reads no state that it has not written before. So a machine can run the program
    first, or after any other program. The program ends at Halt, or at `fault`, one of
    `static_faults` of the configuration.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    weights = _WEIGHTS_OF_TRAINING if config.training else _WEIGHTS
    steps = random_control(rng, weights, instructions, config.host_bus_bytes)
    code_pages = 2 + 6 * (instructions + 20) * INSTRUCTION_BYTES // HOST_PAGE_BYTES
    spans = _random_spans(config, rng, code_pages)
    host = random_memory(data, spans.window // HOST_PAGE_BYTES)
    entries = [varied_parameter_entry(data, config) for _ in range(spans.entries.size)]
    host[spans.parameters.start :][: spans.parameters.size] = np.concatenate(entries)

    writer = TrainingWriter(config, rng, spans)
    _fill_everything(writer)
    place = rng.randrange(len(steps))
    for number, step in enumerate(steps):
        writer.registers = step.registers
        if number == place and fault is not None and fault != Fault.FETCH_WINDOW:
            FaultWriter(writer, step.depth).write(fault)
        writer.write(step)
    _show_everything(writer)

    if fault == Fault.FETCH_WINDOW:
        # Without a Halt, the program reaches the last byte of the window.
        while len(writer.words) * INSTRUCTION_BYTES % PROGRAM_ALIGNMENT:
            writer.emit(Opcode.NOP)
    else:
        writer.emit(Opcode.HALT)
    space = code_pages * HOST_PAGE_BYTES - len(writer.words) * INSTRUCTION_BYTES
    behind = 0
    if fault != Fault.FETCH_WINDOW:
        behind = rng.randint(0, space // PROGRAM_ALIGNMENT) * PROGRAM_ALIGNMENT
    offset = spans.window - behind - len(writer.words) * INSTRUCTION_BYTES
    return make_image(
        writer.words,
        host=host,
        weights=random_tiles(data, config, TILES),
        program_offset=offset - offset % PROGRAM_ALIGNMENT,
    )


def _random_spans(config: Config, rng: random.Random, code_pages: int) -> Spans:
    """Choose the memory ranges of a program's data; the program comes last in the host window."""

    def part(memory: int, size: int) -> Span:
        size = min(size, memory)
        last = memory - size
        return Span(rng.choice((0, last, rng.randint(0, last))), size)

    lines = part(config.buffer_lines, _LINES)
    entries = part(config.parameter_entries, _ENTRIES)
    shared = Span(0, lines.size * (config.input_pitch + 2 * config.output_pitch))
    parameters = Span(
        _round_up(shared.size, 256), entries.size * PARAMETER_PLANES * config.output_pitch
    )
    tables = Span(_round_up(parameters.start + parameters.size, 256), 2 * TABLE_BYTES)
    pages = -(-(tables.start + tables.size) // HOST_PAGE_BYTES)
    return Spans(
        lines=lines,
        accumulators=part(config.accumulator_rows, _ACCUMULATORS),
        entries=entries,
        shared=shared,
        parameters=parameters,
        tables=tables,
        window=(pages + code_pages) * HOST_PAGE_BYTES,
    )


def _fill_everything(writer: ProgramWriter) -> None:
    """Write instructions that give a value to all on-chip state that the program may read."""
    config, spans = writer.config, writer.spans
    lines, rows = spans.lines, spans.accumulators
    writer.emit(
        Opcode.READ_HOST_MEMORY,
        host=spans.shared.start,
        buffer=lines.start,
        rows=lines.size,
        stride=config.input_pitch,
        blocks=1,
        tail=config.rows,
    )
    writer.emit(Opcode.READ_WEIGHTS, tile=0, count=1)
    writer.emit(
        Opcode.MATRIX_MULTIPLY,
        buffer=lines.start,
        accumulator=rows.start,
        rows=rows.size,
        k_tiles=1,
        n_tiles=1,
    )
    writer.emit(
        Opcode.LOAD_PARAMETERS,
        host=spans.parameters.start,
        parameter=spans.entries.start,
        count=spans.entries.size,
    )
    for table in range(config.tables):
        writer.emit(Opcode.LOAD_TABLE, host=spans.tables.start, table=table)


def _show_everything(writer: ProgramWriter) -> None:
    """Write instructions that copy the final content of buffer and accumulators to the shared
    bytes.
    """
    config, spans = writer.config, writer.spans
    host = spans.shared.start
    for activated in (False, True):
        rows = spans.accumulators.size if activated else spans.lines.size
        if activated:
            writer.emit(
                Opcode.ACTIVATE,
                accumulator=spans.accumulators.start,
                buffer=spans.lines.start,
                rows=rows,
                n_tiles=1,
                parameter=spans.entries.start,
            )
        writer.emit(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=host, line=spans.lines.start, rows=rows),
        )
        host += rows * config.output_pitch


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
