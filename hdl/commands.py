# SPDX-License-Identifier: Apache-2.0
"""What the sequencer hands to the units: decoded instructions and the regions they occupy."""

from amaranth.hdl import Cat, Value, signed
from amaranth.lib import data, enum
from amaranth.utils import bits_for, ceil_log2

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    DEPTHWISE_TAPS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Instruction,
    Opcode,
    Operation,
)
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.walker import Level, Position, Walk

TAG_BITS = BY_OPCODE[Opcode.DEBUG_TAG].field("tag").width
PC_BITS = 28
"""Instructions of the largest host window: 4 GiB of 16 bytes."""
HOST_OFFSET_BITS = 33
"""Offsets in the host window, and one past its end."""
TILE_BITS = 25
TILE_COUNT_BITS = 40
"""Tiles that an instruction consumes, before it is known whether there are as many."""
ADDRESS_BITS = 21
"""Buffer lines as instructions name them, and their end, before it is known whether there are as
many. What has passed the checks takes no more than `address_bits`."""
ACCUMULATOR_BITS = 17
"""Accumulator rows, likewise; behind the checks `row_bits`."""
TABLE_BITS = 5
"""Numbers of tables, and their end."""


class InstructionLayout(data.FlexibleLayout):
    """The fields of one instruction at their bits in the instruction word."""

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
    """Bits of a buffer line."""
    return ceil_log2(config.buffer_lines)


def row_bits(config: Config) -> int:
    """Bits of an accumulator row, and of one past the last."""
    return bits_for(config.accumulator_rows)


