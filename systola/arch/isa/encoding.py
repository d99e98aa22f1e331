# SPDX-License-Identifier: Apache-2.0
"""The encoding of instructions as words, and the way back."""

from __future__ import annotations

from functools import cache

from systola.arch.isa.codes import INSTRUCTION_BYTES, Opcode
from systola.arch.isa.fields import Field, Instruction
from systola.arch.isa.instructions import BY_OPCODE


class EncodingError(ValueError):
    """A mistake in an operand: it is missing, unknown or does not fit its field."""


def encode(opcode: Opcode, **operands: int) -> bytes:
    """Return one instruction as INSTRUCTION_BYTES bytes.

    An operand that is left out takes the default of its field. Raises EncodingError for an operand
    that is unknown, out of the range of its field, or left out although its field has no default.
    """
    entry = BY_OPCODE[opcode]
    places = _places(opcode)
    unknown = operands.keys() - places
    if unknown:
        raise EncodingError(f"{entry.mnemonic} has no operand '{sorted(unknown)[0]}'")
    word = int(opcode)
    for name, (field, low, high, offset) in places.items():
        value = operands.get(name, field.default)
        if value is None:
            raise EncodingError(f"{entry.mnemonic} needs operand '{name}'")
        if not low <= value <= high:
            raise EncodingError(f"{entry.mnemonic}: {name}={value} is not in {low} to {high}")
        word |= field.stored(value) << offset
    return word.to_bytes(INSTRUCTION_BYTES, "little")


@cache
def _places(opcode: Opcode) -> dict[str, tuple[Field, int, int, int]]:
    """Return for each field of an instruction its name, and the field with its range and its offset
    in bits.

    Long programs have a hundred thousand instructions, so range and offset are found only once.
    """
    entry = BY_OPCODE[opcode]
    return {field.name: (field, *field.range, entry.offset(field.name)) for field in entry.fields}


def decode(word: bytes) -> tuple[Instruction, dict[str, int]] | None:
    """Return the instruction in INSTRUCTION_BYTES bytes and its operands, None if its opcode is not
    legal.

    Field values are taken as they stand. The user checks minima and reserved bits (`reserved_bits`,
    `Field.minimum`).
    """
    value = int.from_bytes(word, "little")
    try:
        entry = BY_OPCODE[Opcode(value & 0xFF)]
    except ValueError:
        return None
    operands = {
        field.name: field.loaded(value >> entry.offset(field.name) & ((1 << field.width) - 1))
        for field in entry.fields
    }
    return entry, operands


def reserved_bits(entry: Instruction, word: bytes) -> int:
    """Return the bits of `word` that belong to no field of `entry`, as a number with all other bits
    0.

    If the number is not 0, the word is an ILLEGAL_FIELD.
    """
    mask = sum((1 << end) - (1 << start) for start, end in entry.reserved)
    return int.from_bytes(word, "little") & mask
