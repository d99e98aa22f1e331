# SPDX-License-Identifier: Apache-2.0
"""Long random programs in which a late instruction is damaged, while the machine is full of
work.
"""

from __future__ import annotations

import random

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Field, Instruction, Opcode, decode
from systola.verif.kit.images import make_image
from systola.verif.kit.programs import random_program

INSTRUCTIONS = 250
"""The number of places in a program's control flow, with one opcode each.

The program has some hundred instructions more, because some opcodes need several instructions.
"""
_LATE = 0.8
"""The share of a program, from its start on, that is never damaged."""
_REGISTERS = 0.15
"""The share of the programs in which the value of an index register is damaged."""


def damaged_program(config: Config, seed: str) -> Image:
    """Make a random program in which one field of one of the last instructions has a wrong value.

    The field may be an operand, the number of an index register, or the value that a Set_Register
    computes. The program may end in any way, or have a loop of very many passes.
    """
    rng = random.Random(f"{config.name} {seed} damage")
    image = random_program(config, seed, instructions=INSTRUCTIONS)
    words = [
        image.program[start : start + INSTRUCTION_BYTES]
        for start in range(0, len(image.program), INSTRUCTION_BYTES)
    ]
    late = range(int(_LATE * len(words)), len(words))
    entries = {place: _entry(words[place]) for place in late}
    places = [place for place, entry in entries.items() if entry.fields]
    setters = [place for place in places if entries[place].opcode == Opcode.SET_REGISTER]
    place = rng.choice(setters if setters and rng.random() < _REGISTERS else places)
    field = rng.choice(entries[place].fields)
    words[place] = _with_another(rng, words[place], entries[place], field)
    return make_image(
        words, host=image.host, weights=image.weights, program_offset=image.program_offset
    )


def _entry(word: bytes) -> Instruction:
    decoded = decode(word)
    assert decoded is not None
    return decoded[0]


def _with_another(rng: random.Random, word: bytes, entry: Instruction, field: Field) -> bytes:
    """Return the instruction word with a new value in one field.

    The new value differs by a bit, or is near the old value, an extreme, or any number.
    """
    number, offset = int.from_bytes(word, "little"), entry.offset(field.name)
    most = (1 << field.width) - 1
    value = number >> offset & most
    other = value
    while other == value:
        near = value + rng.choice((-1, 1)) * rng.choice((1, 1, 2, 4, 8))
        flipped = value ^ 1 << rng.randrange(field.width)
        other = rng.choice((near, near, flipped, flipped, 0, most, rng.randint(0, most))) & most
    return (number ^ (value ^ other) << offset).to_bytes(INSTRUCTION_BYTES, "little")
