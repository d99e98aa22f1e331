# SPDX-License-Identifier: Apache-2.0
"""The encoding of instructions as words, and the way back."""

from __future__ import annotations

from systola.arch.isa.codes import INSTRUCTION_BYTES, OPCODE_BITS, Opcode
from systola.arch.isa.fields import Instruction
from systola.arch.isa.instructions import BY_OPCODE


class EncodingError(ValueError):
    """A mistake in an operand: it is missing, unknown or does not fit its field."""


def encode(opcode: Opcode, **operands: int) -> bytes:
    """Return one instruction as INSTRUCTION_BYTES bytes.

    Operands left out take the default of their field. Raises EncodingError for an operand that is
    unknown, missing without default, or out of the range of its field.
    """
    entry = BY_OPCODE[opcode]
    unknown = set(operands) - {field.name for field in entry.fields}
    if unknown:
        raise EncodingError(f"{entry.mnemonic} has no operand '{sorted(unknown)[0]}'")
    word, offset = int(opcode), OPCODE_BITS
    for field in entry.fields:
        value = operands.get(field.name, field.default)
        if value is None:
            raise EncodingError(f"{entry.mnemonic} needs operand '{field.name}'")
        low, high = field.range
        if not low <= value <= high:
            raise EncodingError(f"{entry.mnemonic}: {field.name}={value} is not in {low} to {high}")
        word |= (value & ((1 << field.width) - 1)) << offset
        offset += field.width
    return word.to_bytes(INSTRUCTION_BYTES, "little")


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
    operands: dict[str, int] = {}
    value >>= OPCODE_BITS
    for field in entry.fields:
        raw = value & ((1 << field.width) - 1)
        value >>= field.width
        if field.signed and raw >> (field.width - 1):
            raw -= 1 << field.width
        operands[field.name] = raw
    return entry, operands


def reserved_bits(entry: Instruction, word: bytes) -> int:
    """Return the bits of `word` above the fields of `entry`, as a number.

    A word with a number other than 0 there is an ILLEGAL_FIELD.
    """
    return int.from_bytes(word, "little") >> entry.width
