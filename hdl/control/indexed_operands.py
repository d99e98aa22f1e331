# SPDX-License-Identifier: Apache-2.0
"""Where an instruction has the operands that index registers are added to.

The first, second, ... indexed operand of any instruction share an adder. What an adder takes from
an instruction that does not use it is undefined, so that these are no more than a few choices.
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
    """Operands of an instruction, each with the field that names its index register."""
    return [(field.indexes, field.name) for field in entry.fields if field.indexes is not None]


ADDERS = max(len(indexed(entry)) for entry in instructions_of(links=True))
NOWHERE = 8 * INSTRUCTION_BYTES
"""The place of an operand that is zero."""


def selectors_of(word: Value, *, links: bool) -> Value:
    """The number of the index register of each adder, ADDERS times SELECTOR_BITS. Set_Register has
    its two there."""
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in instructions_of(links=links):
        names = [selector for _, selector in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            names = ["first", "second"]
        for at, name in zip(places, names, strict=False):
            at[entry.offset(name)].append(entry.opcode)
    return Cat(_chosen(word, at, SELECTOR_BITS) for at in places)


def operands_of(word: Value, *, links: bool) -> list[tuple[Value, Value, Value]]:
    """What each adder adds to its register: the operand, and what stands behind it, as a choice:
    the bit that makes it, the operand where that is one, and the one where it is zero. Set_Register
    has its value in the first, and nothing in the second."""
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
    """The bit of the opcode that leaves the fewest places on either side, and both sides."""
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
    """The bit of the opcode that tells first where the bits are, and those on either side."""
    bit, zero, one = _split(places)
    return word[bit], _chosen(word, one, width), _chosen(word, zero, width)


def _chosen(word: Value, places: dict[int, list[Opcode]], width: int) -> Value:
    """The bits from one of these places on, which the bits of the opcode tell, one after the
    other."""
    if len(places) == 1:
        (place,) = places
        return Const(0) if place == NOWHERE else word[place : place + width]
    return Mux(*_choice(word, places, width))
