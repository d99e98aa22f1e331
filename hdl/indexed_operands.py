# SPDX-License-Identifier: Apache-2.0
"""Where an instruction has the operands that index registers are added to.

The first, second, ... indexed operand of any instruction share an adder. What an adder takes from
an instruction that does not use it is undefined, so that these are no more than a few choices.
"""

from collections import defaultdict

from amaranth.hdl import Cat, Mux, Value
from amaranth.utils import ceil_log2

from systola.arch.isa import (
    INSTRUCTION_BYTES,
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


def sums_at() -> list[list[tuple[int, int, frozenset[Opcode]]]]:
    """For each bit of the word the sums that it may come from: number of the adder, bit of the word
    where the sum begins, and the instructions for which that is so. Else it stays as it is."""
    found: list[dict[tuple[int, int], set[Opcode]]] = [
        defaultdict(set) for _ in range(8 * INSTRUCTION_BYTES)
    ]
    for entry in INSTRUCTIONS:
        widths = {field.name: field.width for field in entry.fields}
        for adder, (operand, _) in enumerate(indexed(entry)):
            start = entry.offset(operand)
            for bit in range(start, start + widths[operand]):
                found[bit][adder, start].add(entry.opcode)
    return [[(*at, frozenset(opcodes)) for at, opcodes in bit.items()] for bit in found]


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
    return Cat(_chosen(word, at, SELECTOR_BITS) for at in places)


def operands_of(word: Value) -> list[Value]:
    """What each adder adds to its register: the operand, and what stands behind it. Set_Register
    has its value in the first."""
    places: list[dict[int, list[Opcode]]] = [defaultdict(list) for _ in range(ADDERS)]
    for entry in INSTRUCTIONS:
        names = [operand for operand, _ in indexed(entry)]
        if entry.opcode == Opcode.SET_REGISTER:
            names = ["value"]
        for at, name in zip(places, names, strict=False):
            at[entry.offset(name)].append(entry.opcode)
    return [_chosen(word, at, REGISTER_BITS) for at in places]


def _chosen(word: Value, places: dict[int, list[Opcode]], width: int) -> Value:
    """The bits from one of these places on, which the opcode tells."""
    usual, *others = sorted(places, key=lambda place: -len(places[place]))
    opcode = word[:OPCODE_BITS]
    value: Value = word[usual : usual + width]
    for place in others:
        here = Cat(opcode == member for member in places[place]).any()
        value = Mux(here, word[place : place + width], value)
    return value
