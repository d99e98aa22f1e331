# SPDX-License-Identifier: Apache-2.0
"""Commands of the sequencer to the units: decoded instructions and the regions they occupy."""

from amaranth.hdl import Value, signed
from amaranth.lib import data, enum
from amaranth.utils import bits_for, ceil_log2

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    DEPTHWISE_TAPS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Instruction,
    Opcode,
    Operation,
)
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.walker import Level, Position, Walk

TAG_BITS = BY_OPCODE[Opcode.DEBUG_TAG].field("tag").width
PC_BITS = 28
"""Bits of a program counter, for the largest host window: 4 GiB with 16 bytes an instruction."""
HOST_OFFSET_BITS = 33
"""Bits of a byte offset in the host window, and of the end of the window."""
TILE_BITS = 25
TILE_COUNT_BITS = 40
"""Bits of an instruction's count of tiles, which may exceed the tiles in weight memory."""
ADDRESS_BITS = 21
"""Bits of the number of a buffer line, or of the end of a region, in an instruction.

After the range check, `address_bits` bits are enough for a machine with fewer lines."""
ACCUMULATOR_BITS = 17
"""Bits of the number of an accumulator row, or of the end of a region, in an instruction.

After the range check, `row_bits` bits are enough for a machine with fewer rows."""
TABLE_BITS = 5
"""Bits of the number of a table, and of the end of the tables."""


class InstructionLayout(data.FlexibleLayout):
    """A layout that has the fields of one instruction at their bits in the instruction word."""

    def __init__(self, opcode: Opcode):
        entry: Instruction = BY_OPCODE[opcode]
        super().__init__(
            128,
            {
                field.name: data.Field(
                    signed(field.width) if field.signed else field.width, entry.offset(field.name)
                )
                for field in entry.fields
            },
        )


_WINDOW = InstructionLayout(Opcode.SET_CONFIG_WINDOW)


def line_bits(config: Config) -> int:
    """Return the width in bits of a buffer line's number."""
    return ceil_log2(config.buffer_lines)


def row_bits(config: Config) -> int:
    """Return the width in bits of an accumulator row's number, and of the end of the rows."""
    return bits_for(config.accumulator_rows)


