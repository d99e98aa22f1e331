# SPDX-License-Identifier: Apache-2.0
"""One step of the sequenced decoder, as a row of its ROM.

A step computes `base` + x * `times`. x is a field of the instruction word or a cell of the scratch
memory. The result is compared with the cell `limit`, and goes `into` a cell, into the command word
`word`, or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from amaranth.lib import data

from systola.arch.isa import Fault

RESULT_BITS = 42
"""Width in bits of a result: a product of a cell and a kept field, plus a base."""
CELL_BITS = 36
"""Width in bits of a cell of the scratch memory, which is read as a signed number."""
CELLS = 128
SCANNED = ("result", "host", "sums", "source", "operand", "entries", "table")
"""Regions that the scan for hazards compares. Each region has two cells: its base and its end."""
REGION_CELLS = 16
"""Cell number of the first region in SCANNED. Also the number of cells reserved for regions."""
KEPT_BITS = 17
"""Width in bits of a kept factor, enough for a number of rows and for the bytes of the largest
tile.
"""
WORDS = 64
ROWS = 512


class Times(IntEnum):
    """The factor of a step: a constant, or the x that the last step with `keep` has kept."""

    ONE = 0
    MINUS_ONE = 1
    KEPT = 2


class Note(IntEnum):
    """A flag that a step sets if its result is above its limit (BEYOND) or equal to its limit."""

    NONE = 0
    BEYOND = 1
    EQUAL_A = 2
    EQUAL_B = 3
    EQUAL_C = 4


class Loads(IntEnum):
    """Registers that a step loads from the lowest bits of the instruction word.

    NONE loads nothing. All others load the numbers of up to three index registers and, except for
    SELECT, flags that decide conditions. The place of the flags in the word depends on the
    instruction.
    """

    NONE = 0
    SELECT = 1
    ACTIVATE = 2
    VECTOR = 3
    MATRIX = 4
    MAP = 5
    MEASURE = 6
    SEND = 7


class When(IntEnum):
    """A condition of a step. If the condition is false, the step only keeps x and selects index
    registers.
    """

    ALWAYS = 0
    NEVER = 1
    TABLE = 2
    RECTIFIES = 3
    CLAMPS = 4
    MISFIT = 5
    LACKS = 6
    FLAG_A = 7
    FLAG_B = 8
    NOT_A = 9
    SECOND = 10
    SECOND_AND_B = 11
    AVERAGE = 12
    LINEAR = 13
    LINEAR_ALTERNATE = 14
    OVERLAPS = 15
    REPLACES_NOT = 16
    SECOND_REPLACES_NOT = 17
    NOT_PACKED = 18
    INSIDE = 19
    LIMITED = 20
    FROM_BUFFER = 21
    NO_SOURCE = 22
    FROM_ROWS = 23
    FROM_LINES = 24
    CURVE = 25
    GATHERS = 26
    RELATIVE = 27
    WRITES_LINES = 28


class Bases(IntEnum):
    """The kinds of bases: a cell, the result of the step before, or a selected index register."""

    CELL = 0
    SUM = 1
    INDEX = 2


class Base(Enum):
    """A base that is not a cell: the result of the step before, or a selected index register."""

    SUM = (Bases.SUM, 0)
    INDEX_0 = (Bases.INDEX, 0)
    INDEX_1 = (Bases.INDEX, 1)
    INDEX_2 = (Bases.INDEX, 2)


INDEXES = (Base.INDEX_0, Base.INDEX_1, Base.INDEX_2)
SECOND_INDEX = "second index"
"""Value of `x` for a step that reads the index register with the second selected number."""
ZERO = "zero"
"""Name of cell 0, which is index register 0 and always zero."""
INDEXED = "indexed"
"""Value of `into` for a step that writes the index register with the third selected number."""
TWO_LINES = "two_lines"
"""Name of a command word: 1 if each vector takes two lines, for instructions without a window."""
HOST_LIMIT, WEIGHT_TILES = "host_limit", "weight_tiles"
"""Names of the limits that are inputs of the decoder."""


@dataclass(frozen=True)
class Bits:
    """A field of `width` bits in the instruction word, from bit `offset` on."""

    offset: int
    width: int
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """A step, as the docstring of this module describes it.

    | field     | meaning |
    |---|---|
    | `x`       | bits of the word, or the name of a cell |
    | `times`   | other factor of the product |
    | `keep`    | x becomes the factor KEPT of later steps |
    | `base`    | number that is added to the product |
    | `wraps`   | number of bits that the result keeps; None for all |
    | `limit`   | name of the cell that the result is compared with |
    | `fault`   | fault if the result is beyond the limit; NONE if only the `note` is of interest |
    | `least`   | a result of zero is an ILLEGAL_FIELD |
    | `aligned` | a result that is not a multiple of the host bus is an ILLEGAL_FIELD |
    | `note`    | flag that the comparison sets |
    | `when`    | condition of the step, see When |
    | `loads`   | registers that the step loads from the word |
    | `into`    | name of the cell that takes the result |
    | `word`    | name of the command word that takes the result |
    | `names`   | the result is the FAULT_ADDRESS of faults from here on |
    | `ends`    | the instruction ends here if the flag EQUAL_A is set |
    """

    x: Bits | str = ZERO
    times: Times = Times.ONE
    keep: bool = False
    base: Base | str = ZERO
    wraps: int | None = None
    limit: str | None = None
    fault: Fault = Fault.NONE
    least: bool = False
    aligned: bool = False
    note: Note = Note.NONE
    when: When = When.ALWAYS
    loads: Loads = Loads.NONE
    into: str | None = None
    word: str | None = None
    names: bool = False
    ends: bool = False


IDLE = Row(when=When.NEVER)
"""A step without effect.

Idle steps stand before a step that reads a cell, until an earlier step has written the cell."""


class RowLayout(data.StructLayout):
    """The layout of a row in the ROM.

    `at` is the offset of a field or, with `from_cell`, the number of a cell.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "from_cell": 1,
                "at": 8,
                "width": 4,
                "signed": 1,
                "times": 2,
                "keep": 1,
                "base_kind": 2,
                "base": 7,
                "wraps": 3,
                "limit": 7,
                "checks": 1,
                "fault": 5,
                "least": 1,
                "aligned": 1,
                "note": 3,
                "when": 5,
                "loads": 3,
                "into": 7,
                "word": 6,
                "names": 1,
                "last": 1,
                "ends": 1,
            }
        )
