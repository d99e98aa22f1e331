# SPDX-License-Identifier: Apache-2.0
"""Writes a program: instructions, lines of the buffer, parameter entries, constants and tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    EncodingError,
    Function,
    Opcode,
    Operation,
    Rounding,
    Source,
    encode,
)
from systola.training.errors import NoRoomError, TrainingError
from systola.training.layout import MOST_ENTRIES, Layout

Bytes = NDArray[np.uint8]
MOST_ROWS = (1 << 16) - 1
"""Largest number of rows that one Read_Host_Memory or Write_Host_Memory can move."""
MOST_BLOCKS = (1 << 12) - 1
"""Largest number of lines in a row of one Read_Host_Memory or Write_Host_Memory."""
MOST_STRIDE = (1 << 24) - 1
"""Largest distance in host memory, in bytes, between rows of one Read_Host_Memory or
Write_Host_Memory."""
UNIT = 1 << 16
"""Multiplier of ADD or SUBTRACT that leaves an int16 operand as it is."""
HALF = 1 << 30
"""Multiplier of a parameter entry that divides by two and does nothing else."""


@dataclass(frozen=True)
class Entry:
    """A parameter entry (multiplier, shift and bias of a requantisation) that is the same for all
    channels.
    """

    multiplier: int = HALF
    right: int = 0
    left: int = 0
    bias: int = 0


@dataclass(frozen=True)
class StepEntry:
    """A parameter entry with numbers that the host writes anew before each step."""

    tensor: int
    name: str
    """Name of the property of a MomentStep that gives the entry. If `bits` is not None, name of the
    method that gives the entry when called with `bits`."""
    bits: int | None = None


@dataclass(frozen=True)
class StepLimit:
    """A limit on the magnitude of int16 results that the host writes anew before each step."""

    tensor: int
    name: str
    """Name of the property of a MomentStep that gives the limit."""


AnyEntry = Entry | StepEntry
ONE = Entry(left=1)
"""Parameter entry that leaves numbers as they are."""
NARROW, NARROWING, WIDENING, WIDE = (0, 0), (1, 0), (0, 1), (1, 1)
"""Sizes of the numbers of a Vector instruction, as pairs (operands, results): 0 stands for int8, 1
for int16."""


def shifted(right: int, *, multiplier: int = HALF, bias: int = 0) -> Entry:
    """Return a parameter entry that shifts to the right, or to the left if `right` is negative.

    The default multiplier is 1/2, so that the entry divides by 2^(right + 1).
    """
    return Entry(multiplier, max(right, 0), max(-right, 0), bias)


class Writer:
    """A program that is being written: its instructions so far, and the use of the buffer, entries
    and tables.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        self.config = config
        self.layout = layout
        """Layout of host memory, with the places of the samples of the present turn."""
        self.turn = 0
        """Number of the turn (part of the batch) for which instructions are written now."""
        self._whole = layout
        self.words: list[bytes] = []
        self._free = [(0, config.buffer_lines)]
        self._entries: dict[AnyEntry, int] = {}
        self._loaded: dict[int, int] = {}
        """Place on the chip of each loaded parameter entry, by the entry's number. The entry used
        last is at the end."""
        self.later_shifts: list[tuple[int, int, dict[str, int]]] = []
        """Instructions Measure to which the host adds a tensor's shift before each step. Each item
        is an index among the instructions, a tensor's number, and the operands without the
        shift."""
        self._tables: dict[bytes, int] = {}
        self._resident: dict[bytes, int] = {}
        """Place on the chip of each loaded table, by the table's bytes. The table used last is at
        the end."""
        self._constants: list[NDArray[np.int8]] = []
        self._places: dict[bytes, int] = {}
        self.later_limits: list[tuple[int, StepLimit, dict[str, int]]] = []
        """Instructions Set_Config_Scale with a limit that the host writes before each step. Each
        item is an index among the instructions, the limit's source, and the operands without the
        limit."""
        self._scales: tuple[int, int, int | StepLimit] = 0, 0, 0
        self.owned: list[tuple[int, range]] = []
        """Rows of the masters that this core updates, as pairs of a tensor's number and a range of
        rows. No other core keeps velocities or moments for these rows."""

    def take_turn(self, turn: int) -> None:
        """Begin a turn: `layout` gets the places of the samples of this turn."""
        self.turn, self.layout = turn, self.of_turn(turn)

    def of_turn(self, turn: int) -> Layout:
        """Return the layout of host memory with the places of the samples of turn `turn`."""
        return self._whole.of_turn(turn)

    # The methods below provide lines, entries, tables and constants for instructions.

    def allocate(self, lines: int) -> range:
        """Return lines of the unified buffer that nothing uses.

        An even number of lines begins with an even line, if there is room: both lines of an int16
        vector are then read in one cycle. Raises NoRoomError if the lines do not fit.
        """
        fits = [(size, start) for start, size in self._free if size >= lines]
        pairs = lines % 2 == 0
        even = [(size, start) for size, start in fits if pairs and size - start % 2 >= lines]
        if fits:
            size, start = min(even or fits)
            self._free.remove((start, size))
            first = start + start % 2 if even else start
            rest = range(start, first), range(first + lines, start + size)
            self._free += [(each.start, len(each)) for each in rest if each]
            return range(first, first + lines)
        raise NoRoomError(
            f"the buffer of '{self.config.name}', {self.config.buffer_lines} lines, has no room "
            f"for {lines} more"
        )

    def fits(self, *lines: int) -> bool:
        """Return whether the buffer has room for regions with these numbers of lines at the same
        time.
        """
        before = list(self._free)
        try:
            for count in lines:
                self.allocate(count)
        except NoRoomError:
            return False
        finally:
            self._free = before
        return True

    def free(self, *regions: range) -> None:
        """Give the lines of these regions back to the buffer."""
        free = sorted([*self._free, *((r.start, len(r)) for r in regions)])
        joined: list[tuple[int, int]] = []
        for start, size in free:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            elif size:
                joined.append((start, size))
        self._free = joined

    def entry(self, entry: AnyEntry) -> int:
        """Return the place of a parameter entry on the chip.

        The first entries are loaded when the program begins. If the chip is full, a later entry
        replaces the entry that has been unused for the longest time.
        """
        number, places = self._entries.setdefault(entry, len(self._entries)), self._loaded
        if number in places:
            place = places.pop(number)
        elif len(places) < self.config.parameter_entries:
            place = len(places)
        else:
            place = places.pop(next(iter(places)))
            host = self.layout.entries + number * PARAMETER_PLANES * self.layout.pitch
            self.emit(Opcode.LOAD_PARAMETERS, host=host, parameter=place, count=1)
        places[number] = place
        return place

    def table(self, results: NDArray[np.int8]) -> int:
        """Return the place of a table on the chip; `results` are for inputs 0 to 127 and -128 to
        -1.

        The first tables are loaded when the program begins. If the chip is full, a later table
        replaces the table that has been unused for the longest time.
        """
        key, places = results.tobytes(), self._resident
        number = self._tables.setdefault(key, len(self._tables))
        if key in places:
            place = places.pop(key)
        elif len(places) < self.config.tables:
            place = len(places)
        else:
            place = places.pop(next(iter(places)))
            self.emit(Opcode.LOAD_TABLE, host=self._table_at(number), table=place)
        places[key] = place
        return place

    def _table_at(self, number: int) -> int:
        return self.layout.tables + number * TABLE_BYTES

    def constant(self, values: NDArray[np.int8]) -> range:
        """Return lines of the buffer with the constant `values`, (lines, C)."""
        region = self.allocate(len(values))
        key = values.tobytes()
        if key not in self._places:
            self._places[key] = sum(map(len, self._constants))
            self._constants.append(values)
        self.read(self.layout.constants + self._places[key] * self.layout.pitch, region)
        return region

    # The methods below add instructions.

    def emit(self, opcode: Opcode, **operands: int) -> None:
        """Add an instruction; raise NoRoomError if a field is too small for its operand."""
        try:
            self.words.append(encode(opcode, **operands))
        except EncodingError as error:
            raise NoRoomError(f"the network is too large for one instruction: {error}") from None

    def read(self, host: int, lines: range) -> None:
        """Add instructions that read lines of the buffer from successive lines of host memory."""
        self._copy(Opcode.READ_HOST_MEMORY, host, lines)

    def write(self, host: int, lines: range) -> None:
        """Add instructions that write lines of the buffer to successive lines of host memory."""
        self._copy(Opcode.WRITE_HOST_MEMORY, host, lines)

    def read_rows(self, host: int, lines: range, row: int, stride: int) -> None:
        """Add instructions that read rows of `row` lines each, which begin every `stride` lines in
        host memory.
        """
        if self._fits_one(row, stride):
            self._copy_rows(Opcode.READ_HOST_MEMORY_ALTERNATE, host, lines, row, stride)
            return
        for number in range(len(lines) // row):
            here = lines[number * row : (number + 1) * row]
            self.read(host + number * stride * self.layout.pitch, here)

    def write_rows(self, host: int, lines: range, row: int, stride: int) -> None:
        """Add instructions that write rows of `row` lines each, which begin every `stride` lines in
        host memory.
        """
        if self._fits_one(row, stride):
            self._copy_rows(Opcode.WRITE_HOST_MEMORY_ALTERNATE, host, lines, row, stride)
            return
        for number in range(len(lines) // row):
            here = lines[number * row : (number + 1) * row]
            self.write(host + number * stride * self.layout.pitch, here)

    def _fits_one(self, row: int, stride: int) -> bool:
        """Return whether the fields of one instruction are large enough for a row and its
        stride.
        """
        return row <= MOST_BLOCKS and stride * self.layout.pitch <= MOST_STRIDE

    def _copy_rows(self, opcode: Opcode, host: int, lines: range, row: int, stride: int) -> None:
        at = {"host": host, "buffer": lines.start, "rows": len(lines) // row, "blocks": row}
        self.emit(opcode, **at, tail=self.config.cols, stride=stride * self.layout.pitch)

    def _copy(self, opcode: Opcode, host: int, lines: range) -> None:
        pitch, size = self.layout.pitch, self.config.cols
        for first in range(0, len(lines), MOST_ROWS):
            part = lines[first : first + MOST_ROWS]
            at = {"host": host + first * pitch, "buffer": part.start, "rows": len(part)}
            self.emit(opcode, **at, stride=pitch, blocks=1, tail=size)

    def multiply(
        self,
        vectors: int,
        weights: int,
        accumulator: int,
        rows: int,
        k_tiles: int,
        n_tiles: int,
        **how: int,
    ) -> None:
        """Add a MatrixMultiply instruction with weights from the buffer.

        Raises NoRoomError if the accumulators have too few rows.
        """
        available, needed = self.config.accumulator_rows, accumulator + rows * n_tiles
        if needed > available:
            raise NoRoomError(
                f"the accumulators of '{self.config.name}', {available} rows, have no room for "
                f"{needed}"
            )
        at = {"buffer": vectors, "weights": weights, "accumulator": accumulator}
        sizes = {"rows": rows, "k_tiles": k_tiles, "n_tiles": n_tiles}
        self.emit(Opcode.MATRIX_MULTIPLY, **at, **sizes, from_buffer=1, **how)

    def activate(
        self, accumulator: int, buffer: int, rows: int, entry: AnyEntry, **how: int
    ) -> None:
        """Add an Activate instruction with one parameter entry for all rows."""
        at = {"accumulator": accumulator, "buffer": buffer, "rows": rows, "n_tiles": 1}
        parameter = self.entry(entry)
        self.emit(Opcode.ACTIVATE, **at, parameter=parameter, rounding=Rounding.SINGLE, **how)

    def vector(
        self,
        operation: Operation,
        a: int,
        b: int,
        destination: int,
        rows: int,
        entry: AnyEntry,
        sizes: tuple[int, int],
        *,
        function: Function = Function.NONE,
        scales: tuple[int, int] | None = None,
        limit: int | StepLimit = 0,
        rounding: Rounding = Rounding.SINGLE,
        **how: int,
    ) -> None:
        """Add a Vector instruction, after a Set_Config_Scale if scales or limit change.

        `scales`: the multipliers of the operands of ADD and SUBTRACT. `limit`: the largest
        magnitude of an int16 result; 0 for no limit.
        """
        wanted = (*(scales or self._scales[:2]), limit if sizes[1] else self._scales[2])
        if wanted != self._scales:
            self._scales = wanted
            first, second, most = wanted
            operands: dict[str, int] = {"multiplier_a": first, "multiplier_b": second}
            if isinstance(most, StepLimit):
                self.later_limits.append((len(self.words), most, operands))
                most = 0
            self.emit(Opcode.SET_CONFIG_SCALE, **operands, limit=most)
        at = {"buffer": a, "operand": b, "destination": destination, "rows": rows}
        flags = {"wide_operands": sizes[0], "wide": sizes[1], **how}
        self.emit(
            Opcode.VECTOR,
            operation=operation,
            **at,
            parameter=self.entry(entry),
            function=function,
            rounding=rounding,
            **flags,
        )

    def copy(
        self,
        source: int,
        destination: int,
        rows: int,
        entry: Entry,
        sizes: tuple[int, int],
        function: Function = Function.NONE,
        *,
        table: int = 0,
        exponent: int = 0,
    ) -> None:
        """Add a Vector instruction with operation COPY."""
        self.vector(
            *(Operation.COPY, source, 0, destination, rows, entry, sizes),
            function=function,
            table=table,
            exponent=exponent,
        )

    def times(
        self,
        lines: int,
        others: int,
        rows: int,
        function: Function = Function.NONE,
        *,
        table: int = 0,
        entry: Entry = ONE,
    ) -> None:
        """Add a Vector instruction that multiplies int8 lines by lines `others`, in place."""
        at = (lines, others, lines, rows, entry, NARROW)
        self.vector(Operation.MULTIPLY, *at, function=function, table=table)

    def measure(self, exponent: int, source: Source = Source.NONE, **operands: int) -> None:
        """Add a Measure instruction, which writes an exponent register."""
        self.emit(Opcode.MEASURE, exponent=exponent, source=source, **operands)

    def measure_later(self, exponent: int, tensor: int, **operands: int) -> None:
        """Add a Measure instruction; before each step the host adds a tensor's shift to its
        value.
        """
        operands |= {"exponent": exponent, "source": Source.NONE}
        self.later_shifts.append((len(self.words), tensor, operands))
        self.emit(Opcode.MEASURE, **operands)

    def transpose(self, source: int, destination: int, count: int, step: int) -> None:
        """Add a Transpose instruction."""
        at = {"buffer": source, "destination": destination}
        self.emit(Opcode.TRANSPOSE, **at, count=count, step=step)

    # The methods below return the finished program and its data.

    def code(self) -> bytes:
        """Return the bytes of the program: loads of tables and entries first, Halt last.

        Raises TrainingError if there are too many entries, or the program does not fit.
        """
        layout, count = self.layout, len(self._entries)
        if count > MOST_ENTRIES:
            raise TrainingError(
                f"the network needs {count} parameter entries, a program has {MOST_ENTRIES}: take "
                "fewer layers"
            )
        count = min(count, self.config.parameter_entries)
        loads = [
            encode(Opcode.LOAD_TABLE, host=self._table_at(number), table=number)
            for number in range(min(len(self._tables), self.config.tables))
        ]
        if count:
            loads.append(
                encode(Opcode.LOAD_PARAMETERS, host=layout.entries, parameter=0, count=count)
            )
        program = b"".join([*loads, *self.words, encode(Opcode.HALT)])
        if len(program) > layout.program_bytes - 2 * INSTRUCTION_BYTES:
            raise TrainingError("the network is too large: its program does not fit")
        return program

    def entries(self) -> Bytes:
        """Return the bytes of all parameter entries for host memory."""
        pitch = self.layout.pitch
        planes = np.zeros((len(self._entries), PARAMETER_PLANES), np.uint8)
        for number, entry in enumerate(self._entries):
            if isinstance(entry, Entry):
                planes[number] = entry_planes(entry)
        return np.repeat(planes.reshape(-1), pitch)

    def later_entries(self) -> list[tuple[int, StepEntry]]:
        """Return the parameter entries that the host writes before each step, each with its
        number.
        """
        entries = enumerate(self._entries)
        return [(number, entry) for number, entry in entries if isinstance(entry, StepEntry)]

    def tables(self) -> Bytes:
        """Return the bytes of all tables for host memory."""
        return np.frombuffer(b"".join(self._tables), np.uint8)

    def constants(self) -> Bytes:
        """Return the bytes of all constants for host memory."""
        count = sum(map(len, self._constants))
        if count > self.layout.constant_lines:
            raise ValueError(f"{count} lines of constants do not fit")
        lines = np.zeros((count, self.layout.pitch), np.uint8)
        if count:
            lines[:, : self.config.cols] = np.concatenate(self._constants).view(np.uint8)
        return lines.reshape(-1)


def entry_planes(entry: Entry) -> list[int]:
    """Return the bytes of a parameter entry. Host memory has a plane for each of these bytes."""
    words = (entry.bias % 2**32).to_bytes(4, "little") + entry.multiplier.to_bytes(4, "little")
    return [*words, entry.left << 5 | entry.right]
