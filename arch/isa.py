# SPDX-License-Identifier: Apache-2.0
"""The instruction set: the one place where opcodes, fields, checks and meanings are defined.

Assembler, disassembler, hardware decoder, golden model and the reference page read this file.
An instruction is one little-endian word of 128 bits: the opcode in bits 7:0, then the fields
one after the other from bit 8 upwards. Bits that belong to no field must be zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

INSTRUCTION_BYTES = 16
OPCODE_BITS = 8
PARAMETER_PLANES = 9
"""Lines of one parameter entry: 4 byte planes of bias, 4 of multiplier, 1 of shift."""
TABLE_BYTES = 256
WEIGHT_READS_IN_FLIGHT = 8
"""Read_Weights instructions whose tiles may all wait for their MatrixMultiply at one time."""
REGISTERS = 8
"""Index registers of the scalar unit; register 0 is always zero."""
LOOP_DEPTH = 4
"""Loops that may be open at one time."""
DEPTHWISE_TAPS = 64
"""Taps of the largest kernel of Depthwise."""
TANH_INTEGER_BITS = 4
"""Most integer bits of the argument of functions TANH and EXP."""
RECIPROCAL, INVERSE_ROOT = 5, 6
"""What `table` has for 1/x and 1/sqrt(x) with function EXP, in place of integer bits."""
EXPONENT_REGISTERS = 8
"""Exponent registers of the activation unit; register 0 is always zero."""
RANDOM_LANES = 8
"""Columns that one generator of Random serves."""
RANDOM_WARM_UP = 16
"""Steps of a generator before the first line."""
RANDOM_GROUP = 0x1E3779B97F4A7C15
"""What the number of a generator is multiplied with to tell its start from the others'."""
DITHER_BITS = 4
"""Bits of the random number that a stochastic rounding adds."""
TAGS_WAITING = 8
"""Debug_Tag instructions that may wait at one time without holding up later instructions."""


class Opcode(IntEnum):
    """First byte of an instruction. Zero is not one: cleared memory must not run."""

    NOP = 0x01
    HALT = 0x02
    SYNCHRONIZE = 0x03
    INTERRUPT_HOST = 0x04
    SYNCHRONIZE_HOST = 0x05
    DEBUG_TAG = 0x06
    SET_REGISTER = 0x08
    LOOP = 0x09
    END_LOOP = 0x0A
    SET_CONFIG_WINDOW = 0x0C
    SET_CONFIG_SCALE = 0x0D
    READ_HOST_MEMORY = 0x10
    WRITE_HOST_MEMORY = 0x11
    LOAD_PARAMETERS = 0x12
    LOAD_TABLE = 0x13
    READ_HOST_MEMORY_ALTERNATE = 0x14
    WRITE_HOST_MEMORY_ALTERNATE = 0x15
    READ_WEIGHTS = 0x20
    MATRIX_MULTIPLY = 0x30
    CONVOLVE = 0x31
    ACTIVATE = 0x40
    DEPTHWISE = 0x41
    POOL = 0x42
    VECTOR = 0x43
    MEASURE = 0x44
    TRANSPOSE = 0x45
    RANDOM = 0x46
    SEND = 0x58
    RECEIVE = 0x59
    REDUCE = 0x5A
    BARRIER = 0x5B


class Function(IntEnum):
    """The `function` field of Activate, Depthwise and Vector."""

    NONE = 0
    RELU = 1
    RELU6 = 2
    TABLE = 3
    SIGMOID = 4
    TANH = 5
    EXP = 6


GATES = (Function.SIGMOID, Function.TANH, Function.EXP)
"""The functions of the gate lanes: int16 in, int16 out."""


class Rounding(IntEnum):
    """The `rounding` field of Activate, Depthwise, Pool and Vector."""

    DOUBLE = 0
    SINGLE = 1


class Reduction(IntEnum):
    """The `reduction` field of Pool."""

    MAX = 0
    AVERAGE = 1
    SUM = 2


class Operation(IntEnum):
    """The `operation` field of Vector."""

    COPY = 0
    ADD = 1
    SUBTRACT = 2
    MULTIPLY = 3


class Source(IntEnum):
    """The `source` field of Measure."""

    NONE = 0
    ACCUMULATORS = 1
    LINES = 2


class Side(IntEnum):
    """The `side` field of Send, Receive and Reduce: a neighbour in the ring."""

    LEFT = 0
    RIGHT = 1


class LinkPart(IntFlag):
    """Parts of a core's link unit, as FAULT_ADDRESS names them."""

    SEND_LEFT = 1
    SEND_RIGHT = 2
    RECEIVE_LEFT = 4
    RECEIVE_RIGHT = 8
    BARRIER = 16


class Unit(IntFlag):
    """Bits of the `wait` field of Debug_Tag: the units that it waits for."""

    HOST_READER = 1
    MATRIX_UNIT = 2
    ACTIVATION_UNIT = 4
    HOST_WRITER = 8


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
    UNAVAILABLE = 16
    WINDOW = 17
    OVERLAP = 18
    LOOP = 19
    BUS_TIMEOUT = 20
    MEMORY_ERROR = 21
    LINK_KIND = 22
    LINK_TIMEOUT = 23
    POD_STOPPED = 24


