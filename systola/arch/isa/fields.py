# SPDX-License-Identifier: Apache-2.0
"""The parts of an instruction, and the fields that several instructions have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import cached_property

from systola.arch.isa.codes import INSTRUCTION_BYTES, OPCODE_BITS, Opcode
from systola.arch.isa.extents import extent
from systola.arch.isa.faults import Fault

PLACE_BITS = 4
"""Number of bits of which the position of a field is a multiple, if it is not `beside` another."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """An operand of an instruction. `signed` fields are two's complement."""

    name: str
    width: int
    doc: str
    signed: bool = False
    minimum: int | None = None
    """Smallest legal value, where the width alone would allow less. A smaller value is an
    ILLEGAL_FIELD."""
    default: int | None = None
    """Value that the assembler fills in when the operand is left out. None: the operand must be
    given."""
    values: type[IntEnum] | None = None
    """Names of the legal values, for the assembler and the disassembler; other values are an
    ILLEGAL_FIELD. None: values have no names, and all numbers from `minimum` on are legal."""
    indexes: str | None = None
    """Name of the operand to which the index register with the number in this field is added."""
    less: int = 0
    """Number that is subtracted from the operand to get the bits in the word."""
    at: int | None = None
    """Place of the lowest bit. None: the next half byte after the field before, or the next bit if
    the field is `beside` it."""
    beside: bool = False

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value that the field can hold."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return self.minimum or self.less, self.less + (1 << self.width) - 1

    def stored(self, value: int) -> int:
        """Return the bits of the field for a value of the operand."""
        return (value - self.less) & ((1 << self.width) - 1)

    def loaded(self, bits: int) -> int:
        """Return the value of the operand for the bits of the field."""
        negative = self.signed and bits >> (self.width - 1)
        return bits - (1 << self.width) if negative else bits + self.less


class Executor(StrEnum):
    """A part of the machine that executes instructions, in their order in the program."""

    SEQUENCER = "sequencer"
    SCALAR_UNIT = "scalar unit"
    DECODER = "decoder"
    HOST_READER = "host reader"
    HOST_WRITER = "host writer"
    WEIGHT_FETCH = "weight fetch"
    MATRIX_UNIT = "matrix unit"
    ACTIVATION_UNIT = "activation unit"
    LINK_UNIT = "link unit"


class Hardware(StrEnum):
    """Hardware that a configuration may leave out.

    The name of a member in lower case is the parameter of Config that decides about the hardware.
    """

    TABLES = "tables"
    DEPTHWISE = "depthwise lanes"
    TRAINING = "training"
    LINKS = "links"


class Memory(StrEnum):
    """A memory that instructions read or write, with the unit of its addresses."""

    BUFFER = "unified buffer, lines"
    ACCUMULATORS = "accumulators, rows"
    PARAMETERS = "parameters, entries"
    TABLES = "tables"
    HOST = "host window, bytes"
    WEIGHTS = "weight window, tiles"


SIZES: Mapping[str, str] = {
    "R": "rows of the array",
    "C": "columns of the array",
    "P_in": "input pitch, in bytes",
    "P_out": "output pitch, in bytes",
    "map_lines": "H * `pitch` of the window",
    "windows": "OH * OW of the window",
    "kernel_taps": "kernel_height * kernel_width of the window",
}
"""Names in the formulas of `Use.extent` that are not fields of the instruction, with their meaning.
"""