def parameter_space(config: Config) -> int:
    """Return the address of the first parameter entry in the address space of the interlocks.

    This space has buffer lines, then the parameter entries, then the tables. Each part begins at a
    multiple of a power of two. So the low bits of an address are the number of its line or entry.
    """
    room = 1 << bits_for(config.parameter_entries)
    return -(-config.buffer_lines // room) * room


def table_space(config: Config) -> int:
    """Return the address of the first table in the address space of the interlocks."""
    behind = parameter_space(config) + (1 << bits_for(config.parameter_entries))
    room = 1 << TABLE_BITS
    return -(-behind // room) * room


def address_bits(config: Config) -> int:
    """Return the bits of an address, or of an end, in the address space of the interlocks."""
    return bits_for(table_space(config) + (1 << TABLE_BITS) - 1)


def _extent(config: Config) -> int:
    """Return the largest height, or width, of a feature map in the buffer."""
    return min((1 << _WINDOW["height"].width) - 1, config.buffer_lines)


def height_bits(config: Config) -> int:
    """Return the width in bits of the number of rows of a feature map."""
    return bits_for(_extent(config))


def width_bits(config: Config) -> int:
    """Return the width in bits of the number of pixels, or bytes, of a row of a feature map."""
    return bits_for(config.rows * _extent(config))


def _position(config: Config) -> Position:
    """Return the layout of a place in a feature map.

    A coordinate may be negative, as a window may begin before the map. A step from the map leads at
    most into the upper half of its positive numbers, which is beyond any map.
    """
    return Position(
        line_bits=line_bits(config),
        y_bits=2 + max(height_bits(config), _WINDOW["top"].width - 1, _WINDOW["stride_y"].width),
        x_bits=2 + max(width_bits(config), _WINDOW["left"].width - 1, _WINDOW["stride_x"].width),
    )


def matrix_walk(config: Config) -> Walk:
    """Return the layout of the walk of MatrixMultiply and Convolve.

    Its counts suffice for results that fit into the accumulators. Levels have their names from
    Convolve. MatrixMultiply has its vectors in `oy`, and its tiles along K in `kx`. The halves of
    int16 vectors are in `ox`, and the halves of int16 weights in `block`.
    """
    line, rows = line_bits(config), row_bits(config)
    blocks = InstructionLayout(Opcode.CONVOLVE)["k_tiles"].width
    stride = _WINDOW["stride_x"].width
    step_x = max(stride, bits_for(config.rows))  # with packed channels a step counts bytes
    dilation, kernel = _WINDOW["dilation_x"].width, _WINDOW["kernel_width"].width
    windows = min(_WINDOW["out_width"].width, rows)
    return Walk(
        (
            Level(name="ox", count_bits=windows, moves={"line": stride, "x": step_x}),
            Level(name="oy", count_bits=rows, moves={"line": line, "y": stride}),
            Level(name="block", count_bits=blocks, moves={"line": line}),
            Level(
                name="kx",
                count_bits=max(kernel, min(blocks, bits_for(config.buffer_lines))),
                moves={"line": line, "x": dilation},
            ),
            Level(name="ky", count_bits=kernel, moves={"line": line, "y": dilation}),
            Level(name="n", count_bits=windows),
        ),
        _position(config),
    )


def vector_walk(config: Config) -> Walk:
    """Return the layout of the walk of the activation unit's instructions.

    Its counts suffice for results that fit into the buffer. Levels have their names from Depthwise.
    Vector has its vectors in `ox`, or in `kx` as a partition. Halves of int16 operands are in `kx`.
    """
    line, kernel = line_bits(config), _WINDOW["kernel_width"].width
    stride, dilation = _WINDOW["stride_x"].width, _WINDOW["dilation_x"].width
    vectors = bits_for(min((1 << 16) - 1, config.buffer_lines))
    windows = min(_WINDOW["out_width"].width, vectors)
    taps = max(kernel, vectors) if config.attention else kernel
    return Walk(
        (
            Level(name="kx", count_bits=taps, moves={"line": dilation, "x": dilation}),
            Level(name="ky", count_bits=kernel, moves={"line": line, "y": dilation}),
            Level(name="ox", count_bits=vectors, moves={"line": stride, "x": stride}),
            Level(name="oy", count_bits=windows, moves={"line": line, "y": stride}),
            Level(name="block", count_bits=windows, moves={"line": line}),
        ),
        _position(config),
    )


def most_taps(config: Config) -> int:
    """Return the largest number of taps of Depthwise, or of lines of a transposed tile."""
    return max(DEPTHWISE_TAPS, config.cols * config.training)


class Kind(enum.Enum, shape=2):
    """A destination of the host reader's data."""

    BUFFER = 0
    PARAMETERS = 1
    TABLE = 2


def host_beat_bits(config: Config) -> int:
    """Return the width in bits of the number of beats of a run in host memory.

    A run is never longer than the largest on-chip memory.
    """
    lines = config.buffer_lines * max(config.input_pitch, config.output_pitch)
    parameters = config.parameter_entries * PARAMETER_PLANES * config.output_pitch
    return bits_for(max(lines, parameters, TABLE_BYTES) // config.host_bus_bytes)


class Transfer(data.StructLayout):
    """A matrix in memory as runs of contiguous beats.

    | field     | meaning |
    |---|---|
    | `address` | byte address of the first run |
    | `beats`   | beats of a run |
    | `rows`    | runs of a block |
    | `stride`  | bytes from run to run in a block |
    | `blocks`  | number of blocks |

    Run m of block b starts at `address` + m * `stride` + b * pitch, where the pitch is the number
    of bytes of a line in memory. A contiguous transfer is a single run.
    """

    def __init__(
        self, *, address_bits: int, beat_bits: int, row_bits: int = 16, block_bits: int = 12
    ):
        super().__init__(
            {
                "address": address_bits,
                "beats": beat_bits,
                "rows": row_bits,
                "stride": 24,
                "blocks": block_bits,
            }
        )


class HostTransfer(Transfer):
    """A transfer in host memory; its `address` is an offset in the host window."""

    def __init__(self, *, config: Config):
        lines = bits_for(config.buffer_lines)
        super().__init__(
            address_bits=HOST_OFFSET_BITS,
            beat_bits=host_beat_bits(config),
            row_bits=min(16, lines),
            block_bits=min(12, lines),
        )


class WeightTransfer(data.StructLayout):
    """A run of contiguous `beats` from byte `address` of the weight window on.

    Its fields are wide enough for all tiles that an instruction can name.
    """

    def __init__(self, *, config: Config):
        tiles = (1 << InstructionLayout(Opcode.READ_WEIGHTS)["count"].width) - 1
        beats = tiles * config.tile_bytes // config.weight_bus_bytes
        address = bits_for((1 << TILE_BITS - 1) * config.tile_bytes - 1)
        super().__init__({"address": min(config.address_bits, address), "beats": bits_for(beats)})


class Tail(data.StructLayout):
    """The lines of a copy that have only `bytes` bytes.

    With `every` = 0 these are all lines from `line` on, else the last line of each `every`.
    """

    def __init__(self, *, config: Config):
        lines = bits_for(config.buffer_lines)
        super().__init__(
            {"line": lines, "every": min(12, lines), "bytes": bits_for(config.line_bytes)}
        )


class HostReadEntry(data.StructLayout):
    """A read from host memory that has been issued and is not complete.

    | field         | meaning |
    |---|---|
    | `pc`          | program counter of the instruction |
    | `kind`        | the destination; it determines how beats become lines |
    | `destination` | the first on-chip address that is filled |
    | `last`        | the last on-chip address that is filled |
    | `tail`        | the lines that have fewer bytes |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "pc": PC_BITS,
                "kind": Kind,
                "destination": address_bits(config),
                "last": address_bits(config),
                "tail": Tail(config=config),
            }
        )


class HostWriteCommand(data.StructLayout):
    """A write of the lines in the region `buffer` to host memory."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "pc": PC_BITS,
                "transfer": HostTransfer(config=config),
                "buffer": Region(address_bits(config)),
                "tail": Tail(config=config),
            }
        )


class WeightCommand(data.StructLayout):
    """A Read_Weights, or the weights of a MatrixMultiply if `from_buffer`.

    With `from_buffer` the transfer names tiles: `address` is a line, and `beats` is the number of
    tiles. A `wide` tile counts as two.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "pc": PC_BITS,
                "transfer": WeightTransfer(config=config),
                **({"from_buffer": 1, "wide": 1} if config.training else {}),
            }
        )


class MatrixCommand(data.StructLayout):
    """A MatrixMultiply or Convolve.

    | field                          | meaning |
    |---|---|
    | `walk`                         | walk over the lines that are read |
    | `accumulator`                  | the first row of the accumulators |
    | `accumulate`                   | results are added to the old content of the rows |
    | `wide_vectors`, `wide_weights` | vectors and weights of int16 |
    | `sequential`                   | lines are read in ascending order, last in the last `n` |
    | `bounded`                      | vectors outside the map consist of `fill` |
    | `height`                       | rows of the feature map |
    | `width`                        | columns of the feature map, in bytes if `packed` |
    | `fill`                         | the byte outside the map |
    | `packed`                       | channels are packed: x counts bytes |
    | `byte`                         | byte of its first line with which the first vector of a row
                                       begins, if `packed` |
    | `byte_step`                    | bytes from one vector to the next, if `packed` |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "walk": matrix_walk(config),
                "accumulator": row_bits(config),
                "accumulate": 1,
                "wide_vectors": 1,
                "wide_weights": 1,
                "sequential": 1,
                "bounded": 1,
                "height": height_bits(config),
                "width": width_bits(config),
                "fill": signed(8),
                "packed": 1,
                "byte": range(config.rows),
                "byte_step": range(config.rows + 1),
            }
        )


