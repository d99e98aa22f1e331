# SPDX-License-Identifier: Apache-2.0
"""The instruction set: the one place where opcodes, fields, checks and meanings are defined.

Assembler, disassembler, hardware decoder, golden model and the reference page read it.
An instruction is one little-endian word of 128 bits: the opcode in bits 7:0, then the numbers of
index registers and the flags, then other fields, which begin at half bytes. Bits that belong to no
field must be zero.

Each group of instructions has a file here: `control`, `transfers`, `matrix`, `activation`, `links`.
"""

from __future__ import annotations

from systola.arch.isa.codes import (
    CURVE_ENTRIES,
    CURVE_SHIFT,
    CURVE_TABLES,
    DEPTHWISE_TAPS,
    DITHER_BITS,
    EXPONENT_REGISTERS,
    GATES,
    INSTRUCTION_BYTES,
    INVERSE_ROOT,
    LONG_TABLES,
    LOOP_DEPTH,
    OPCODE_BITS,
    PARAMETER_PLANES,
    PARTITION_SHIFT,
    PARTITION_ZEROS,
    QUOTIENT_BITS,
    RANDOM_GROUP,
    RANDOM_LANES,
    RANDOM_WARM_UP,
    RECIPROCAL,
    RECIPROCAL_SLOPE,
    RECIPROCAL_START,
    REGISTERS,
    TABLE_BYTES,
    TAGS_WAITING,
    TANH_INTEGER_BITS,
    WEIGHT_READS_IN_FLIGHT,
    Function,
    LinkPart,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    Side,
    Source,
    Unit,
)
from systola.arch.isa.encoding import EncodingError, decode, encode, reserved_bits
from systola.arch.isa.faults import FAULT_TEXT, Fault
from systola.arch.isa.fields import (
    PLACE_BITS,
    Executor,
    Field,
    Hardware,
    Instruction,
    Memory,
    Use,
)
from systola.arch.isa.instructions import (
    BY_MNEMONIC,
    BY_OPCODE,
    INSTRUCTIONS,
    LINK_OPCODES,
    instructions_of,
)
from systola.arch.isa.ways import Way, way_of

__all__ = [
    "BY_MNEMONIC",
    "BY_OPCODE",
    "CURVE_ENTRIES",
    "CURVE_SHIFT",
    "CURVE_TABLES",
    "DEPTHWISE_TAPS",
    "DITHER_BITS",
    "EXPONENT_REGISTERS",
    "FAULT_TEXT",
    "GATES",
    "INSTRUCTIONS",
    "INSTRUCTION_BYTES",
    "INVERSE_ROOT",
    "LINK_OPCODES",
    "LONG_TABLES",
    "LOOP_DEPTH",
    "OPCODE_BITS",
    "PARAMETER_PLANES",
    "PARTITION_SHIFT",
    "PARTITION_ZEROS",
    "PLACE_BITS",
    "QUOTIENT_BITS",
    "RANDOM_GROUP",
    "RANDOM_LANES",
    "RANDOM_WARM_UP",
    "RECIPROCAL",
    "RECIPROCAL_SLOPE",
    "RECIPROCAL_START",
    "REGISTERS",
    "TABLE_BYTES",
    "TAGS_WAITING",
    "TANH_INTEGER_BITS",
    "WEIGHT_READS_IN_FLIGHT",
    "EncodingError",
    "Executor",
    "Fault",
    "Field",
    "Function",
    "Hardware",
    "Instruction",
    "LinkPart",
    "Memory",
    "Opcode",
    "Operation",
    "Reduction",
    "Rounding",
    "Side",
    "Source",
    "Unit",
    "Use",
    "Way",
    "decode",
    "encode",
    "instructions_of",
    "reserved_bits",
    "way_of",
]