@dataclass(frozen=True)
class Use:
    """A part of a memory: `extent` addresses from the address in field `base` on.

    The extent is a formula for `extents.extent` with the operands of the instruction, the names of
    their codes, and the names of `SIZES`. Its value may be 0.
    """

    memory: Memory
    base: str
    extent: str


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """An instruction: its fields in bit order, its executor and memories, and its meaning in
    words.

    The opcode comes first, then the numbers of index registers and the flags, one beside the other.
    Other fields begin at half bytes. A field that is alone in its half bytes can be read by a shift
    of half bytes.
    """

    opcode: Opcode
    executor: Executor
    needs: Hardware | None = None
    """Hardware without which the instruction is UNAVAILABLE, for any contents of its fields."""
    fields: tuple[Field, ...] = ()
    reads: tuple[Use, ...] = ()
    """Parts of memories that the instruction reads. A part to which the instruction adds is among
    `writes` only."""
    writes: tuple[Use, ...] = ()
    summary: str
    checks: tuple[Fault, ...] = ()
    """Faults that stop the program before the instruction has any effect, in order of precedence.
    ILLEGAL_OPCODE and ILLEGAL_FIELD come before them for every instruction."""
    semantics: str

    @property
    def mnemonic(self) -> str:
        """Name in assembly text, such as `read_host_memory`."""
        return self.opcode.name.lower()

    @property
    def title(self) -> str:
        """Name as the original machine spells it, such as `Read_Host_Memory`."""
        if self.opcode is Opcode.MATRIX_MULTIPLY:
            return "MatrixMultiply"
        return "_".join(word.capitalize() for word in self.opcode.name.split("_"))

    def offset(self, name: str) -> int:
        """Return the position of the lowest bit of field `name`. Raises KeyError if there is
        none."""
        return self._offsets[name]

    @cached_property
    def _offsets(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        end = OPCODE_BITS
        for field in self.fields:
            next_place = end if field.beside else -(-end // PLACE_BITS) * PLACE_BITS
            place = next_place if field.at is None else field.at
            assert place >= end, f"{self.mnemonic}: {field.name}"
            found[field.name] = place
            end = place + field.width
        assert end <= 8 * INSTRUCTION_BYTES, self.mnemonic
        return found

    @cached_property
    def reserved(self) -> tuple[tuple[int, int], ...]:
        """The bits that belong to no field and are 0, as ranges: first bit, and bit after the last
        one.
        """
        found: list[tuple[int, int]] = []
        end = OPCODE_BITS
        for field in self.fields:
            if self.offset(field.name) > end:
                found.append((end, self.offset(field.name)))
            end = self.offset(field.name) + field.width
        if end < 8 * INSTRUCTION_BYTES:
            found.append((end, 8 * INSTRUCTION_BYTES))
        return tuple(found)

    def uses(self, *memories: Memory) -> bool:
        """Return whether the instruction reads or writes any of the `memories`."""
        return any(use.memory in memories for use in (*self.reads, *self.writes))

    def addresses(self, use: Use, operands: Mapping[str, int], sizes: Mapping[str, int]) -> range:
        """Return the addresses of one part of a memory that the instruction uses.

        `operands` are effective: index registers have been added. `sizes` has a value for each of
        SIZES that the extent's formula needs.
        """
        codes = {
            code.name: int(code) for field in self.fields if field.values for code in field.values
        }
        first = operands[use.base]
        return range(first, first + extent(use.extent, {**codes, **sizes, **operands}))

    def field(self, name: str) -> Field:
        """Return the field called `name`. Raises KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


def registers(*operands: str) -> tuple[Field, ...]:
    """Return for each operand the field that selects an index register to be added to it."""
    return tuple(
        Field(
            name=f"{operand}_register",
            width=3,
            doc=f"index register that is added to `{operand}`",
            default=0,
            indexes=operand,
            beside=True,
        )
        for operand in operands
    )


def beside(*fields: Field) -> tuple[Field, ...]:
    """Return the fields so that each begins at the next bit after the field before it."""
    return tuple(replace(field, beside=True) for field in fields)


def flag(name: str, doc: str) -> Field:
    """Return a field of one bit, which is 0 unless it is given."""
    return Field(name=name, width=1, doc=doc, default=0, beside=True)


BUFFER = Field(name="buffer", width=20, doc="first unified-buffer line")
ROWS = Field(name="rows", width=16, doc="M: vectors of each block or tile", minimum=1)
ACCUMULATOR = Field(name="accumulator", width=16, doc="first accumulator row")
N_TILES = Field(name="n_tiles", width=12, doc="tiles along N", minimum=1)
CEILING = Field(
    name="ceiling",
    width=8,
    signed=True,
    doc="RELU6: the code of 6.0, upper bound of the result",
    default=127,
)
FILL = Field(name="fill", width=8, signed=True, doc="value outside the feature map", default=0)
