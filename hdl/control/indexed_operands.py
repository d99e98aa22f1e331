# SPDX-License-Identifier: Apache-2.0
"""Where an instruction has the operands that index registers are added to.

The first, second, ... indexed operand of any instruction share an adder. What an adder takes from
an instruction that does not use it is undefined, so that these are no more than a few choices.
"""

from collections import defaultdict
from collections.abc import Mapping

from amaranth.hdl import Cat, Mux, Value
from amaranth.utils import ceil_log2

from systola.arch.isa import (
    INSTRUCTIONS,
    OPCODE_BITS,
    REGISTERS,
    Instruction,
    Opcode,
)

REGISTER_BITS = 32
SELECTOR_BITS = ceil_log2(REGISTERS)


def indexed(entry: Instruction) -> list[tuple[str, str]]:
    """Operands of an instruction, each with the field that names its index register."""
    return [(field.indexes, field.name) for field in entry.fields if field.indexes is not None]


ADDERS = max(len(indexed(entry)) for entry in INSTRUCTIONS)


def selectors_of(word: Value) -> Value:
    """The number of the index register of each adder, ADDERS times SELECTOR_BITS. Set_Register has
    its two there."""
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in INSTRUCTIONS:
        names = [selector for _, selector in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            names = ["first", "second"]
        for at, name in zip(places, names, strict=False):
            at[entry.offset(name)].append(entry.opcode)
    code = {bit: word[bit] for bit in range(OPCODE_BITS)}
    return Cat(_chosen(word, code, at, SELECTOR_BITS) for at in places)


def operands_of(word: Value, bits: Value) -> list[Value]:
    """What each adder adds to its register: the operand, and what stands behind it. Set_Register
    has its value in the first. `bits` are the PLACE_BITS of the opcode."""
    code = {bit: bits[place] for place, bit in enumerate(PLACE_BITS)}
    return [_chosen(word, code, at, REGISTER_BITS) for at in _operand_places()]


def _operand_places() -> list[dict[int, list[Opcode]]]:
    """Where the operand of each adder begins, with the instructions that have it there."""
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in INSTRUCTIONS:
        names = [operand for operand, _ in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            names = ["value"]
        for at, name in zip(places, names, strict=False):
            at[entry.offset(name)].append(entry.opcode)
    return places


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


def _chosen(
    word: Value, code: Mapping[int, Value], places: dict[int, list[Opcode]], width: int
) -> Value:
    """The bits from one of these places on, which the bits of the opcode tell, one after the
    other."""
    if len(places) == 1:
        (place,) = places
        return word[place : place + width]
    bit, zero, one = _split(places)
    return Mux(code[bit], _chosen(word, code, one, width), _chosen(word, code, zero, width))


def _bits_asked(places: dict[int, list[Opcode]]) -> set[int]:
    """All bits of the opcode that `_chosen` looks at."""
    if len(places) == 1:
        return set()
    bit, zero, one = _split(places)
    return {bit} | _bits_asked(zero) | _bits_asked(one)


PLACE_BITS = tuple(sorted({bit for each in _operand_places() for bit in _bits_asked(each)}))
"""The bits of the opcode that tell where the operands are."""
