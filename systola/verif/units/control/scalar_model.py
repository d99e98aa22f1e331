# SPDX-License-Identifier: Apache-2.0
"""A plain interpreter of loops and index registers, and instruction words to test with."""

from __future__ import annotations

import random

from amaranth.lib import data

from systola.arch.isa import INSTRUCTIONS, LOOP_DEPTH, Opcode, encode, instructions_of
from systola.hdl.control.indexed_operands import indexed

MODULO = 1 << 32

KNOWN = {entry.opcode: entry for entry in INSTRUCTIONS}
"""Descriptions of all instructions, by opcode, of a machine without links."""
LINKED = {entry.opcode: entry for entry in instructions_of(links=True)}
"""Descriptions of all instructions, by opcode, of a machine with links."""


class Interpreter:
    """An interpreter with index registers and open loops.

    Each loop has the number of its first instruction and the iterations left.
    """

    def __init__(self) -> None:
        self.registers = [0] * 8
        self.loops: list[list[int]] = []

    def shown(self, word: int) -> tuple[int, bool]:
        """Return the word with index registers added to operands, and whether check LOOP fails."""
        entry = KNOWN.get(word & 0xFF)
        for field in entry.fields if entry else ():
            if field.indexes:
                offset, width = entry.offset(field.indexes), entry.field(field.indexes).width
                mask = (1 << width) - 1
                register = self.registers[(word >> entry.offset(field.name)) & 7]
                total = ((word >> offset) & mask) + register
                word = word & ~(mask << offset) | (total & mask) << offset
        opcode = word & 0xFF
        opens = opcode == Opcode.LOOP
        fault = opens and (len(self.loops) == LOOP_DEPTH or (word >> 32) % MODULO == 0)
        return word, fault or (opcode == Opcode.END_LOOP and not self.loops)

    def step(self, number: int, word: int, error: int) -> int:
        """Execute instruction `number`, and return the number of the next instruction."""
        word, fault = self.shown(word)
        opcode = word & 0xFF
        if error or fault:
            return number + 1
        if opcode == Opcode.SET_REGISTER:
            register, value = (word >> 14) & 7, (word >> 32) % MODULO
            first, second = (word >> 8) & 7, (word >> 11) & 7
            if register:
                total = value + self.registers[first] + self.registers[second]
                self.registers[register] = total % MODULO
        elif opcode == Opcode.LOOP:
            self.loops.append([number + 1, (word >> 32) % MODULO])
        elif opcode == Opcode.END_LOOP:
            self.loops[-1][1] -= 1
            if self.loops[-1][1]:
                return self.loops[-1][0]
            self.loops.pop()
        return number + 1


def kind(word: int, *, links: bool = False) -> int:
    """Return the one-hot code of a word's opcode, with a bit for each known opcode in order."""
    known = LINKED if links else KNOWN
    return sum(1 << place for place, opcode in enumerate(known) if opcode == word & 0xFF)


def word_of(opcode: Opcode, **operands: int) -> int:
    """Return an instruction word as a number."""
    return int.from_bytes(encode(opcode, **operands), "little")


def set_register(register: int, **operands: int) -> int:
    """Return the word of a Set_Register."""
    return word_of(Opcode.SET_REGISTER, register=register, **operands)


def loop(count: int, register: int = 0) -> int:
    """Return the word of a Loop with this count and count register."""
    return word_of(Opcode.LOOP, count=count, count_register=register)


def load_table(host: int, register: int) -> int:
    """Return the word of an instruction with an indexed operand of 32 bits, at bit 32."""
    return word_of(Opcode.LOAD_TABLE, host=host, table=0, host_register=register)


def effective(shown: data.Const) -> int:
    """Return the word of an EffectiveInstruction, with sums in place of its indexed operands."""
    word = shown.word
    entry = KNOWN.get(word & 0xFF)
    for (operand, _), total in zip(indexed(entry) if entry else (), shown.sums, strict=False):
        offset, mask = entry.offset(operand), (1 << entry.field(operand).width) - 1
        word = word & ~(mask << offset) | (total & mask) << offset
    return word


NOP, END = word_of(Opcode.NOP), word_of(Opcode.END_LOOP)


def wild_word(chance: random.Random) -> int:
    """Return a random word, legal or not; most opcodes are known, and most loops are short."""
    opcode = chance.choice([*KNOWN, *[Opcode.SET_REGISTER] * 4, *[Opcode.END_LOOP] * 8])
    word = chance.getrandbits(128) & ~0xFF | opcode
    if chance.random() < 0.1:
        return word & ~0xFF | chance.getrandbits(8)
    if opcode == Opcode.LOOP and chance.random() < 0.8:
        return loop(chance.randint(0, 3))
    return word
