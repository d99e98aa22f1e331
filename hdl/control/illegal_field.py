# SPDX-License-Identifier: Apache-2.0
"""What makes a word ILLEGAL_FIELD."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import (
    INSTRUCTIONS,
    TANH_INTEGER_BITS,
    Field,
    Function,
    Instruction,
    Opcode,
)

WRITES = (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
COPIES = (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE, *WRITES)


def is_out_of_range(entry: Instruction, fields: data.View) -> Value:
    """Whether a field of an instruction `entry` is out of its range. Index registers have been
    added to the operands."""
    return Cat(_out_of_range(field, fields[field.name]) for field in entry.fields).any()


def reserved_bits(word: Value) -> list[tuple[Value, tuple[Opcode, ...]]]:
    """For each place where an instruction may end: whether bits are set from there on to the next
    one, and the instructions that end there. They are illegal for these, and for all that end
    before."""
    return [
        (word[start:end].any(), tuple(e.opcode for e in INSTRUCTIONS if e.width == start))
        for start, end in pairwise([*sorted({e.width for e in INSTRUCTIONS}), len(word)])
    ]


def _out_of_range(field: Field, value: Value) -> Value:
    """Whether the value of a field is below its minimum or has no name."""
    if field.values is not None:
        return ~Cat(value == int(member) for member in field.values).any()
    return value < field.minimum if field.minimum is not None else Const(0, 1)


def misfits(config: Config, opcode: Opcode, fields: data.View) -> Value:
    """What makes ILLEGAL_FIELD beyond single fields: alignment, lengths, combinations."""
    align = exact_log2(config.host_bus_bytes)
    wrong: Value = Const(0)
    if opcode in (*COPIES, Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE):
        wrong |= fields.host[:align].any()
    if opcode in COPIES:
        longest = config.cols if opcode in WRITES else config.rows
        wrong |= fields.stride[:align].any() | (fields.tail > longest)
    if opcode is Opcode.DEPTHWISE:
        wrong |= fields.function == Function.TABLE
    if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        function = fields.function
        has_bits = (function == Function.TANH) | (function == Function.EXP)
        gate = (function == Function.SIGMOID) | has_bits
        narrow = (
            (function == Function.RELU)
            | (function == Function.RELU6)
            | (function == Function.TABLE)
        )
        wrong |= Mux(fields.wide, narrow, gate | fields.accumulate)
        wrong |= has_bits & (fields.table > TANH_INTEGER_BITS)
    return wrong
