# SPDX-License-Identifier: Apache-2.0
"""What the sequencer hands to the units: decoded instructions and the regions they occupy."""

from amaranth.hdl import signed
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
from systola.hdl.parts.walker import ADDRESS_BITS, Level, Walk

TAG_BITS = BY_OPCODE[Opcode.DEBUG_TAG].field("tag").width
PC_BITS = 28
"""Instructions of the largest host window: 4 GiB of 16 bytes."""
HOST_OFFSET_BITS = 33
"""Offsets in the host window, and one past its end."""
PARAMETER_SPACE = 1 << 20
"""The interlocks see buffer lines from 0, parameter entries from here, tables from TABLE_SPACE."""
_ENTRY_BITS = 12
TABLE_SPACE = PARAMETER_SPACE + (1 << _ENTRY_BITS)
ACCUMULATOR_BITS = 17
"""Accumulator rows, and one past their end."""
TILE_BITS = 25
TILE_COUNT_BITS = 40
"""Tiles that an instruction consumes, before it is known whether there are as many."""
BOUND_BITS = 20
"""Extents of a feature map: rows, and pixels or bytes of a row."""

# Innermost first. MatrixMultiply has its vectors as rows (`oy`), its tiles along K as columns of
# the kernel (`kx`), the halves of int16 vectors as `ox` and those of int16 weights as `block`.
MATRIX_LEVELS = (
    Level(name="ox", count_bits=12, moves=("line", "x")),
    Level(name="oy", count_bits=16, moves=("line", "y")),
    Level(name="block", count_bits=12, moves=("line",)),
    Level(name="kx", count_bits=12, moves=("line", "x")),
    Level(name="ky", count_bits=8, moves=("line", "y")),
    Level(name="n", count_bits=12),
)
# Vector has its vectors as columns (`ox`), and the halves of an int16 operand as `kx`.
VECTOR_LEVELS = (
    Level(name="kx", count_bits=8, moves=("line", "x")),
    Level(name="ky", count_bits=8, moves=("line", "y")),
    Level(name="ox", count_bits=16, moves=("line", "x")),
    Level(name="oy", count_bits=12, moves=("line", "y")),
    Level(name="block", count_bits=12, moves=("line",)),
)


def low_bits(config: Config, width: int) -> int:
    """How many low bits of an address of `width` bits, ADDRESS_BITS or ACCUMULATOR_BITS, a machine
    needs, also one past its last; above them only the bit of PARAMETER_SPACE is ever set."""
    if width == ACCUMULATOR_BITS:
        return 1 + ceil_log2(config.accumulator_rows)
    return 1 + max(ceil_log2(config.buffer_lines), _ENTRY_BITS)


class Kind(enum.Enum, shape=2):
    """Where the host reader's data goes."""

    BUFFER = 0
    PARAMETERS = 1
    TABLE = 2


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

    def __init__(self, *, address_bits: int, beat_bits: int):
        super().__init__(
            {
                "address": address_bits,
                "beats": beat_bits,
                "rows": 16,
                "stride": 24,
                "blocks": 12,
            }
        )


class HostTransfer(Transfer):
    """A transfer at an offset in the host window."""

    def __init__(self, *, config: Config):
        super().__init__(address_bits=HOST_OFFSET_BITS, beat_bits=host_beat_bits(config))


class WeightTransfer(Transfer):
    """A transfer at an offset in the weight window: as many tiles as an instruction can name."""

    def __init__(self, *, config: Config):
        tiles = (1 << InstructionLayout(Opcode.READ_WEIGHTS)["count"].width) - 1
        beats = tiles * config.tile_bytes // config.weight_bus_bytes
        super().__init__(address_bits=config.address_bits, beat_bits=bits_for(beats))


class Tail(data.StructLayout):
    """Which lines of a copy have only `bytes` bytes: all from `line` on, or, with `every`, the last
    of each `every` lines."""

    def __init__(self) -> None:
        super().__init__({"line": ADDRESS_BITS, "every": 12, "bytes": 9})


class HostReadEntry(data.StructLayout):
    """A read from host memory under way: its data fills `lines` on-chip addresses from
    `destination` on; `kind` and `tail` tell how beats become lines."""

    def __init__(self) -> None:
        super().__init__(
            {
                "pc": PC_BITS,
                "kind": Kind,
                "destination": ADDRESS_BITS,
                "lines": ADDRESS_BITS,
                "tail": Tail(),
            }
        )


class HostWriteCommand(data.StructLayout):
    """A write to host memory: lines `buffer` to `end` - 1."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "pc": PC_BITS,
                "transfer": HostTransfer(config=config),
                "buffer": Region(ADDRESS_BITS),
                "tail": Tail(),
            }
        )


class WeightCommand(data.StructLayout):
    """A Read_Weights."""

    def __init__(self, *, config: Config):
        super().__init__({"pc": PC_BITS, "transfer": WeightTransfer(config=config)})


class MatrixCommand(data.StructLayout):
    """A MatrixMultiply or Convolve.

    `bounded`: vectors outside `height` rows and `width` columns are `fill`. `packed`: x and `width`
    count bytes, and a vector begins `byte` bytes behind the line before that of its position;
    `byte_step` bytes lie between it and the next. `sequential`: lines are read in ascending order,
    for the last time with the last `n`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "walk": Walk(MATRIX_LEVELS),
                "accumulator": ACCUMULATOR_BITS,
                "accumulate": 1,
                "wide_vectors": 1,
                "wide_weights": 1,
                "sequential": 1,
                "bounded": 1,
                "height": BOUND_BITS,
                "width": BOUND_BITS,
                "fill": signed(8),
                "packed": 1,
                "byte": 9,
                "byte_step": 9,
            }
        )


class Source(enum.Enum, shape=2):
    """Where an instruction of the activation unit takes its numbers from."""

    ACCUMULATORS = 0
    DEPTHWISE = 1
    POOL = 2
    VECTOR = 3


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
    and `high`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "source": Source,
                "accumulator": ACCUMULATOR_BITS,
                "walk": Walk(VECTOR_LEVELS),
                "height": BOUND_BITS,
                "width": BOUND_BITS,
                "operand": ADDRESS_BITS,
                "taps": range(DEPTHWISE_TAPS + 1),
                "fill": signed(8),
                "operation": Operation,
                "maximum": 1,
                "wide_operands": 1,
                "scale": ScaleLayout(),
                "destination": ADDRESS_BITS,
                "wide": 1,
                "accumulate": 1,
                "parameter": 12,
                "by_block": 1,
                "by_taps": 1,
                "function": 3,
                "rounding": 1,
                "zero_point": signed(8),
                "low": signed(16),
                "high": signed(16),
                "table": 4,
            }
        )