class Source(enum.Enum, shape=2):
    """The source of the numbers that an instruction of the activation unit uses."""

    ACCUMULATORS = 0
    DEPTHWISE = 1
    POOL = 2
    VECTOR = 3


OTHER = 7
"""The code that instructions without requantising have as their `function`. The field `table` of
such an instruction holds its kind, a value of the enumeration Other.
"""


class Other(enum.IntEnum):
    """The kind of an instruction with the function OTHER."""

    TRANSPOSE = 0
    RANDOM = 1
    MEASURE = 2
    SUM = 3
    """A Measure without a source, which only computes with exponent registers."""


def is_gate(function: Value) -> Value:
    """Return whether a function belongs to GATES, the functions of the gate lanes."""
    return function[2] & ~(function[1] & function[0])


def measures(other: Value) -> Value:
    """Return whether an instruction of kind Other sets an exponent register, and writes no line."""
    return other[1]


class MeasureLayout(data.StructLayout):
    """A layout that has the fields of a Measure for exponent registers."""

    def __init__(self) -> None:
        super().__init__(
            {"exponent": 3, "bits": 5, "first": 3, "second": 3, "third": 3, "value": 8}
        )


class ScaleLayout(data.StructLayout):
    """A layout that has the operands of Vector, as Set_Config_Scale describes them."""

    def __init__(self) -> None:
        super().__init__(
            {
                "multiplier_a": 31,
                "shift_a": 5,
                "multiplier_b": 31,
                "shift_b": 5,
                "zero_a": signed(8),
                "zero_b": signed(8),
            }
        )


