# SPDX-License-Identifier: Apache-2.0
"""The programs of a regression. Kind, preset, seed and number of a case determine its program."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    OPCODE_BITS,
    Fault,
    Field,
    encode,
)
from systola.verif.kit.arithmetic_programs import arithmetic_program
from systola.verif.kit.crowded_programs import crowded_program
from systola.verif.kit.damaged_programs import damaged_program
from systola.verif.kit.images import make_image
from systola.verif.kit.large_programs import large_program
from systola.verif.kit.loop_programs import loop_program
from systola.verif.kit.machines import machine
from systola.verif.kit.padding_programs import padding_program
from systola.verif.kit.program_faults import lone_faults, static_faults
from systola.verif.kit.programs import random_program
from systola.verif.kit.rounding_programs import scales_program, sums_program
from systola.verif.kit.scoreboard import ANY_END, HALT, ends_in
from systola.verif.kit.sparse_programs import sparse_program
from systola.verif.kit.window_programs import window_program

KINDS = (
    "programs",
    "crowded",
    "large",
    "loops",
    "windows",
    "sparse",
    "paddings",
    "arithmetic",
    "sums",
    "scales",
    "faults",
    "garbage",
    "damaged",
    "errors",
    "silence",
    "resets",
    "writes",
)
_WHOLE: dict[str, Callable[[Config, str], Image]] = {
    "crowded": crowded_program,
    "large": large_program,
    "loops": loop_program,
    "windows": window_program,
    "sparse": sparse_program,
    "paddings": padding_program,
    "arithmetic": arithmetic_program,
    "sums": sums_program,
    "scales": scales_program,
}
"""Kinds of programs that always reach Halt, each with the function that writes such a program."""
FAULT_EVERY = 5
"""Number of successive random programs of which the last ends in a fault."""
_INSTRUCTIONS_WITH = {
    **{Fault.ILLEGAL_FIELD: 8, Fault.BUFFER_RANGE: 4, Fault.UNAVAILABLE: 6, Fault.OVERLAP: 3},
    **{Fault.HOST_WINDOW: 2, Fault.PARAMETER_RANGE: 2, Fault.WINDOW: 2},
}
"""Weight of a fault among programs of the kind "faults"; the weight of all other faults is 1.

Faults that more kinds of instructions can raise have a larger weight.
"""
_GARBAGE_WORDS = 6
_SMALL_BITS = 6
"""Number of bits of most random operands in programs of the kind "garbage".

Instructions with larger operands would fail at the decoder's first check."""


@dataclass(frozen=True)
class Case:
    """A case of a regression: the program with number `index` of a kind, a preset and a seed."""

    kind: str
    preset: str
    seed: int
    index: int

    @property
    def config(self) -> Config:
        """Return the configuration of the machine for which the program is written."""
        return machine(self.preset)

    def image(self) -> Image:
        """Return the case's program with its data."""
        name = f"{self.kind} {self.seed} {self.index}"
        if self.kind == "garbage":
            return _garbage(self.config, name)
        if self.kind == "damaged":
            return damaged_program(self.config, name)
        if self.kind in _WHOLE:
            return _WHOLE[self.kind](self.config, name)
        if self.kind == "faults":
            fault, program = self._lone()
            return program(self.config, name, fault)
        return random_program(self.config, name, fault=self._fault())

    @property
    def ends(self) -> frozenset[Fault]:
        """Return the faults in which the program may end; Fault.NONE is an end at Halt."""
        if self.kind in ("garbage", "damaged"):
            return ANY_END
        if self.kind == "faults":
            return ends_in(self._lone()[0])
        return HALT if self.kind in _WHOLE else ends_in(self._fault())

    def _lone(self) -> tuple[Fault, Callable[[Config, str, Fault], Image]]:
        """Return the fault of a case of kind "faults", and a function that writes its program."""
        programs = [
            lone
            for lone in lone_faults(self.config)
            for _ in range(_INSTRUCTIONS_WITH.get(lone[0], 1))
        ]
        return programs[self.index % len(programs)]

    def _fault(self) -> Fault | None:
        """Return the fault in which a random program is to end, or None for an end at Halt.

        The fault depends on the case's number.
        """
        faults = static_faults(self.config)
        number, last = divmod(self.index, FAULT_EVERY)
        return faults[number % len(faults)] if last == FAULT_EVERY - 1 else None


def _garbage(config: Config, name: str) -> Image:
    """Return a random program in which some instruction words are replaced by wrong words."""
    rng = random.Random(f"{config.name} {name}")
    image = random_program(config, name)
    words = [
        image.program[place : place + INSTRUCTION_BYTES]
        for place in range(0, len(image.program), INSTRUCTION_BYTES)
    ]
    for _ in range(_GARBAGE_WORDS):
        place = rng.randrange(len(words))
        words[place] = _word(rng, words[place])
    return make_image(
        words, host=image.host, weights=image.weights, program_offset=image.program_offset
    )


def _word(rng: random.Random, word: bytes) -> bytes:
    """Return a wrong instruction word to put in place of `word`.

    The word is random bits, `word` with one bit flipped, or an instruction with random operands.
    """
    bits = 8 * INSTRUCTION_BYTES
    kind = rng.random()
    if kind < 0.1:
        return rng.getrandbits(bits).to_bytes(INSTRUCTION_BYTES, "little")
    if kind < 0.2:
        opcode = rng.choice(INSTRUCTIONS).opcode
        noise = rng.getrandbits(bits) >> OPCODE_BITS << OPCODE_BITS | opcode
        return noise.to_bytes(INSTRUCTION_BYTES, "little")
    if kind < 0.5:
        number = int.from_bytes(word, "little") ^ 1 << rng.randrange(bits)
        return number.to_bytes(INSTRUCTION_BYTES, "little")
    entry = rng.choice(INSTRUCTIONS)
    return encode(entry.opcode, **{field.name: _number(rng, field) for field in entry.fields})


def _number(rng: random.Random, field: Field) -> int:
    """Return a random value that an instruction's field can hold, mostly a small value."""
    low, high = field.range
    if rng.random() < 0.1:
        return rng.randint(low, high)
    if field.indexes:
        return 0 if rng.random() < 0.8 else rng.randint(low, high)
    if field.values:
        return rng.choice([value for value in field.values if low <= value <= high])
    middle = 0 if low < 0 else low
    return min(high, max(low, middle + rng.getrandbits(_SMALL_BITS) - (low < 0)))
