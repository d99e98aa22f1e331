# SPDX-License-Identifier: Apache-2.0
"""Instructions at limits that depend on more than one of their fields, to test the decoder."""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import BY_OPCODE, Fault, Function, Opcode, Operation, Source
from systola.verif.units.control.decoder_words import Writer
from systola.verif.units.control.instruction_reader import Fields

_FITTING: Fields = {
    **{"rows": 1, "n_tiles": 1, "accumulator": 0, "parameter": 0, "exponent": 0},
    **{"buffer": 0, "operand": 2, "destination": 4},
}
"""Operands of an Activate or Vector that are inside all memories."""


def corners(writer: Writer) -> Iterator[tuple[Opcode, Fields]]:
    """Yield instructions in which several fields just fit together, or just do not."""
    yield from _functions(writer)
    for opcode, entry in BY_OPCODE.items():
        if Fault.OVERLAP in entry.checks and opcode is not Opcode.VECTOR:
            yield opcode, {**writer.legal(opcode), "buffer": 0, "destination": 0}
    rows = {"rows": 3, "buffer": 5, "operand": 5}
    for destination in (4, 5, 6, 8):
        yield Opcode.VECTOR, {**writer.legal(Opcode.VECTOR), **rows, "destination": destination}
    config = writer.reader.config
    sizes = {"rows": 2, "k_tiles": 2, "n_tiles": 3, "accumulator": 0}
    for wide in (0, 1):
        last = config.buffer_lines - 2 * 3 * config.rows * (1 + wide)
        for from_buffer, weights in ((1, last), (1, last + 1), (0, last + 1)):
            fields = {**sizes, "from_buffer": from_buffer, "wide_weights": wide}
            yield Opcode.MATRIX_MULTIPLY, {**fields, "weights": weights}
    for source in Source:
        rows = {"rows": 2, "exponent": 3, "source": source}
        yield Opcode.MEASURE, {**rows, "buffer": config.buffer_lines - 4}
        yield Opcode.MEASURE, {**rows, "buffer": config.buffer_lines - 3}
        yield Opcode.MEASURE, {**rows, "accumulator": config.accumulator_rows - 2}
        yield Opcode.MEASURE, {**rows, "accumulator": config.accumulator_rows - 1}
    for sums in (0, 1) if config.links else ():
        fields = {"rows": 2, "sums": sums}
        yield Opcode.SEND, {**fields, "buffer": config.buffer_lines - 1}
        yield Opcode.SEND, {**fields, "accumulator": config.accumulator_rows - 1}


def _functions(writer: Writer) -> Iterator[tuple[Opcode, Fields]]:
    """Yield Activate and Vector with each function, and with tables at the function's limit."""
    for opcode, operations in (
        (Opcode.ACTIVATE, (Operation.COPY,)),
        (Opcode.VECTOR, (Operation.ADD, Operation.MULTIPLY)),
    ):
        for function in Function:
            tables = (4, 5, 6, 7) if function in (Function.TANH, Function.EXP) else (0,)
            if function is Function.TABLE:
                tables = (writer.reader.config.tables - 1, writer.reader.config.tables)
            for table in tables:
                for wide in (0, 1):
                    for operation in operations:
                        fields = {"function": function, "table": table, "wide": wide}
                        fields |= {"operation": operation, "accumulate": 0}
                        yield opcode, {**writer.legal(opcode), **_FITTING, **fields}