def parameter_space(config: Config) -> int:
    """The interlocks see buffer lines from address 0, parameter entries from here, and tables from
    `table_space`. Numbers and ends fit into the bits that are zero in both."""
    room = 1 << bits_for(config.parameter_entries)
    return -(-config.buffer_lines // room) * room


def table_space(config: Config) -> int:
    """See `parameter_space`."""
    behind = parameter_space(config) + (1 << bits_for(config.parameter_entries))
    room = 1 << TABLE_BITS
    return -(-behind // room) * room


def address_bits(config: Config) -> int:
    """Bits of an address on the chip as the interlocks see it, and of one past an end."""
    return bits_for(table_space(config) + (1 << TABLE_BITS) - 1)


def _extent(config: Config) -> int:
    """The most rows or pixels of a row that a feature map in the buffer has."""
    return min((1 << _WINDOW["height"].width) - 1, config.buffer_lines)


def height_bits(config: Config) -> int:
    """Bits of the rows of a feature map."""
    return bits_for(_extent(config))


def width_bits(config: Config) -> int:
    """Bits of the pixels, or bytes, of a row of a feature map."""
    return bits_for(config.rows * _extent(config))


def _position(config: Config) -> Position:
    """A place in a feature map in the buffer: its coordinates begin where a window may."""
    return Position(
        line_bits=line_bits(config),
        y_bits=2 + max(height_bits(config), _WINDOW["top"].width - 1),
        x_bits=2 + max(width_bits(config), _WINDOW["left"].width - 1),
    )


def matrix_walk(config: Config) -> Walk:
    """The walk of MatrixMultiply and Convolve, whose results fit into the accumulators.

    MatrixMultiply has its vectors as rows (`oy`), its tiles along K as columns of the kernel
    (`kx`), the halves of int16 vectors as `ox` and those of int16 weights as `block`.
    """
    line, rows = line_bits(config), row_bits(config)
    blocks = InstructionLayout(Opcode.CONVOLVE)["k_tiles"].width
    stride = _WINDOW["stride_x"].width
    step_x = max(stride, bits_for(config.rows))  # of packed channels in bytes
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
    """The walk of the activation unit's instructions, whose results fit into the buffer.

    Vector has its vectors as columns (`ox`), and the halves of an int16 operand as `kx`.
    """
    line = line_bits(config)
    stride, dilation = _WINDOW["stride_x"].width, _WINDOW["dilation_x"].width
    kernel = _WINDOW["kernel_width"].width
    vectors = bits_for(min((1 << 16) - 1, config.buffer_lines))
    windows = min(_WINDOW["out_width"].width, vectors)
    return Walk(
        (
            Level(name="kx", count_bits=kernel, moves={"line": dilation, "x": dilation}),
            Level(name="ky", count_bits=kernel, moves={"line": line, "y": dilation}),
            Level(name="ox", count_bits=vectors, moves={"line": stride, "x": stride}),
            Level(name="oy", count_bits=windows, moves={"line": line, "y": stride}),
            Level(name="block", count_bits=windows, moves={"line": line}),
        ),
        _position(config),
    )


def most_taps(config: Config) -> int:
    """Taps of a kernel of Depthwise, or lines of a tile that is transposed."""
    return max(DEPTHWISE_TAPS, config.cols * config.training)


class Kind(enum.Enum, shape=2):
    """Where the host reader's data goes."""

    BUFFER = 0
    PARAMETERS = 1
    TABLE = 2


def host_beat_bits(config: Config) -> int:
    """Bits of the number of beats of a run in host memory, which all end on the chip."""
    lines = config.buffer_lines * max(config.input_pitch, config.output_pitch)
    parameters = config.parameter_entries * PARAMETER_PLANES * config.output_pitch
    return bits_for(max(lines, parameters, TABLE_BYTES) // config.host_bus_bytes)


class Transfer(data.StructLayout):
    """A matrix in memory as runs of contiguous beats.

    `runs` runs of `beats` beats, `rows` to a block: run m of block b starts at
    `address` + m * `stride` + b * pitch. One run is the whole transfer when it is contiguous.
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
    """A transfer at an offset in the host window."""

    def __init__(self, *, config: Config):
        lines = bits_for(config.buffer_lines)
        super().__init__(
            address_bits=HOST_OFFSET_BITS,
            beat_bits=host_beat_bits(config),
            row_bits=min(16, lines),
            block_bits=min(12, lines),
        )


class WeightTransfer(data.StructLayout):
    """Contiguous `beats` from byte `address` of the weight window on: as many tiles as an
    instruction can name."""

    def __init__(self, *, config: Config):
        tiles = (1 << InstructionLayout(Opcode.READ_WEIGHTS)["count"].width) - 1
        beats = tiles * config.tile_bytes // config.weight_bus_bytes
        address = bits_for((1 << TILE_BITS - 1) * config.tile_bytes - 1)
        super().__init__({"address": min(config.address_bits, address), "beats": bits_for(beats)})


class Tail(data.StructLayout):
    """Which lines of a copy have only `bytes` bytes: all from `line` on, or, with `every`, the last
    of each `every` lines."""

    def __init__(self, *, config: Config):
        lines = bits_for(config.buffer_lines)
        super().__init__(
            {"line": lines, "every": min(12, lines), "bytes": bits_for(config.line_bytes)}
        )


class HostReadEntry(data.StructLayout):
    """A read from host memory under way: its data fills the on-chip addresses from `destination` to
    `last`; `kind` and `tail` tell how beats become lines."""

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
    """A write to host memory: lines `buffer` to `end` - 1."""

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
    """A Read_Weights or, `from_buffer`, the weights of a MatrixMultiply: as many tiles as the
    transfer has beats, `wide` ones counted twice, from its address, a line, on."""

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

    `bounded`: vectors outside `height` rows and `width` columns are `fill`. `packed`: x and `width`
    count bytes, and a vector begins `byte` bytes behind the line before that of its position;
    `byte_step` bytes lie between it and the next. `sequential`: lines are read in ascending order,
    for the last time with the last `n`.
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


ROW_COUNT_BITS = 16
"""Lines or rows of an instruction of the links."""


def place_bits(config: Config) -> int:
    """Bits of a buffer line or an accumulator row, and of one past the last."""
    return bits_for(max(config.buffer_lines, config.accumulator_rows))


def link_address_bits(config: Config) -> int:
    """Bits of a `link_address`."""
    return place_bits(config) + 1


def link_address(place: Value, sums: Value, config: Config) -> Value:
    """A line or a row as the interlocks of the links see it: its place, and above it whether it is
    a row."""
    return Cat(place[: place_bits(config)], sums)


class LinkCommand(data.StructLayout):
    """`rows` lines or, with `sums`, accumulator rows from `place` on; what comes is added to them
    where an instruction `adds`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {"sums": 1, "adds": 1, "place": place_bits(config), "rows": ROW_COUNT_BITS}
        )


class LinkRow(data.StructLayout):
    """One line or row of a LinkCommand; the `last` one of its instruction."""

    def __init__(self, *, config: Config):
        super().__init__({"sums": 1, "adds": 1, "last": 1, "place": place_bits(config)})


class Source(enum.Enum, shape=2):
    """Where an instruction of the activation unit takes its numbers from."""

    ACCUMULATORS = 0
    DEPTHWISE = 1
    POOL = 2
    VECTOR = 3


OTHER = 7
"""The `function` of instructions that do not requantise; `table` tells which: an Other."""


class Other(enum.IntEnum):
    """What an instruction with function OTHER does."""

    TRANSPOSE = 0
    RANDOM = 1
    MEASURE = 2
    SUM = 3
    """Measure without a source: exponents alone."""


def is_gate(function: Value) -> Value:
    """Whether a function is one of the gate lanes: those of GATES."""
    return function[2] & ~(function[1] & function[0])


def measures(other: Value) -> Value:
    """Whether an Other sets an exponent register, and writes no line."""
    return other[1]


class MeasureLayout(data.StructLayout):
    """What a Measure says of exponent registers."""

    def __init__(self) -> None:
        super().__init__(
            {
                "exponent": 3,
                "bits": 5,
                "first": 3,
                "second": 3,
                "third": 3,
                "value": 8,
            }
        )


class ScaleLayout(data.StructLayout):
    """The operands of Vector, as Set_Config_Scale describes them."""

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


class ActivateCommand(data.StructLayout):
    """An Activate, Depthwise, Pool or Vector.

    The walk goes over the taps of operand a (none for ACCUMULATORS: one step for each vector);
    `operand` is the first of the `taps` lines of a block's weights, or of operand b. Entry
    `parameter` serves the first block, `by_block` the next one each following block, and `by_taps`
    the entry `parameter` + t - 1 a window of t taps inside the map. Results are clamped to `low`
    and `high`. `exponent`: the register whose shifts take the place of the entry's, if not 0.
    `stochastic`, with `rounding` SINGLE: random numbers are added in place of halves.
    `quotient`, with MULTIPLY: the factor is a power of two that divides by operand a.

    With function OTHER an instruction with source DEPTHWISE has two phases as well, for each block,
    and reads lines in the first alone: the `taps` lines of a tile from `operand` on (TRANSPOSE), to
    which the walk's step from block to block is added behind it; else none. A Measure of lines or
    rows walks over them as Vector or Activate. Its MeasureLayout lies in `multiplier_b`, the
    counter of a RANDOM there and in `shift_b`, its seed in `multiplier_a`.
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
                **({"exponent": 3, "stochastic": 1, "quotient": 1} if config.training else {}),
            }
        )
