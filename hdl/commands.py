# SPDX-License-Identifier: Apache-2.0
"""What the sequencer hands to the units: decoded instructions and the regions they occupy."""

from amaranth.hdl import signed
from amaranth.lib import data, enum

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, Instruction, Opcode
from systola.hdl.burst_planner import Transfer
from systola.hdl.in_flight import Region

PC_BITS = 28
"""Instructions of the largest host window: 4 GiB of 16 bytes."""
HOST_OFFSET_BITS = 33
"""Offsets in the host window, and one past its end."""
ADDRESS_BITS = 21
"""On-chip addresses, as the interlocks see them, and one past their end: buffer lines from 0,
parameter entries from PARAMETER_SPACE, tables from TABLE_SPACE."""
PARAMETER_SPACE = 1 << 20
TABLE_SPACE = PARAMETER_SPACE + (1 << 12)
ACCUMULATOR_BITS = 17
"""Accumulator rows, and one past their end."""
TILE_BITS = 25


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


class HostTransfer(Transfer):
    """A transfer at an offset in the host window."""

    def __init__(self) -> None:
        super().__init__(address_bits=HOST_OFFSET_BITS, beat_bits=30)


class WeightTransfer(Transfer):
    """A transfer at an offset in the weight window."""

    def __init__(self, *, config: Config):
        super().__init__(address_bits=config.address_bits, beat_bits=40)


class HostReadEntry(data.StructLayout):
    """A read from host memory under way: what it fills, and how its beats become lines."""

    def __init__(self) -> None:
        super().__init__(
            {
                "pc": PC_BITS,
                "kind": Kind,
                "destination": Region(ADDRESS_BITS),
                "host": Region(HOST_OFFSET_BITS),
                "tail_line": ADDRESS_BITS,
                "tail": 9,
            }
        )


class HostWriteCommand(data.StructLayout):
    """A write to host memory: lines `buffer` to `end` - 1, the last block from `tail_line` on."""

    def __init__(self) -> None:
        super().__init__(
            {
                "pc": PC_BITS,
                "transfer": HostTransfer(),
                "buffer": Region(ADDRESS_BITS),
                "tail_line": ADDRESS_BITS,
                "tail": 9,
            }
        )


class HostWriteEntry(data.StructLayout):
    """A write to host memory under way."""

    def __init__(self) -> None:
        super().__init__({"buffer": Region(ADDRESS_BITS), "host": Region(HOST_OFFSET_BITS)})


class WeightCommand(data.StructLayout):
    """A Read_Weights."""

    def __init__(self, *, config: Config):
        super().__init__({"pc": PC_BITS, "transfer": WeightTransfer(config=config)})


class MatrixCommand(data.StructLayout):
    """A MatrixMultiply."""

    def __init__(self) -> None:
        super().__init__(
            {
                "buffer": ADDRESS_BITS,
                "accumulator": ACCUMULATOR_BITS,
                "rows": 16,
                "k_tiles": 12,
                "n_tiles": 12,
                "accumulate": 1,
            }
        )


class ActivateCommand(data.StructLayout):
    """An Activate."""

    def __init__(self) -> None:
        super().__init__(
            {
                "accumulator": ACCUMULATOR_BITS,
                "buffer": ADDRESS_BITS,
                "rows": 16,
                "n_tiles": 12,
                "parameter": 12,
                "function": 2,
                "rounding": 1,
                "zero_point": signed(8),
                "ceiling": signed(8),
                "table": 4,
            }
        )


class ActivateWriteEntry(data.StructLayout):
    """The writing end of an Activate under way, and what it reads until then."""

    def __init__(self) -> None:
        super().__init__(
            {
                "buffer": Region(ADDRESS_BITS),
                "parameters": Region(ADDRESS_BITS),
                "table": Region(ADDRESS_BITS),
            }
        )
