# SPDX-License-Identifier: Apache-2.0
"""The part of each memory that an instruction takes, from its effective operands.

Ranges count lines, rows, entries, tables, bytes and tiles. A range of tables may be empty, and the
range of lines that a partition writes is empty.
Ranges may reach beyond the end of the memory; the checks find such ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.isa import (
    CURVE_TABLES,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Instruction,
    Opcode,
    Operation,
    Reduction,
    Source,
)
from systola.golden.window import Window

Operands = Mapping[str, int]

_READ_ONLY = (
    *(Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE, Opcode.MATRIX_MULTIPLY),
    *(Opcode.CONVOLVE, Opcode.MEASURE, Opcode.SEND),
)
"""Instructions that write no line. For all others, the last region is the result. The result of a
partition is an empty region."""
_SUMMING = (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.REDUCE)
"""Instructions that write accumulator rows."""


@dataclass(frozen=True)
class Access:
    """A part of a memory that an instruction uses."""

    accumulators: bool
    """True for rows of the accumulators, False for lines of the unified buffer."""
    region: range
    writes: bool

    def meets(self, other: Access) -> bool:
        """Return whether the order of the two accesses matters.

        It does if both use the same line or row, and at least one access writes.
        """
        return (
            self.accumulators == other.accumulators
            and (self.writes or other.writes)
            and self.region.start < other.region.stop
            and other.region.start < self.region.stop
        )


def accesses(entry: Instruction, at: Operands, window: Window, size: int) -> list[Access]:
    """Return the regions of the unified buffer and the accumulators that an instruction uses."""
    opcode = entry.opcode
    found: list[Access] = []
    if Fault.BUFFER_RANGE in entry.checks:
        regions = buffer_lines(opcode, at, window, size)
        for place, region in enumerate(regions, start=1):
            writes = place == len(regions) and opcode not in _READ_ONLY
            if region:  # a partition has an empty region in place of results
                found.append(Access(False, region, writes))
    if Fault.ACCUMULATOR_RANGE in entry.checks and uses_accumulators(opcode, at):
        rows = accumulator_rows(opcode, at, window)
        found.append(Access(True, rows, opcode in _SUMMING))
    return found


def uses_accumulators(opcode: Opcode, at: Operands) -> bool:
    """Return whether an instruction uses accumulator rows, if some with its opcode use them."""
    if opcode == Opcode.SEND:
        return bool(at["sums"])
    return opcode != Opcode.MEASURE or at["source"] == Source.ACCUMULATORS


def buffer_lines(opcode: Opcode, at: Operands, window: Window, size: int) -> tuple[range, ...]:
    """Return the regions of the unified buffer in the order of their checks, results last.

    `size` is R, the rows of the array.
    """

    def lines(operand: str, count: int) -> range:
        return range(at[operand], at[operand] + count)

    match opcode:
        case (
            Opcode.READ_HOST_MEMORY
            | Opcode.WRITE_HOST_MEMORY
            | Opcode.READ_HOST_MEMORY_ALTERNATE
            | Opcode.WRITE_HOST_MEMORY_ALTERNATE
        ):
            return (lines("buffer", at["rows"] * at["blocks"]),)
        case Opcode.MATRIX_MULTIPLY:
            vectors = lines("buffer", (at["wide_vectors"] + 1) * at["rows"] * at["k_tiles"])
            if not at["from_buffer"]:
                return (vectors,)
            tiles = at["n_tiles"] * at["k_tiles"]
            return (vectors, lines("weights", (at["wide_weights"] + 1) * size * tiles))
        case Opcode.CONVOLVE:
            return (lines("buffer", (at["k_tiles"] - 1) * at["plane"] + window.map_lines),)
        case Opcode.ACTIVATE:
            return (lines("buffer", (at["wide"] + 1) * at["rows"] * at["n_tiles"]),)
        case Opcode.DEPTHWISE:
            return (
                lines("buffer", at["blocks"] * window.map_lines),
                lines("taps", at["blocks"] * window.taps),
                lines("destination", at["blocks"] * window.windows),
            )
        case Opcode.POOL:
            return (
                lines("buffer", at["blocks"] * window.map_lines),
                lines("destination", at["blocks"] * window.windows),
            )
        case Opcode.VECTOR:
            read = (at["wide_operands"] + 1) * at["rows"]
            b = lines("operand", 1 if one_line(at["operation"], at["function"]) else read)
            second = () if at["operation"] == Operation.COPY else (b,)
            if is_partition(at["accumulate"], at["wide"]):
                return (lines("buffer", read), *second, range(0))
            result = lines("destination", (at["wide"] + 1) * at["rows"])
            return (lines("buffer", read), *second, result)
        case Opcode.MEASURE:
            return (lines("buffer", 2 * at["rows"]),) if at["source"] == Source.LINES else ()
        case Opcode.TRANSPOSE:
            source = lines("buffer", (at["count"] - 1) * at["step"] + size)
            return (source, lines("destination", at["count"] * size))
        case Opcode.RANDOM:
            return (lines("destination", at["rows"]),)
        case Opcode.SEND if at["sums"]:
            return ()
        case Opcode.SEND | Opcode.RECEIVE:
            return (lines("buffer", at["rows"]),)
        case _:
            raise ValueError(f"{opcode.name} has no buffer lines")


def one_line(operation: int, function: int) -> bool:
    """Return whether a Vector has one line as operand b, for all of its vectors."""
    return operation == Operation.ADD and function == Function.QUOTIENT


def is_partition(accumulate: int, wide: int) -> bool:
    """Return whether a legal Vector is a partition, which writes a parameter entry and no line."""
    return bool(accumulate) and not wide


def accumulator_rows(opcode: Opcode, at: Operands, window: Window) -> range:
    """Return the accumulator rows that an instruction uses."""
    rows = window.windows if opcode == Opcode.CONVOLVE else at["rows"]
    return range(at["accumulator"], at["accumulator"] + rows * at.get("n_tiles", 1))


def parameter_entries(opcode: Opcode, at: Operands, window: Window) -> range:
    """Return the parameter entries that an instruction uses."""
    match opcode:
        case Opcode.LOAD_PARAMETERS:
            count = at["count"]
        case Opcode.ACTIVATE:
            count = at["n_tiles"]
        case Opcode.DEPTHWISE:
            count = at["blocks"]
        case Opcode.POOL if at["reduction"] == Reduction.AVERAGE:
            count = window.taps
        case _:
            count = 1
    return range(at["parameter"], at["parameter"] + count)


def tables(opcode: Opcode, at: Operands) -> range:
    """Return the numbers of the tables in use; without a table, an empty range at 0."""
    if opcode == Opcode.LOAD_TABLE:
        return range(at["table"], at["table"] + 1)
    number = 0
    if at["function"] == Function.TABLE:
        number = CURVE_TABLES if at["wide"] else 1
    elif at["function"] == Function.QUOTIENT and at["operation"] in (Operation.COPY, Operation.ADD):
        number = LONG_TABLES
    return range(at["table"], at["table"] + number) if number else range(0)


def host_bytes(opcode: Opcode, at: Operands, config: Config) -> range:
    """Return the bytes of the host window that a load or copy uses; a copy uses whole bus beats."""
    match opcode:
        case Opcode.LOAD_PARAMETERS:
            size = at["count"] * PARAMETER_PLANES * config.output_pitch
        case Opcode.LOAD_TABLE:
            size = TABLE_BYTES
        case _:
            reads = opcode in (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
            pitch = config.input_pitch if reads else config.output_pitch
            size = (at["rows"] - 1) * at["stride"] + at["blocks"] * pitch
    return range(at["host"], at["host"] + size)


def tiles_consumed(opcode: Opcode, at: Operands, window: Window) -> int:
    """Return the number of tiles that MatrixMultiply or Convolve takes from the weight queue."""
    tiles = at["n_tiles"] * at["k_tiles"]
    if opcode == Opcode.MATRIX_MULTIPLY:
        if at["from_buffer"]:
            return 0
        return (at["wide_weights"] + 1) * tiles
    return (window.kernel_height if at["channels"] else window.taps) * tiles