_OF_TRAINING = "exponent", "stochastic", "quotient", "paired"
"""Fields of an ActivateCommand that only machines with training have."""


def is_curve(command: data.View) -> Value:
    """Return whether the function of an ActivateCommand is a curve, on machines with curves."""
    return (command.function == Function.TABLE) & command.wide


class ActivateCommand(data.StructLayout):
    """An Activate, Depthwise, Pool or Vector.

    | field             | meaning |
    |---|---|
    | `source`          | source of the numbers |
    | `accumulator`     | first accumulator row, if rows are the source |
    | `walk`            | walk over taps of operand a; for ACCUMULATORS a place for each vector |
    | `height`, `width` | rows and columns of the feature map |
    | `operand`         | first line of the `taps` lines of a block's weights, or of operand b |
    | `fill`            | the byte outside the map |
    | `operation`       | operation of Vector |
    | `maximum`         | Pool takes the maximum |
    | `wide_operands`   | operands are int16 |
    | `scale`           | the operands of Vector |
    | `destination`     | first line of the results |
    | `wide`            | results are int16 |
    | `accumulate`      | results are added to the contents of the destination |
    | `parameter`       | parameter entry of the first block |
    | `by_block`        | each block has the entry after the entry of the block before |
    | `by_taps`         | a window with t taps inside the map has entry `parameter` + t - 1 |
    | `function`        | function of the result, or OTHER |
    | `rounding`, `zero_point` | rounding and zero point of the results |
    | `low`, `high`     | results are clamped to these |
    | `table`           | number of the table, or an Other |
    | `exponent`        | exponent register that replaces the shifts of the entry, 0 for none |
    | `stochastic`      | with `rounding` SINGLE: random numbers are added in place of halves |
    | `gathers`         | with COPY: sums come from the table of int32 from `table` on |
    | `relative`        | with `gathers`: line `operand` is subtracted from all vectors |
    | `partition`       | with `relative`: the sum makes parameter entry `parameter`, and no line |
    | `quotient`        | with MULTIPLY: the factor is a power of two that divides by operand a |
    | `paired`          | both lines of each int16 operand and addend are read in one cycle |

    With function OTHER and source DEPTHWISE, a block has two phases, and only the first one may
    read lines. There a TRANSPOSE reads the `taps` lines of a tile from `operand` on. After the tile
    the walk's step from block to block is added to `operand`. Other instructions read no lines.

    A MEASURE walks as Vector or Activate does, with its MeasureLayout in `multiplier_b`. A RANDOM
    has its counter in `multiplier_b` and `shift_b`, and its seed in `multiplier_a`.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "source": Source,
                "accumulator": row_bits(config),
                "walk": vector_walk(config),
                "height": height_bits(config),
                "width": width_bits(config),
                "operand": line_bits(config),
                "taps": range(most_taps(config) + 1),
                "fill": signed(8),
                "operation": Operation,
                "maximum": 1,
                "wide_operands": 1,
                "scale": ScaleLayout(),
                "destination": address_bits(config),
                "wide": 1,
                "accumulate": 1,
                "parameter": bits_for(config.parameter_entries),
                "by_block": 1,
                "by_taps": 1,
                "function": 3,
                "rounding": 1,
                "zero_point": signed(8),
                "low": signed(16),
                "high": signed(16),
                "table": 4,
                **(dict(zip(_OF_TRAINING, (3, 1, 1, 1), strict=True)) if config.training else {}),
                **({"gathers": 1, "relative": 1, "partition": 1} if config.attention else {}),
            }
        )
