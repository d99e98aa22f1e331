# SPDX-License-Identifier: Apache-2.0
"""The step ROM of the sequenced decoder, which has the programs of all instructions.

A program is the rows of one instruction, a row for each step. Rows name cells of the scratch memory
and words of commands by numbers. A step reads its cells before earlier steps have written their
results. So idle rows stand between a row that writes a cell and a row that reads it too soon.
"""

from __future__ import annotations

from collections.abc import Iterable

from systola.arch.config import Config
from systola.arch.isa import LINK_OPCODES, PLACE_BITS, REGISTERS, Fault, Opcode
from systola.hdl.control.step_programs import failing_rows, programs, reset_rows
from systola.hdl.control.step_row import (
    CELLS,
    HOST_LIMIT,
    IDLE,
    INDEXED,
    REGION_CELLS,
    ROWS,
    SCANNED,
    SECOND_INDEX,
    WEIGHT_TILES,
    WORDS,
    ZERO,
    Base,
    Bases,
    Bits,
    Note,
    Row,
    RowLayout,
    Times,
    When,
)

FACTOR_DISTANCE, BASE_DISTANCE, LIMIT_DISTANCE = 7, 3, 2
"""Least distances in rows from the write of a cell to a read as x, as base, and as limit."""
NOTE_DISTANCE = 2
"""Least distance in rows from a row that sets a flag to a row with a condition on this flag."""
ALIGNED = (8, 4, 2, 1)
"""Alignments in rows for the starts of programs. The first one with which all programs fit into
the ROM is used.

With a large alignment the table of starts is narrow, as the low bits of each start are zero.
"""
END_DISTANCE = 8
"""Least distance in rows from a row that sets EQUAL_A to a row with `ends`."""
BETWEEN = 1
"""Cycles between two instructions in which no row is read."""
LASTING = (
    *("kernel_taps", "windows", "map_lines", "top_line", "origin", "packed_limit"),
    *("kernel_height", "kernel_width", "stride_x", "dilation_x", "left", "width", "pitch"),
    *("ceiling", "limit"),
)
"""Cells that an instruction writes for later instructions, apart from index registers."""
_NOTED = {
    When.LINEAR: {Note.EQUAL_A, Note.EQUAL_B, Note.EQUAL_C},
    When.LINEAR_ALTERNATE: {Note.EQUAL_A, Note.EQUAL_B},
    When.OVERLAPS: {Note.BEYOND},
    When.REPLACES_NOT: {Note.BEYOND, Note.EQUAL_A},
    When.SECOND_REPLACES_NOT: {Note.BEYOND, Note.EQUAL_A},
    When.NOT_PACKED: {Note.EQUAL_A},
    When.INSIDE: {Note.BEYOND},
    When.LIMITED: {Note.EQUAL_B},
}
"""For each condition: the flags that it depends on and that earlier steps set."""