FAULT_TEXT: Mapping[Fault, tuple[str, str]] = {
    Fault.NONE: ("no fault", "0"),
    Fault.ILLEGAL_OPCODE: ("the opcode is not one of the table", "the opcode"),
    Fault.ILLEGAL_FIELD: (
        "a bit outside the fields is set, a field is below its minimum or has no such value, "
        "`tail` exceeds the vector, `host` or `stride` is no multiple of the host bus width, or "
        "the instruction names a combination of fields that its text excludes",
        "0",
    ),
    Fault.BUFFER_RANGE: (
        "the last line is beyond the unified buffer",
        "first line of the region that does not fit: `buffer`, `taps`, `operand` or `destination`",
    ),
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
        "MatrixMultiply and Convolve not consumed",
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
    Fault.UNAVAILABLE: (
        "the instruction needs hardware that this configuration leaves out",
        "the opcode",
    ),
    Fault.WINDOW: (
        "no Set_Config_Window ran before in this program, a row of the feature map is longer than "
        "its pitch, the window does not fit packed channels, or a kernel of Depthwise has more "
        f"than {DEPTHWISE_TAPS} taps",
        "0",
    ),
    Fault.OVERLAP: (
        "the lines to be written overlap those of an operand",
        "`destination`",
    ),
    Fault.LOOP: (
        f"Loop inside {LOOP_DEPTH} open loops or with no iteration, or End_Loop with none open",
        "loops open",
    ),
    Fault.BUS_TIMEOUT: (
        "a memory has not answered for as many cycles as the register BUS_TIMEOUT says; FAULT_PC "
        "is 0. BUSY stays until the transfers under way have ended: where they never do, only the "
        "reset input of the machine helps",
        "who waits for memory: 1 host reads, 2 host writes, 4 weight reads, or their sum",
    ),
    Fault.MEMORY_ERROR: (
        "a byte of the unified buffer or the accumulators is not what was written there, in a "
        "configuration with PARITY. FAULT_PC is 0. What the program wrote to host memory may be "
        "wrong",
        "1 unified buffer, 2 accumulators, or their sum",
    ),
    Fault.LINK_KIND: (
        "lines came where a Reduce takes sums, or sums where a Receive takes lines. FAULT_PC is 0",
        "who took them: 4 from the left, 8 from the right",
    ),
    Fault.LINK_TIMEOUT: (
        "instructions of the links wait for what no neighbour sends, takes, or comes to, and "
        "nothing has moved on the links of the pod for as many cycles as the register BUS_TIMEOUT "
        "says, or this core waits when another one ends so. FAULT_PC is 0",
        "what has not completed, the sum of: "
        + ", ".join(f"{int(part)} {str(part.name).lower()}" for part in LinkPart),
    ),
    Fault.POD_STOPPED: (
        "another core of the pod had a fault before this one had ended. FAULT_PC is 0",
        "0",
    ),
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
    """Names that the assembler takes and the disassembler prints; other values are
    ILLEGAL_FIELD."""
    indexes: str | None = None
    """The operand to which the index register with the number in this field is added."""

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

    def field(self, name: str) -> Field:
        """The field called `name`; KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


def _registers(*operands: str) -> tuple[Field, ...]:
    """For each operand the field that selects an index register to be added to it."""
    return tuple(
        Field(
            name=f"{operand}_register",
            width=3,
            doc=f"index register that is added to `{operand}`",
            default=0,
            indexes=operand,
        )
        for operand in operands
    )


def _flag(name: str, doc: str) -> Field:
    return Field(name=name, width=1, doc=doc, default=0)


_HOST = Field(
    name="host", width=32, doc="byte offset in the host window, a multiple of the host bus"
)
_BUFFER = Field(name="buffer", width=20, doc="first unified-buffer line")
_ROWS = Field(name="rows", width=16, doc="M: vectors of each block or tile", minimum=1)
_ACCUMULATOR = Field(name="accumulator", width=16, doc="first accumulator row")
_N_TILES = Field(name="n_tiles", width=12, doc="tiles along N", minimum=1)
_PARAMETER = Field(name="parameter", width=12, doc="first parameter entry that is used")
_DESTINATION = Field(name="destination", width=20, doc="first unified-buffer line of the result")
_ROUNDING = Field(name="rounding", width=1, doc="requantisation", default=0, values=Rounding)
_ZERO_POINT = Field(name="zero_point", width=8, signed=True, doc="output zero point", default=0)
_CEILING = Field(
    name="ceiling",
    width=8,
    signed=True,
    doc="RELU6: the code of 6.0, upper bound of the result",
    default=127,
)
_BLOCKS_OF_CHANNELS = Field(name="blocks", width=12, doc="blocks of C channels", minimum=1)
_FILL = Field(name="fill", width=8, signed=True, doc="what lies outside the feature map", default=0)
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
    *_registers("host", "buffer"),
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
            "the tiles, too: every program starts with an empty weight queue, index registers of "
            "zero, no open loop, no window and a scale of zeros."
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
        opcode=Opcode.SYNCHRONIZE_HOST,
        summary="Waits for the host.",
        semantics=(
            "Waits like Synchronize; then the WAITING bit of STATUS is set until the host writes "
            "RESUME to CONTROL, and the program goes on. A RESUME that came while no instruction "
            "waited is kept for the next one; one is kept at most, and none from one program to "
            "the next. What the host wrote to its memory before RESUME is seen by the "
            "instructions behind."
        ),
    ),
    Instruction(
        opcode=Opcode.DEBUG_TAG,
        fields=(
            Field(name="tag", width=16, doc="value for the trace", default=0),
            Field(
                name="wait",
                width=len(Unit),
                doc="units that it waits for, the sum of: "
                + ", ".join(f"{int(unit)} {str(unit.name).lower()}" for unit in Unit),
                default=0,
            ),
        ),
        summary="Marks a point of the program in the trace, or the completion of work.",
        semantics=(
            "`tag` and the number of cycles since START enter the trace of the registers in the "
            "first cycle in which all earlier instructions of the units in `wait` have completed, "
            "and all earlier tags have entered: one a cycle, in program order. Bits of `wait`: 0, "
            "host_reader: Read_Host_Memory and its alternate, Load_Parameters and Load_Table, once "
            "the last line, entry or byte is on the chip; 1, matrix_unit: MatrixMultiply and "
            "Convolve, once the last sum is in the accumulators; 2, activation_unit: Activate, "
            "Depthwise, Pool, Vector, Measure, Transpose and Random, once the last line is in the "
            "buffer; 3, host_writer: "
            "Write_Host_Memory and its alternate, once the last write is acknowledged. There is "
            "none for Read_Weights: later instructions consume the tiles, and a MatrixMultiply "
            "that has completed had its own. With `wait` = 0, and no tag waiting, the tag enters "
            "in the cycle behind its issue. Later instructions are not held up, but for Debug_Tag "
            f"itself while {TAGS_WAITING} tags wait. The instruction completes when its tag "
            "enters: Synchronize, the instructions that wait like it, and the end of a program by "
            "Halt or by a fault found before issue wait for all tags. A bus error and SOFT_RESET "
            "drop those that wait. No other effect."
        ),
    ),
    Instruction(
        opcode=Opcode.SET_REGISTER,
        fields=(
            Field(name="register", width=3, doc="register that is set, 1 to 7", minimum=1),
            Field(name="value", width=32, signed=True, doc="constant", default=0),
            Field(name="first", width=3, doc="register that is added", default=0),
            Field(name="second", width=3, doc="register that is added, too", default=0),
        ),
        summary="Computes an index register.",
        semantics=(
            "Register `register` becomes register `first` + register `second` + `value`, modulo "
            "2^32. An operand with an index register means the sum of its field and that register, "
            "modulo 2^width of the field; every check is made with the sum."
        ),
    ),
    Instruction(
        opcode=Opcode.LOOP,
        fields=(
            Field(name="count", width=32, doc="iterations"),
            *_registers("count"),
        ),
        checks=(Fault.LOOP,),
        summary="Opens a loop.",
        semantics=(
            "The instructions up to the matching End_Loop run `count` times (the sum with its "
            f"index register, as everywhere). Up to {LOOP_DEPTH} loops may be open."
        ),
    ),
    Instruction(
        opcode=Opcode.END_LOOP,
        checks=(Fault.LOOP,),
        summary="Ends the body of the innermost loop.",
        semantics=(
            "Goes back to the instruction behind the innermost open Loop, or, after its last "
            "iteration, closes it and goes on."
        ),
    ),
    Instruction(
        opcode=Opcode.SET_CONFIG_WINDOW,
        fields=(
            Field(name="height", width=12, doc="H: rows of the feature map", minimum=1),
            Field(name="width", width=12, doc="W: pixels of a row", minimum=1),
            Field(name="pitch", width=12, doc="lines from one row to the next", minimum=1),
            Field(name="kernel_height", width=8, doc="rows of the window", minimum=1),
            Field(name="kernel_width", width=8, doc="columns of the window", minimum=1),
            Field(name="stride_y", width=7, doc="rows from window to window", minimum=1),
            Field(name="stride_x", width=7, doc="columns from window to window", minimum=1),
            Field(name="dilation_y", width=4, doc="rows from tap to tap", minimum=1),
            Field(name="dilation_x", width=4, doc="columns from tap to tap", minimum=1),
            Field(name="top", width=13, signed=True, doc="row of the first window", default=0),
            Field(name="left", width=9, signed=True, doc="column of the first window", default=0),
            Field(name="out_height", width=12, doc="OH: windows along a column", minimum=1),
            Field(name="out_width", width=12, doc="OW: windows along a row", minimum=1),
        ),
        summary="Sets the window that Convolve, Depthwise and Pool move over a feature map.",
        semantics=(
            "A feature map in the buffer is H rows of W pixels; row y starts `pitch` lines behind "
            "row y - 1. There are OH x OW windows; tap (i, j) of window (p, q) is the pixel at "
            "row y = `top` + p * `stride_y` + i * `dilation_y` and column x = `left` + q * "
            "`stride_x` + j * `dilation_x`. It is inside where 0 <= y < H and 0 <= x < W. A line "
            "holds one pixel of a block, so the instructions that use the window need W <= `pitch` "
            "(WINDOW), but for packed channels. Padding "
            "before the map is a negative `top` or `left`; padding behind it follows from OH and "
            "OW. The window holds until the next Set_Config_Window or the end of the program."
        ),
    ),
    Instruction(
        opcode=Opcode.SET_CONFIG_SCALE,
        fields=(
            Field(name="multiplier_a", width=31, doc="multiplier of operand a", default=0),
            Field(name="shift_a", width=5, doc="right shift of operand a", default=0),
            Field(name="multiplier_b", width=31, doc="multiplier of operand b", default=0),
            Field(name="shift_b", width=5, doc="right shift of operand b", default=0),
            Field(name="zero_a", width=8, signed=True, doc="zero point of operand a", default=0),
            Field(name="zero_b", width=8, signed=True, doc="zero point of operand b", default=0),
            _CEILING,
            Field(name="limit", width=15, doc="int16 results: bound, 0 for none", default=0),
        ),
        summary="Sets the scales of the operands of Vector.",
        semantics=(
            "All values hold for every Vector until the next Set_Config_Scale or the end of the "
            "program."
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
            *_registers("host", "parameter"),
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
        fields=(
            _HOST,
            Field(name="table", width=4, doc="number of the table"),
            *_registers("host"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.TABLE_RANGE, Fault.HOST_WINDOW),
        summary="Loads a 256-entry activation table.",
        semantics=(
            f"Reads {TABLE_BYTES} bytes from `host`. Byte i is the int8 result for the int8 input "
            "whose bit pattern is i: entry 0 for input 0, entry 128 for -128, entry 255 for -1. "
            f"The window check takes these {TABLE_BYTES} bytes. UNAVAILABLE where there are no "
            "tables."
        ),
    ),
    Instruction(
        opcode=Opcode.READ_HOST_MEMORY_ALTERNATE,
        fields=_MATRIX,
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from host memory into the unified buffer, row by row.",
        semantics=(
            "As Read_Host_Memory in everything but the lines: block b of row m goes to line "
            "`buffer` + m * `blocks` + b. The blocks of a row follow one another, as packed "
            "channels and whole pixels need it."
        ),
    ),
    Instruction(
        opcode=Opcode.WRITE_HOST_MEMORY_ALTERNATE,
        fields=_MATRIX,
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from the unified buffer into host memory, row by row.",
        semantics=(
            "As Write_Host_Memory in everything but the lines: block b of row m comes from line "
            "`buffer` + m * `blocks` + b, and copies are made in the order of m, then b."
        ),
    ),
    Instruction(
        opcode=Opcode.READ_WEIGHTS,
        fields=(
            Field(name="tile", width=24, doc="first tile in the weight window, in tiles"),
            Field(name="count", width=24, doc="tiles", minimum=1),
            *_registers("tile"),
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
            _flag("accumulate", "1: add to what the accumulators hold; 0: overwrite"),
            _flag("wide_vectors", "vectors of int16"),
            _flag("wide_weights", "weights of int16"),
            *_registers("buffer", "accumulator"),
            _flag("from_buffer", "1: weights from lines of the unified buffer; 0: from the queue"),
            Field(name="weights", width=20, doc="first line of the weights", default=0),
            *_registers("weights"),
        ),
        checks=(
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_OVERFLOW,
            Fault.WEIGHT_UNDERFLOW,
        ),
        summary="Multiplies a matrix by weight tiles into the accumulators.",
        semantics=(
            "For n = 0 .. `n_tiles` - 1, for k = 0 .. `k_tiles` - 1: takes the next tile W from "
            "the weight queue, and for m = 0 .. `rows` - 1 adds the vector x W (x: the first R "
            "bytes, int8, of line `buffer` + k * `rows` + m) to accumulator row `accumulator` + "
            "n * `rows` + m, 32 bits, modulo 2^32. With `accumulate` = 0 the product of k = 0 "
            "replaces the row. Lines read: `rows` * `k_tiles`; accumulator rows: `rows` * "
            "`n_tiles`; tiles consumed: `k_tiles` * `n_tiles`. "
            "`wide_vectors`: x is int16, in two lines: its low bytes in line `buffer` + "
            "2 * (k * `rows` + m), its high bytes in the next; twice the lines are read. "
            "`wide_weights`: W is int16, in two tiles of the queue: first one of its low bytes, "
            "then one of its high bytes; twice the tiles are consumed. The rate is half for each. "
            "`from_buffer`: the queue is neither needed nor changed. Tile t = n * `k_tiles` + k "
            "is the R lines from `weights` + t * R on, their first C bytes row after row; with "
            "`wide_weights` row i has its low bytes in line `weights` + 2 * (t * R + i), its high "
            "bytes in the next. Lines read: R * `k_tiles` * `n_tiles`, twice as many with "
            "`wide_weights`; BUFFER_RANGE looks at them after those of the vectors. "
            "WEIGHT_OVERFLOW: `from_buffer` while tiles are queued (only then; FAULT_ADDRESS is "
            "`weights`). WEIGHT_UNDERFLOW is for tiles from the queue alone. Without "
            "`from_buffer`, `weights` is ignored. "
            "UNAVAILABLE where there are no 16-bit modes and one of the two is set, and for "
            "`from_buffer` where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.CONVOLVE,
        fields=(
            _BUFFER,
            _ACCUMULATOR,
            Field(name="plane", width=20, doc="lines from one block of channels to the next"),
            Field(name="k_tiles", width=12, doc="blocks of R input channels", minimum=1),
            _N_TILES,
            _flag("accumulate", "1: add to what the accumulators hold; 0: overwrite"),
            Field(
                name="channels",
                width=8,
                doc="0: a line for each pixel; else packed, so many channels to a pixel",
                default=0,
            ),
            _FILL,
            *_registers("buffer", "accumulator"),
        ),
        checks=(
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_UNDERFLOW,
        ),
        summary="Convolves a feature map with weight tiles into the accumulators.",
        semantics=(
            "The window is that of Set_Config_Window. `channels` = 0: pixel (y, x) of block k is "
            "the first R bytes of line `buffer` + k * `plane` + y * `pitch` + x. For n = 0 .. "
            "`n_tiles` - 1, for each row i, then each column j of the kernel, for k = 0 .. "
            "`k_tiles` - 1: takes the next tile W from the weight queue, and for each window "
            "(p, q), row by row, adds x W to accumulator row `accumulator` + n * OH * OW + p * OW "
            "+ q. x is the pixel of tap (i, j) of that window in block k, or, outside the map, a "
            "vector of `fill`. With `accumulate` = 0 the first product replaces the row. Tiles "
            "consumed: `n_tiles` * kernel_height * kernel_width * `k_tiles`. "
            "`channels` > 0: a row of the map is W * `channels` consecutive bytes, R to a line; "
            "byte t of row y is byte t mod R of line `buffer` + y * `pitch` + floor(t / R). For "
            "each n, then each row i of the kernel, one tile is taken. Element e of x is byte "
            "(`left` + q * `stride_x`) * `channels` + e of row y, or `fill` where y is outside the "
            "map or that byte outside the row: the taps of a row of the kernel side by side, and "
            "behind them whatever follows, for which the weights have zeros. Tiles consumed: "
            "`n_tiles` * kernel_height. WINDOW unless `k_tiles` = 1, `dilation_x` = 1, "
            "kernel_width * `channels` <= R, `stride_x` * `channels` <= R, -R <= `left` * "
            "`channels` < R, and W * `channels` <= R * `pitch`; `plane` is ignored. "
            "BUFFER_RANGE looks at lines `buffer` to `buffer` + (`k_tiles` - 1) * `plane` + H * "
            "`pitch` - 1."
        ),
    ),
    Instruction(
        opcode=Opcode.ACTIVATE,
        fields=(
            _ACCUMULATOR,
            _BUFFER,
            _ROWS,
            _N_TILES,
            _PARAMETER,
            Field(name="function", width=3, doc="activation function", default=0, values=Function),
            _ROUNDING,
            _ZERO_POINT,
            _CEILING,
            Field(
                name="table",
                width=4,
                doc="TABLE: its number; TANH, EXP: integer bits of the argument, or a reciprocal",
                default=0,
            ),
            _flag("wide", "results of int16"),
            _flag("accumulate", "add to what the lines hold"),
            *_registers("accumulator", "buffer", "parameter"),
            Field(
                name="exponent",
                width=3,
                doc="exponent register with the shift; 0: that of the entry",
                default=0,
            ),
            _flag("stochastic", "rounded at random, whatever `rounding` says"),
        ),
        checks=(
            Fault.UNAVAILABLE,
            Fault.ACCUMULATOR_RANGE,
            Fault.BUFFER_RANGE,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Requantises accumulators into the unified buffer.",
        semantics=(
            "For n = 0 .. `n_tiles` - 1, m = 0 .. `rows` - 1 and each column c: s = accumulator "
            "row `accumulator` + n * `rows` + m; bias, multiplier q (31 bits, unsigned), left and "
            "right shift l, r from entry `parameter` + n, channel c. x = s + bias modulo 2^32; "
            "x' = x * 2^l saturated to int32. "
            "DOUBLE: h = (x' * q + 2^30) >> 31; y = r = 0 ? h : (h + 2^(r-1) - (h < 0)) >> r. "
            "SINGLE: y = (x' * q + 2^(30+r)) >> (31+r). Shifts are arithmetic, nothing overflows. "
            "v = y + `zero_point`, clamped to [low, high]: NONE and TABLE [-128, 127]; RELU "
            "[`zero_point`, 127]; RELU6 low = `zero_point`, high = `ceiling`, and where low > "
            "high the result is high. TABLE replaces v by table `table`, entry v. The result "
            "goes to byte c of line `buffer` + n * `rows` + m; bytes of the line beyond C "
            "become 0. TABLE_RANGE is checked for function TABLE only. "
            "`wide`: v = y + d, clamped to [-32768, 32767]; d = `zero_point`, or with `accumulate` "
            "the int16 that those lines hold. SIGMOID takes v as a fixed-point number of 3 "
            "integer and 12 fractional bits, TANH as one of `table` integer and 15 - `table` "
            "fractional bits; their result has 15 fractional bits. Both are the functions "
            "`logistic` and `tanh` of gemmlowp's 16-bit fixed-point arithmetic, bit for bit. EXP "
            "takes v like TANH and gives exp(-|v|) with 15 fractional bits: gemmlowp's "
            "`exp_on_negative_values` of -|v|, 32767 for v = 0. "
            f"EXP with `table` = {RECIPROCAL} or {INVERSE_ROOT} takes x = |v| with 15 fractional "
            f"bits and gives 1/x with 13 fractional bits ({RECIPROCAL}) or 1/sqrt(x) with 14 "
            f"({INVERSE_ROOT}), 32767 for |v| <= 8192, where neither fits; with p(a, b) = (a * b + "
            "2^14) >> 15: y = 32767 + p(-|v|, 15500); three steps of Newton's, y = min(y + p(2 * "
            "e, y), 32767) with e = 2^13 + p(p(y, y), -|v|); y is 1/sqrt(x), p(y, y) is 1/x. The "
            "low bytes of the int16 results go to line `buffer` + 2 * (n * `rows` + m), the "
            "high bytes to the next; twice the lines are written. "
            "`exponent` = k > 0: in place of the entry's shifts r = E[k] clamped to [0, 31], "
            "l = -E[k] clamped to [0, 7], for all channels; E: see Measure. "
            "`stochastic`: for each vector, in the order of n and then m, all generators of Random "
            "make a step from where the last Random or vector with `stochastic` has left them; at "
            "the start of a program their states are zero, and stay so until a Random. Then y = "
            "(x' * q + t * 2^(27+r)) >> (31+r) with the random number t of column 8 * g + j, bits "
            "8j + 3 to 8j of the state of generator g. So y is "
            "one more than the quotient without its fraction as often as the first four bits of "
            "the fraction say, in sixteenths: never where there is none, on average up to 1/16 "
            "less than exact. "
            "ILLEGAL_FIELD: `accumulate`, SIGMOID, TANH or EXP without `wide`, RELU, RELU6 or "
            f"TABLE with it, TANH or EXP with `table` > {TANH_INTEGER_BITS} (EXP where there is "
            f"training: > {INVERSE_ROOT}), `stochastic` where there is no training. "
            "UNAVAILABLE: `wide` "
            "where there are no 16-bit modes, TABLE where there are no tables, EXP or `exponent` "
            "where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.DEPTHWISE,
        fields=(
            _BUFFER,
            Field(name="taps", width=20, doc="first unified-buffer line of the weights"),
            _DESTINATION,
            _BLOCKS_OF_CHANNELS,
            _PARAMETER,
            Field(name="function", width=2, doc="NONE, RELU or RELU6", default=0, values=Function),
            _ROUNDING,
            _ZERO_POINT,
            _CEILING,
            _FILL,
            *_registers("buffer", "destination"),
        ),
        checks=(
            Fault.UNAVAILABLE,
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
        ),
        summary="Convolves each channel of a feature map with a kernel of its own.",
        semantics=(
            "The window is that of Set_Config_Window; T = kernel_height * kernel_width. For b = "
            "0 .. `blocks` - 1, for each window (p, q) and each channel c of C: s = the sum over "
            "the taps of x * w, modulo 2^32. x is byte c of line `buffer` + b * H * `pitch` + y * "
            "`pitch` + x, or, outside the map, `fill`; w is byte c of line `taps` + b * T + i * "
            "kernel_width + j. The result is that of Activate with s, entry `parameter` + b, and "
            "`function` NONE, RELU or RELU6 (TABLE is ILLEGAL_FIELD); it goes to byte c of line "
            "`destination` + (b * OH + p) * OW + q; bytes beyond C become 0. BUFFER_RANGE looks at "
            "`buffer` with `blocks` * H * `pitch` lines, then `taps` with `blocks` * T, then "
            "`destination` with `blocks` * OH * OW. UNAVAILABLE where there are no depthwise "
            "lanes. One tap a cycle."
        ),
    ),
    Instruction(
        opcode=Opcode.POOL,
        fields=(
            _BUFFER,
            _DESTINATION,
            _BLOCKS_OF_CHANNELS,
            _PARAMETER,
            Field(name="reduction", width=2, doc="what is done with a window", values=Reduction),
            _ROUNDING,
            _ZERO_POINT,
            Field(name="floor", width=8, signed=True, doc="lower bound", default=-128),
            Field(name="ceiling", width=8, signed=True, doc="upper bound", default=127),
            *_registers("buffer", "destination"),
        ),
        checks=(Fault.WINDOW, Fault.BUFFER_RANGE, Fault.OVERLAP, Fault.PARAMETER_RANGE),
        summary="Reduces each window of a feature map to one pixel.",
        semantics=(
            "The window is that of Set_Config_Window, pixels and results lie as for Depthwise, "
            "taps outside the map do not count. MAX: s is the largest of the taps, -128 if none "
            "is inside. AVERAGE, SUM: s is their sum. s is requantised as in Activate, with entry "
            "`parameter`, for AVERAGE with entry `parameter` + t - 1, t being the taps inside (1 "
            "if there is none): entries for all counts serve windows at the edges. v = y + "
            "`zero_point`, clamped to [`floor`, `ceiling`]; where these cross, the result is "
            "`ceiling`. BUFFER_RANGE looks at `buffer` with `blocks` * H * `pitch` lines, then "
            "`destination` with `blocks` * OH * OW. Entries: for AVERAGE kernel_height * "
            "kernel_width, else one. One tap a cycle."
        ),
    ),
    Instruction(
        opcode=Opcode.VECTOR,
        fields=(
            Field(name="operation", width=2, doc="what is computed", values=Operation),
            Field(name="buffer", width=20, doc="first unified-buffer line of operand a"),
            Field(
                name="operand", width=20, doc="first unified-buffer line of operand b", default=0
            ),
            _DESTINATION,
            Field(name="rows", width=16, doc="vectors", minimum=1),
            _PARAMETER,
            Field(name="function", width=3, doc="activation function", default=0, values=Function),
            _ROUNDING,
            _ZERO_POINT,
            Field(
                name="table",
                width=4,
                doc="TABLE: its number; TANH, EXP: integer bits of the argument, or a reciprocal",
                default=0,
            ),
            _flag("wide_operands", "operands of int16"),
            _flag("wide", "results of int16"),
            _flag("accumulate", "add to what the destination holds"),
            *_registers("buffer", "operand", "destination"),
            Field(
                name="exponent",
                width=2,
                doc="exponent register 1 to 3 with the shift; 0: that of the entry",
                default=0,
            ),
        ),
        checks=(
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Computes with the elements of one or two operands.",
        semantics=(
            "For m = 0 .. `rows` - 1 and each byte c of C: a and b are byte c of lines `buffer` + "
            "m and `operand` + m; with `wide_operands` int16 with the low byte in line 2m, the "
            "high byte in line 2m + 1 of the operand. x1 = a - `zero_a`, x2 = b - `zero_b` (see "
            "Set_Config_Scale). COPY: s = x1, operand b is not read. ADD and SUBTRACT: s = f(x1, "
            "`multiplier_a`, `shift_a`) + or - f(x2, `multiplier_b`, `shift_b`), modulo 2^32, "
            "where h = (x * q + 2^(k-1)) >> k with k = 11 (int16: 16), and f = r = 0 ? h : (h + "
            "2^(r-1) - (h < 0)) >> r. MULTIPLY: s = x1 * x2. Then as Activate with s and entry "
            "`parameter` for all vectors: `function`, `rounding`, `zero_point`, `table`, `wide`, "
            "`accumulate`, `exponent` mean the same, `ceiling` is that of Set_Config_Scale. With "
            "`wide`, function NONE and `limit` > 0 the result is clamped to [-`limit`, `limit`] "
            "at last. The result goes to line `destination` + m, or lines + 2m and + 2m + 1 with "
            "`wide`; bytes beyond C become 0. BUFFER_RANGE looks at `buffer`, then (not for COPY) "
            "`operand`, then `destination`. OVERLAP does not count an operand that lies in "
            "exactly the lines of the destination: results may replace operands. ILLEGAL_FIELD as "
            "for Activate. UNAVAILABLE: `wide` or `wide_operands` where there are no 16-bit "
            "modes, TABLE where there are no tables, EXP or `exponent` where there is no "
            "training."
        ),
    ),
    Instruction(
        opcode=Opcode.MEASURE,
        fields=(
            Field(name="source", width=2, doc="what is measured", values=Source),
            Field(name="exponent", width=3, doc="exponent register that is set, 1 to 7", minimum=1),
            Field(
                name="accumulator",
                width=16,
                doc="ACCUMULATORS: first accumulator row",
                default=0,
            ),
            Field(name="buffer", width=20, doc="LINES: first unified-buffer line", default=0),
            Field(name="rows", width=16, doc="vectors", default=1, minimum=1),
            Field(name="bits", width=5, doc="bits of a magnitude afterwards", default=7),
            Field(name="first", width=3, doc="exponent register that is added", default=0),
            Field(name="second", width=3, doc="exponent register that is added, too", default=0),
            Field(name="third", width=3, doc="exponent register that is subtracted", default=0),
            Field(name="value", width=8, signed=True, doc="constant", default=0),
            *_registers("accumulator", "buffer"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE, Fault.BUFFER_RANGE),
        summary="Sets an exponent register from the largest magnitude, or from other registers.",
        semantics=(
            f"The activation unit has {EXPONENT_REGISTERS} exponent registers E[0] to "
            f"E[{EXPONENT_REGISTERS - 1}] of 8 bits, two's complement; E[0] is always zero, and "
            "all are zero at the start of a program. e = E[`first`] + E[`second`] - E[`third`] + "
            "`value`, modulo 2^8. NONE: E[`exponent`] = e. ACCUMULATORS and LINES: E[`exponent`] = "
            "the larger of e and b - `bits`; b is the smallest number from 0 on for which all s "
            "lie in [-2^b, 2^b - 1]. s are the C sums of each of the `rows` accumulator rows from "
            "`accumulator` on, or the C int16 values of each of the `rows` pairs of lines from "
            "`buffer` on: low bytes in line `buffer` + 2m, high bytes in the next. "
            "ACCUMULATOR_RANGE and BUFFER_RANGE look at what `source` names only; for NONE there "
            "is neither, and `rows` is ignored, but for its minimum. UNAVAILABLE where there is "
            "no training."
        ),
    ),
    Instruction(
        opcode=Opcode.TRANSPOSE,
        fields=(
            _BUFFER,
            _DESTINATION,
            Field(name="count", width=12, doc="tiles", minimum=1),
            Field(name="step", width=16, doc="lines from one tile to the next at the source"),
            *_registers("buffer", "destination"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.OVERLAP),
        summary="Transposes tiles of lines.",
        semantics=(
            "For t = 0 .. `count` - 1, i and j = 0 .. C - 1 (R = C wherever there is this "
            "instruction): byte j of line `destination` + t * C + i becomes byte i of line "
            "`buffer` + t * `step` + j. Lines read, and looked at by BUFFER_RANGE and then "
            "OVERLAP: `buffer` to `buffer` + (`count` - 1) * `step` + C - 1, those between tiles "
            "included; lines written: `count` * C, looked at by BUFFER_RANGE second. UNAVAILABLE "
            "where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.RANDOM,
        fields=(
            _DESTINATION,
            Field(name="rows", width=16, doc="lines", minimum=1),
            Field(name="seed", width=31, doc="chooses a sequence", default=0),
            Field(name="counter", width=32, doc="chooses a sequence, too", default=0),
            *_registers("destination", "counter"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        summary="Fills lines with random bytes.",
        semantics=(
            f"Generator g serves the columns from {RANDOM_LANES} * g on, {RANDOM_LANES} of them or "
            "as many as are left. Its state x has 64 bits; at the start x = (2^63 + 2^32 * `seed` "
            f"+ `counter`) XOR (g * 0x{RANDOM_GROUP:X} modulo 2^63). A step: x ^= x << 13, x ^= x "
            ">> 7, x ^= x << 17, modulo 2^64 (Marsaglia's xorshift64). After "
            f"{RANDOM_WARM_UP} steps, for m = 0 .. `rows` - 1: a step; then byte "
            f"{RANDOM_LANES} * g + j of line `destination` + m becomes x[j] XOR (x[j + 1] AND "
            "x[j + 2]), x[i] being bits 8i + 7 to 8i of x and i modulo 8. Bytes beyond C become "
            "0. UNAVAILABLE where there is no training."
        ),
    ),
)
"""Instructions that every configuration knows."""

_ROWS_OF_LINKS = Field(name="rows", width=16, doc="lines or accumulator rows", minimum=1)

_SIDE = Field(name="side", width=1, doc="the neighbour", values=Side)

LINK_INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.SEND,
        fields=(
            _SIDE,
            _flag("sums", "1: accumulator rows; 0: lines of the unified buffer"),
            Field(name="buffer", width=20, doc="lines: the first one", default=0),
            Field(name="accumulator", width=16, doc="sums: first accumulator row", default=0),
            _ROWS_OF_LINKS,
            *_registers("buffer", "accumulator"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE),
        summary="Sends lines or sums to a neighbour.",
        semantics=(
            "See Links. For m = 0 .. `rows` - 1 line `buffer` + m, or with `sums` accumulator row "
            "`accumulator` + m, goes to the neighbour on that `side`. It completes when the last "
            "one has left. BUFFER_RANGE is for lines only, ACCUMULATOR_RANGE for sums only."
        ),
    ),
    Instruction(
        opcode=Opcode.RECEIVE,
        fields=(_SIDE, _BUFFER, _ROWS_OF_LINKS, *_registers("buffer")),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        summary="Takes lines that a neighbour sends.",
        semantics=(
            "For m = 0 .. `rows` - 1 line `buffer` + m becomes the next line that the neighbour on "
            "that `side` sends here. LINK_KIND where that is a row of sums."
        ),
    ),
    Instruction(
        opcode=Opcode.REDUCE,
        fields=(
            _SIDE,
            _ACCUMULATOR,
            _ROWS_OF_LINKS,
            Field(name="accumulate", width=1, doc="1: add; 0: overwrite", default=1),
            *_registers("accumulator"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE),
        summary="Adds sums that a neighbour sends to accumulator rows.",
        semantics=(
            "For m = 0 .. `rows` - 1 the next row of sums that the neighbour on that `side` sends "
            "here is added to accumulator row `accumulator` + m, modulo 2^32, or replaces it with "
            "`accumulate` = 0. LINK_KIND where it is a line."
        ),
    ),
    Instruction(
        opcode=Opcode.BARRIER,
        checks=(Fault.UNAVAILABLE,),
        summary="Waits for all cores of the pod.",
        semantics=(
            "The next instruction starts when every core of the pod has come to its Barrier of the "
            "same number, counted from the start of the program, and completed all instructions "
            "before it."
        ),
    ),
)
"""Instructions of a core with links. A configuration without answers their opcodes, whatever the
fields hold, with UNAVAILABLE."""
LINK_OPCODES = frozenset(entry.opcode for entry in LINK_INSTRUCTIONS)


def instructions_of(*, links: bool) -> tuple[Instruction, ...]:
    """The instructions that a core knows; without links they end with INSTRUCTIONS."""
    return (*INSTRUCTIONS, *LINK_INSTRUCTIONS) if links else INSTRUCTIONS


BY_OPCODE: Mapping[Opcode, Instruction] = {
    entry.opcode: entry for entry in (*INSTRUCTIONS, *LINK_INSTRUCTIONS)
}
BY_MNEMONIC: Mapping[str, Instruction] = {entry.mnemonic: entry for entry in BY_OPCODE.values()}


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
