# SPDX-License-Identifier: Apache-2.0
"""The instruction set: the one place where opcodes, fields, checks and meanings are defined.

Assembler, disassembler, hardware decoder, golden model and the reference page read this file.
An instruction is one little-endian word of 128 bits: the opcode in bits 7:0, then the fields
one after the other from bit 8 upwards. Bits that belong to no field must be zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

INSTRUCTION_BYTES = 16
OPCODE_BITS = 8
PARAMETER_PLANES = 9
"""Lines of one parameter entry: 4 byte planes of bias, 4 of multiplier, 1 of shift."""
TABLE_BYTES = 256
WEIGHT_READS_IN_FLIGHT = 8
"""Read_Weights instructions whose tiles may all wait for their MatrixMultiply at one time."""


class Opcode(IntEnum):
    """First byte of an instruction. Zero is not one: cleared memory must not run."""

    NOP = 0x01
    HALT = 0x02
    SYNCHRONIZE = 0x03
    INTERRUPT_HOST = 0x04
    READ_HOST_MEMORY = 0x10
    WRITE_HOST_MEMORY = 0x11
    LOAD_PARAMETERS = 0x12
    LOAD_TABLE = 0x13
    READ_WEIGHTS = 0x20
    MATRIX_MULTIPLY = 0x30
    ACTIVATE = 0x40


class Function(IntEnum):
    """The `function` field of Activate."""

    NONE = 0
    RELU = 1
    RELU6 = 2
    TABLE = 3


class Rounding(IntEnum):
    """The `rounding` field of Activate."""

    DOUBLE = 0
    SINGLE = 1


class Fault(IntEnum):
    """Why a machine stopped. The value stands in the FAULT_CAUSE register."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    ILLEGAL_FIELD = 2
    BUFFER_RANGE = 3
    ACCUMULATOR_RANGE = 4
    PARAMETER_RANGE = 5
    TABLE_RANGE = 6
    HOST_WINDOW = 7
    WEIGHT_WINDOW = 8
    FETCH_WINDOW = 9
    WEIGHT_UNDERFLOW = 10
    WEIGHT_OVERFLOW = 11
    HOST_READ_ERROR = 12
    HOST_WRITE_ERROR = 13
    WEIGHT_READ_ERROR = 14
    FETCH_ERROR = 15


