# SPDX-License-Identifier: Apache-2.0
"""Multiplexers that bring the indexed operands of an instruction to the adders.

Adder n adds an index register to indexed operand n of any instruction. An instruction with fewer
operands leaves the input of the other adders undefined. So a few bits of the opcode suffice to
choose an input.
"""

from collections import defaultdict

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.utils import ceil_log2

from systola.arch.isa import (
    INSTRUCTION_BYTES,
    OPCODE_BITS,
    REGISTERS,
    Instruction,
    Opcode,
    instructions_of,
)

REGISTER_BITS = 32
SELECTOR_BITS = ceil_log2(REGISTERS)


def indexed(entry: Instruction) -> list[tuple[str, str]]:
    """Return the indexed operands of an instruction, each with the field of its index register."""
    return [(field.indexes, field.name) for field in entry.fields if field.indexes is not None]


ADDERS = max(len(indexed(entry)) for entry in instructions_of(links=True))
NOWHERE = 8 * INSTRUCTION_BYTES
"""Offset in bits that stands for the operand 0, as it lies beyond the instruction word."""


def selectors_of(word: Value, *, links: bool) -> Value:
    """Return, for each adder, the number of its index register, in SELECTOR_BITS bits.

    For Set_Register the adders get the numbers of the two source registers.
    """
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in instructions_of(links=links):
        names = [selector for _, selector in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            names = ["first", "second"]
        for at, name in zip(places, names, strict=False):
            at[entry.offset(name)].append(entry.opcode)
    return Cat(_chosen(word, at, SELECTOR_BITS) for at in places)


def operands_of(word: Value, *, links: bool) -> list[tuple[Value, Value, Value]]:
    """Return the operand of each adder, as the three inputs of its last multiplexer.

    The inputs are an opcode bit, the operand if this bit is 1, and the operand if it is 0. Upper
    bits of an operand may be bits of the fields after it. Set_Register adds its value in the first
    adder, and zero in the second adder.
    """
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in instructions_of(links=links):
        offsets = [entry.offset(operand) for operand, _ in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            offsets = [entry.offset("value"), NOWHERE]
        for at, offset in zip(places, offsets, strict=False):
            at[offset].append(entry.opcode)
    return [_choice(word, at, REGISTER_BITS) for at in places]


def _split(
    places: dict[int, list[Opcode]],
) -> tuple[int, dict[int, list[Opcode]], dict[int, list[Opcode]]]:
    """Split the places by the opcode bit that makes the larger of both parts smallest.

    Returns the number of this bit, the places for opcodes with a 0 there, and the places for
    opcodes with a 1. A place is the offset of an operand in the word. A place may be in both parts.
    """
    splits: list[tuple[int, int, int, dict[int, list[Opcode]], dict[int, list[Opcode]]]] = []
    for bit in range(OPCODE_BITS):
        zero, one = (
            {
                place: side
                for place, opcodes in places.items()
                if (side := [opcode for opcode in opcodes if opcode >> bit & 1 == value])
            }
            for value in (0, 1)
        )
        if zero and one:
            splits.append((max(len(zero), len(one)), len(zero) + len(one), bit, zero, one))
    _, _, bit, zero, one = min(splits, key=lambda split: split[:3])
    return bit, zero, one


def _choice(word: Value, places: dict[int, list[Opcode]], width: int) -> tuple[Value, Value, Value]:
    """Return the inputs of a multiplexer: an opcode bit, the input for a 1, the input for a 0."""
    bit, zero, one = _split(places)
    return word[bit], _chosen(word, one, width), _chosen(word, zero, width)


def _chosen(word: Value, places: dict[int, list[Opcode]], width: int) -> Value:
    """Return `width` bits of the word, from the place that belongs to the opcode."""
    if len(places) == 1:
        (place,) = places
        return Const(0) if place == NOWHERE else word[place : place + width]
    return Mux(*_choice(word, places, width))