def spaced(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows with idle rows between them, so that no row reads a cell or flag too soon.

    A later row that may move there takes the place of an idle row.
    """
    found: list[Row] = []
    written: dict[str, int] = {}
    noted: dict[Note, int] = {}
    waiting = list(rows)
    while waiting:
        row = waiting.pop(0)
        ready = [len(found)]
        for cell, distance in _reads(row):
            ready.append(written.get(cell, -distance) + distance)
        if row.ends:
            ready.append(noted[Note.EQUAL_A] + END_DISTANCE)
        ready += [noted.get(n, -NOTE_DISTANCE) + NOTE_DISTANCE for n in _NOTED.get(row.when, ())]
        if max(ready) > len(found):
            waiting.insert(0, row)
            free = next((n for n in range(1, len(waiting)) if _free(waiting, n)), None)
            row = IDLE if free is None or row.base is Base.SUM else waiting.pop(free)
        if row.into:
            written[row.into] = len(found)
        if row.note:
            noted[row.note] = len(found)
        found.append(row)
    return tuple(found)


def _free(rows: list[Row], number: int) -> bool:
    """Return whether row `number` may move before all rows that precede it.

    A row may move if it only checks or copies bits of the instruction word, or copies a constant
    into a command word.
    """
    row = rows[number]
    follows = rows[number + 1].base if number + 1 < len(rows) else ZERO
    return (
        row.base == ZERO
        and follows is not Base.SUM
        and (isinstance(row.x, Bits) or row.x == ZERO or row.x.startswith("="))
        and row.times is Times.ONE
        and row.fault in (Fault.NONE, Fault.ILLEGAL_FIELD)
        and row.when not in _NOTED
        and not (row.keep or row.into or row.note or row.loads or row.names or row.ends)
        and not any(earlier.ends for earlier in rows[:number])
        and row.word not in {earlier.word for earlier in rows[:number]} - {None}
    )


def _reads(row: Row) -> list[tuple[str, int]]:
    """Return the cells that a row reads, each with the least distance in rows from its write."""
    found: list[tuple[str, int]] = []
    if isinstance(row.x, str):
        found.append((row.x, FACTOR_DISTANCE))
    if isinstance(row.base, str):
        found.append((row.base, BASE_DISTANCE))
    if row.limit is not None:
        found.append((row.limit, LIMIT_DISTANCE))
    return found


class StepRom:
    """A ROM that has the programs of a machine, and the numbers of cells and command words.

    | attribute    | meaning |
    |---|---|
    | `rows`       | the rows, not yet encoded |
    | `contents`   | the rows as bits |
    | `starts`     | for each instruction: the place of its first row in the ROM |
    | `lengths`    | for each instruction: how many rows it has |
    | `cells`      | for each name of a cell: its number in the scratch memory |
    | `words`      | for each name of a command word: its number |
    | `conditions` | the conditions in use |
    | `constants`  | initial contents of the scratch memory |
    """

    def __init__(self, config: Config):
        texts = {opcode: spaced(rows) for opcode, rows in programs(config).items()}
        _check_lasting(texts.values())
        failing = {
            fault: failing_rows(fault)
            for fault in (Fault.UNAVAILABLE, Fault.ILLEGAL_OPCODE, Fault.FETCH_ERROR)
        }
        # Equal programs are stored only once.
        distinct = dict.fromkeys((reset_rows(), *texts.values(), *failing.values()))
        places: dict[tuple[Row, ...], int] = {}
        for aligned in ALIGNED:
            self.rows: list[Row] = []
            for rows in distinct:
                self.rows += [IDLE] * (-len(self.rows) % aligned)
                places[rows] = len(self.rows)
                self.rows += rows
            if len(self.rows) <= ROWS:
                break
        else:
            raise ValueError(f"{len(self.rows)} rows of steps are more than {ROWS}")
        self._lasts = {place + len(rows) - 1 for rows, place in places.items()}
        self.reset = places[reset_rows()]
        self.starts = {opcode: places[rows] for opcode, rows in texts.items()}
        self.lengths = {opcode: len(rows) for opcode, rows in texts.items()}
        if not config.links:
            unavailable = places[failing[Fault.UNAVAILABLE]]
            self.starts |= dict.fromkeys(sorted(LINK_OPCODES), unavailable)
        self.unknown = places[failing[Fault.ILLEGAL_OPCODE]]
        self.error = places[failing[Fault.FETCH_ERROR]]
        self.cells = self._numbered_cells()
        self.words = {
            word: number
            for number, word in enumerate(
                dict.fromkeys(row.word for row in self.rows if row.word), 1
            )
        }
        assert len(self.words) < WORDS
        self.widths = sorted({row.x.width for row in self.rows if isinstance(row.x, Bits)})
        self.signed_widths = frozenset(
            row.x.width for row in self.rows if isinstance(row.x, Bits) and row.x.signed
        )
        self.conditions = frozenset(row.when for row in self.rows)
        self.wraps = sorted({row.wraps for row in self.rows if row.wraps is not None})
        self.contents = [
            self._encoded(row, last=number in self._lasts) for number, row in enumerate(self.rows)
        ]

    def program(self, opcode: Opcode) -> list[Row]:
        """Return the ROM rows of an instruction."""
        start = self.starts[opcode]
        return self.rows[start : start + self.lengths[opcode]]

    def shortest(self, opcode: Opcode) -> int:
        """Return how many steps an instruction takes if it ends at its first row with `ends`."""
        ends = [row.ends for row in self.program(opcode)]
        return 1 + ends.index(True) if any(ends) else len(ends)

    @property
    def constants(self) -> list[int]:
        """Initial contents of all cells of the scratch memory, in the order of their numbers."""
        found = [0] * CELLS
        for cell, number in self.cells.items():
            if cell.startswith("="):
                found[number] = int(cell[1:])
        return found

    def _numbered_cells(self) -> dict[str, int]:
        registers = [ZERO, *(f"register {number}" for number in range(1, REGISTERS))]
        cells = {cell: number for number, cell in enumerate(registers)}
        regions = [f"{name}.{end}" for name in SCANNED for end in ("base", "end")]
        cells |= {cell: REGION_CELLS + number for number, cell in enumerate(regions)}
        free = iter((*range(REGISTERS, REGION_CELLS), *range(2 * REGION_CELLS, CELLS - 3)))
        special = {INDEXED, SECOND_INDEX, HOST_LIMIT, WEIGHT_TILES}
        for row in self.rows:
            for cell in (row.x, row.base, row.limit, row.into):
                if isinstance(cell, str) and cell not in special and cell not in cells:
                    # The last three cell numbers are reserved for limits and index registers.
                    if (number := next(free, None)) is None:
                        raise ValueError(f"cells are more than {CELLS - 3}")
                    cells[cell] = number
        return cells | {HOST_LIMIT: CELLS - 2, WEIGHT_TILES: CELLS - 1, INDEXED: CELLS - 3}

    def _encoded(self, row: Row, *, last: bool) -> int:
        from_cell = isinstance(row.x, str)
        if isinstance(row.x, Bits):
            assert row.x.offset % PLACE_BITS == 0, row
            at, width, signed = row.x.offset, self.widths.index(row.x.width), row.x.signed
        else:
            # Numbers above the last cell stand for index registers.
            at = CELLS + 1 if row.x == SECOND_INDEX else self.cells[row.x]
            width, signed = len(self.widths), False
        kind, base = (
            row.base.value if isinstance(row.base, Base) else (Bases.CELL, self.cells[row.base])
        )
        return (
            RowLayout()
            .const(
                {
                    "from_cell": from_cell,
                    "at": at,
                    "width": width,
                    "signed": signed,
                    "times": row.times,
                    "keep": row.keep,
                    "base_kind": kind,
                    "base": base,
                    "wraps": 0 if row.wraps is None else 1 + self.wraps.index(row.wraps),
                    "limit": self.cells[row.limit or ZERO],
                    "checks": row.fault != Fault.NONE,
                    "fault": row.fault or Fault.ILLEGAL_FIELD,
                    "least": row.least,
                    "aligned": row.aligned,
                    "note": row.note,
                    "when": row.when,
                    "loads": row.loads,
                    "into": self.cells[row.into or ZERO],
                    "word": self.words[row.word] if row.word else 0,
                    "names": row.names,
                    "last": last,
                    "ends": row.ends,
                }
            )
            .as_bits()
        )


def _check_lasting(texts: Iterable[tuple[Row, ...]]) -> None:
    """Check that no instruction reads a cell too soon after an earlier one has written it."""
    programs_of = list(texts)
    # At least `after` rows of a program follow its write of the cell. The next instruction reads
    # the cell `place` rows after its start.
    for cell in (*LASTING, INDEXED):
        after = min(
            len(rows) - 1 - place
            for rows in programs_of
            for place, row in enumerate(rows)
            if row.into == cell
        )
        for rows in programs_of:
            for place, row in enumerate(rows):
                for name, distance in _reads_registers(row) if cell == INDEXED else _reads(row):
                    assert name != cell or after + place + 1 + BETWEEN >= distance, (cell, row)


def _reads_registers(row: Row) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if row.x == SECOND_INDEX:
        found.append((INDEXED, FACTOR_DISTANCE))
    if isinstance(row.base, Base) and row.base is not Base.SUM:
        found.append((INDEXED, BASE_DISTANCE))
    return found