FAULT_TEXT: Mapping[Fault, tuple[str, str]] = {
    Fault.NONE: ("no fault", "0"),
    Fault.ILLEGAL_OPCODE: ("the opcode is not one of the table", "the opcode"),
    Fault.ILLEGAL_FIELD: (
        "a bit outside the fields is set, a field is below its minimum, `tail` exceeds the "
        "vector, or `host` or `stride` is no multiple of the host bus width",
        "0",
    ),
    Fault.BUFFER_RANGE: ("the last line is beyond the unified buffer", "`buffer`"),
    Fault.ACCUMULATOR_RANGE: ("the last row is beyond the accumulators", "`accumulator`"),
    Fault.PARAMETER_RANGE: ("the last entry is beyond the parameter memory", "`parameter`"),
    Fault.TABLE_RANGE: ("there is no such table", "`table`"),
    Fault.HOST_WINDOW: ("the last byte is beyond the host window", "`host`"),
    Fault.WEIGHT_WINDOW: ("the last tile is beyond the weight window", "`tile`"),
    Fault.FETCH_WINDOW: (
        "the 16 bytes of the instruction are not wholly inside the host window",
        "byte offset of the instruction, modulo 2^32",
    ),
    Fault.WEIGHT_UNDERFLOW: (
        "the instruction needs more tiles than earlier Read_Weights have queued and earlier "
        "MatrixMultiply not consumed",
        "tiles still queued",
    ),
    Fault.WEIGHT_OVERFLOW: (
        f"at least {WEIGHT_READS_IN_FLIGHT} Read_Weights ran before this one, and none of the last "
        f"{WEIGHT_READS_IN_FLIGHT} has had all its tiles consumed by earlier instructions",
        "`tile`",
    ),
    Fault.HOST_READ_ERROR: ("host memory answered a data read with an error", "0"),
    Fault.HOST_WRITE_ERROR: ("host memory answered a write with an error", "0"),
    Fault.WEIGHT_READ_ERROR: ("weight memory answered a read with an error", "0"),
    Fault.FETCH_ERROR: ("host memory answered an instruction fetch with an error", "0"),
}
"""For each cause: what it means, and what the FAULT_ADDRESS register then holds."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One operand. `signed` fields are two's complement."""

    name: str
    width: int
    doc: str
    signed: bool = False
    minimum: int | None = None
    """Smallest legal value where the width alone would allow less; else ILLEGAL_FIELD."""
    default: int | None = None
    """What the assembler fills in when the operand is left out; None: it must be given."""
    values: type[IntEnum] | None = None
    """Names that the assembler takes and the disassembler prints."""

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value that the field can hold."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return self.minimum or 0, (1 << self.width) - 1


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction: its fields in bit order, and its meaning in words."""

    opcode: Opcode
    fields: tuple[Field, ...] = ()
    summary: str
    checks: tuple[Fault, ...] = ()
    """Faults that stop the program before the instruction has any effect, in order of precedence
    (after ILLEGAL_OPCODE and ILLEGAL_FIELD, which come first for every instruction)."""
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
        """Bit position of the least significant bit of field `name`."""
        position = OPCODE_BITS
        for field in self.fields:
            if field.name == name:
                return position
            position += field.width
        raise KeyError(name)

    @property
    def width(self) -> int:
        """Bits used by opcode and fields; those above are reserved and zero."""
        return OPCODE_BITS + sum(field.width for field in self.fields)


_HOST = Field(
    name="host", width=32, doc="byte offset in the host window, a multiple of the host bus"
)
_BUFFER = Field(name="buffer", width=20, doc="first unified-buffer line")
_ROWS = Field(name="rows", width=16, doc="M: vectors of each block or tile", minimum=1)
_ACCUMULATOR = Field(name="accumulator", width=16, doc="first accumulator row")
_N_TILES = Field(name="n_tiles", width=12, doc="tiles along N", minimum=1)
_MATRIX = (
    _HOST,
    _BUFFER,
    _ROWS,
    Field(
        name="stride",
        width=24,
        doc="bytes from one row to the next in host memory, a multiple of the host bus",
    ),
    Field(name="blocks", width=12, doc="blocks that one row is cut into", minimum=1),
    Field(name="tail", width=9, doc="bytes of the last block of each row", minimum=1),
)

INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.NOP,
        summary="Does nothing.",
        semantics="No effect.",
    ),
    Instruction(
        opcode=Opcode.HALT,
        summary="Ends the program.",
        semantics=(
            "All earlier instructions complete, weight tiles that nothing consumed are dropped, "
            "then DONE appears in STATUS. Instructions after it are never executed. A fault drops "
            "the tiles, too: every program starts with an empty weight queue."
        ),
    ),
    Instruction(
        opcode=Opcode.SYNCHRONIZE,
        summary="Waits for the units.",
        semantics=(
            "The next instruction starts when all earlier ones have completed, their host writes "
            "acknowledged. Weight tiles still on their way may be. Without it the result of a "
            "program is the same: it is for measurements and for hosts that watch memory."
        ),
    ),
    Instruction(
        opcode=Opcode.INTERRUPT_HOST,
        fields=(Field(name="code", width=16, doc="value for the host", default=0),),
        summary="Raises the interrupt with a code.",
        semantics=(
            "Waits like Synchronize; then `code` appears in IRQ_CODE and the PROGRAM bit of "
            "IRQ_STATUS is set. The program goes on."
        ),
    ),
    Instruction(
        opcode=Opcode.READ_HOST_MEMORY,
        fields=_MATRIX,
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from host memory into the unified buffer.",
        semantics=(
            "Each of the `rows` rows in host memory is `blocks` input vectors of R bytes, R being "
            "the rows of the array, one every input pitch P_in (R rounded up to whole beats of the "
            "host bus). Block b of row m goes to line `buffer` + b * `rows` + m; its bytes come "
            "from `host` + m * `stride` + b * P_in. The last block (b = `blocks` - 1) has only "
            "`tail` bytes (at most R); the rest of its line becomes 0, as do bytes of a line "
            "beyond R. Lines written: `rows` * `blocks`. The bytes touched in host memory end at "
            "`host` + (`rows` - 1) * `stride` + `blocks` * P_in, whole pitches, padding included: "
            "that end must not exceed the host window."
        ),
    ),
    Instruction(
        opcode=Opcode.WRITE_HOST_MEMORY,
        fields=_MATRIX,
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from the unified buffer into host memory.",
        semantics=(
            "The reverse of Read_Host_Memory with output vectors of C bytes, C being the columns "
            "of the array, and the output pitch P_out (C rounded up to whole beats): bytes 0 to "
            "C - 1 of line `buffer` + b * `rows` + m go to `host` + m * `stride` + b * P_out, only "
            "`tail` bytes (at most C) of them for the last block. No other byte is written, not "
            "even padding. Lines read: `rows` * `blocks`. The window check takes whole pitches: "
            "`host` + (`rows` - 1) * `stride` + `blocks` * P_out. Copies are made in the order of "
            "b, then m; that order shows only where rows overlap in host memory."
        ),
    ),
    Instruction(
        opcode=Opcode.LOAD_PARAMETERS,
        fields=(
            _HOST,
            Field(name="parameter", width=12, doc="first parameter entry"),
            Field(name="count", width=12, doc="entries", minimum=1),
        ),
        checks=(Fault.PARAMETER_RANGE, Fault.HOST_WINDOW),
        summary="Loads bias, multiplier and shift of output channels.",
        semantics=(
            f"An entry serves the C channels of one N tile and takes {PARAMETER_PLANES} planes of "
            "P_out bytes in host memory, one after the other, entries likewise; byte c of a plane "
            "belongs to channel c. Planes 0 to 3 are the bytes of the bias (int32, least "
            "significant first), 4 to 7 those of the multiplier (bit 31 is ignored), plane 8 is "
            "the shift: bits 4:0 right shift r, bits 7:5 left shift l. The window check takes all "
            f"`count` * {PARAMETER_PLANES} * P_out bytes."
        ),
    ),
    Instruction(
        opcode=Opcode.LOAD_TABLE,
        fields=(_HOST, Field(name="table", width=4, doc="number of the table")),
        checks=(Fault.TABLE_RANGE, Fault.HOST_WINDOW),
        summary="Loads a 256-entry activation table.",
        semantics=(
            f"Reads {TABLE_BYTES} bytes from `host`. Byte i is the int8 result for the int8 input "
            "whose bit pattern is i: entry 0 for input 0, entry 128 for -128, entry 255 for -1. "
            f"The window check takes these {TABLE_BYTES} bytes."
        ),
    ),
    Instruction(
        opcode=Opcode.READ_WEIGHTS,
        fields=(
            Field(name="tile", width=24, doc="first tile in the weight window, in tiles"),
            Field(name="count", width=24, doc="tiles", minimum=1),
        ),
        checks=(Fault.WEIGHT_WINDOW, Fault.WEIGHT_OVERFLOW),
        summary="Queues weight tiles.",
        semantics=(
            "Appends tiles `tile`, `tile` + 1, ... to the weight queue. A tile is R rows of C int8 "
            "values, each row padded to whole beats of the weight bus; row k holds the weights of "
            "input element k. The window check is `tile` + `count` <= WEIGHT_TILES. The queue "
            f"holds any number of tiles but at most {WEIGHT_READS_IN_FLIGHT} Read_Weights with "
            "tiles not yet consumed."
        ),
    ),
    Instruction(
        opcode=Opcode.MATRIX_MULTIPLY,
        fields=(
            _BUFFER,
            _ACCUMULATOR,
            _ROWS,
            Field(name="k_tiles", width=12, doc="tiles along K", minimum=1),
            _N_TILES,
            Field(
                name="accumulate",
                width=1,
                doc="1: add to what the accumulators hold; 0: overwrite",
                default=0,
            ),
        ),
        checks=(Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE, Fault.WEIGHT_UNDERFLOW),
        summary="Multiplies a matrix by weight tiles into the accumulators.",
        semantics=(
            "For n = 0 .. `n_tiles` - 1, for k = 0 .. `k_tiles` - 1: takes the next tile W from "
            "the weight queue, and for m = 0 .. `rows` - 1 adds the vector x W (x: the first R "
            "bytes, int8, of line `buffer` + k * `rows` + m) to accumulator row `accumulator` + "
            "n * `rows` + m, 32 bits, modulo 2^32. With `accumulate` = 0 the product of k = 0 "
            "replaces the row. Lines read: `rows` * `k_tiles`; accumulator rows: `rows` * "
            "`n_tiles`; tiles consumed: `k_tiles` * `n_tiles`."
        ),
    ),
    Instruction(
        opcode=Opcode.ACTIVATE,
        fields=(
            _ACCUMULATOR,
            _BUFFER,
            _ROWS,
            _N_TILES,
            Field(name="parameter", width=12, doc="parameter entry of the first tile"),
            Field(name="function", width=2, doc="activation function", default=0, values=Function),
            Field(name="rounding", width=1, doc="requantisation", default=0, values=Rounding),
            Field(name="zero_point", width=8, signed=True, doc="output zero point", default=0),
            Field(
                name="ceiling",
                width=8,
                signed=True,
                doc="RELU6: the code of 6.0, upper bound of the result",
                default=127,
            ),
            Field(name="table", width=4, doc="TABLE: number of the table", default=0),
        ),
        checks=(
            Fault.ACCUMULATOR_RANGE,
            Fault.BUFFER_RANGE,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Requantises accumulators into the unified buffer.",
        semantics=(
            "For n = 0 .. `n_tiles` - 1, m = 0 .. `rows` - 1 and each column c: a = accumulator "
            "row `accumulator` + n * `rows` + m; bias, multiplier q (31 bits, unsigned), left and "
            "right shift l, r from entry `parameter` + n, channel c. x = a + bias modulo 2^32; "
            "x' = x * 2^l saturated to int32. "
            "DOUBLE: h = (x' * q + 2^30) >> 31; y = r = 0 ? h : (h + 2^(r-1) - (h < 0)) >> r. "
            "SINGLE: y = (x' * q + 2^(30+r)) >> (31+r). Shifts are arithmetic, nothing overflows. "
            "v = y + `zero_point`, clamped to [low, high]: NONE and TABLE [-128, 127]; RELU "
            "[`zero_point`, 127]; RELU6 low = `zero_point`, high = `ceiling`, and where low > "
            "high the result is high. TABLE replaces v by table `table`, entry v. The result "
            "goes to byte c of line `buffer` + n * `rows` + m; bytes of the line beyond C become "
            "0. TABLE_RANGE is checked for function TABLE only."
        ),
    ),
)

BY_OPCODE: Mapping[Opcode, Instruction] = {entry.opcode: entry for entry in INSTRUCTIONS}
BY_MNEMONIC: Mapping[str, Instruction] = {entry.mnemonic: entry for entry in INSTRUCTIONS}


class EncodingError(ValueError):
    """An operand that is missing, unknown or does not fit its field."""


def encode(opcode: Opcode, **operands: int) -> bytes:
    """One instruction as INSTRUCTION_BYTES bytes.

    Operands left out take the default of their field. Raises EncodingError for an operand that
    is unknown, missing without default, or out of the range of its field.
    """
    entry = BY_OPCODE[opcode]
    unknown = set(operands) - {field.name for field in entry.fields}
    if unknown:
        raise EncodingError(f"{entry.mnemonic} has no operand '{sorted(unknown)[0]}'")
    word = int(opcode)
    for field in entry.fields:
        value = operands.get(field.name, field.default)
        if value is None:
            raise EncodingError(f"{entry.mnemonic} needs operand '{field.name}'")
        low, high = field.range
        if not low <= value <= high:
            raise EncodingError(f"{entry.mnemonic}: {field.name}={value} is not in {low} to {high}")
        word |= (value & ((1 << field.width) - 1)) << entry.offset(field.name)
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(word: bytes) -> tuple[Instruction, dict[str, int]] | None:
    """The instruction in INSTRUCTION_BYTES bytes and its operands; None for no legal opcode.

    Field values are taken as they stand: minima and reserved bits are the caller's to check
    (`reserved_bits`, `Field.minimum`).
    """
    value = int.from_bytes(word, "little")
    try:
        entry = BY_OPCODE[Opcode(value & 0xFF)]
    except ValueError:
        return None
    operands: dict[str, int] = {}
    for field in entry.fields:
        raw = (value >> entry.offset(field.name)) & ((1 << field.width) - 1)
        if field.signed and raw >> (field.width - 1):
            raw -= 1 << field.width
        operands[field.name] = raw
    return entry, operands


def reserved_bits(entry: Instruction, word: bytes) -> int:
    """The bits of `word` above the fields of `entry`, as a number: nonzero is ILLEGAL_FIELD."""
    return int.from_bytes(word, "little") >> entry.width
