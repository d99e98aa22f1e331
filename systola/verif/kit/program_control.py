# SPDX-License-Identifier: Apache-2.0
"""The control flow of a random program: loops, index registers, and places for other
instructions.

A place has one opcode. If the opcode is no control instruction, a writer fills the place with one
or several instructions later.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from systola.arch.isa import LOOP_DEPTH, REGISTERS, Opcode

_WORD = 1 << 32
_MOST_ITERATIONS = 12
"""The largest number of passes through a place of the program, in all loops around it together."""
_MOST_EXECUTED = 3
"""The largest number of executed instructions, as a multiple of the requested length."""


@dataclass
class Step:
    """A place of a program: an opcode, and the index registers' contents at each execution."""

    opcode: Opcode
    operands: dict[str, int] = field(default_factory=dict[str, int])
    """The operands of Set_Register and Loop; operands of other opcodes are left to the writer."""
    depth: int = 0
    """The number of loops that are open before the place."""
    registers: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def random_control(
    rng: random.Random, weights: Mapping[Opcode, int], instructions: int, bus: int
) -> list[Step]:
    """Return about `instructions` places of a random program with nested loops.

    All loops are closed, and each place is executed at least once. `weights` are the relative
    frequencies of the opcodes; Loop counts for itself and its End_Loop. Numbers
    that are added to registers are often multiples of `bus`, the width of the host bus in bytes. A
    Nop follows the last place, to note the registers at the end.
    """
    while True:
        steps: list[Step] = []
        _block(rng, weights, instructions, bus, 0, steps)
        steps.append(Step(Opcode.NOP))
        if _trace(steps, _MOST_EXECUTED * instructions):
            return steps


def _block(
    rng: random.Random,
    weights: Mapping[Opcode, int],
    length: int,
    bus: int,
    depth: int,
    steps: list[Step],
) -> None:
    opcodes, numbers = list(weights), list(weights.values())
    end = len(steps) + length
    while len(steps) < end:
        opcode = rng.choices(opcodes, numbers)[0]
        nested = depth and rng.random() < 0.1
        if opcode == Opcode.SET_REGISTER:
            steps.append(_set_register(rng, bus, moving=depth > 0 and rng.random() < 0.7))
        elif opcode != Opcode.LOOP and not nested:
            steps.append(Step(opcode))
        elif depth < LOOP_DEPTH:
            # The final value of `count` is set later, when the registers are known.
            count = {"count": rng.choice((1, 1, 2, 2, 3)), "count_register": 0}
            if rng.random() < 0.5:
                count["count_register"] = rng.randrange(REGISTERS)
            steps.append(Step(Opcode.LOOP, count))
            if rng.random() < 0.7:
                steps.append(_set_register(rng, bus, moving=True))
            _block(rng, weights, rng.randint(0, 5), bus, depth + 1, steps)
            steps.append(Step(Opcode.END_LOOP))


def _set_register(rng: random.Random, bus: int, *, moving: bool) -> Step:
    """Return a Set_Register that adds a step to a register, or sets it to any value."""
    register = rng.randrange(1, REGISTERS)
    value = rng.choice((rng.randint(-4, 4), bus * rng.randint(-3, 3), 1))
    first, second = register, 0
    if moving:
        # Bits 24 and above of the step have no effect on an operand of at most 24 bits.
        value += rng.choice((0, 0, 0, rng.randint(-127, 126) << 24))
    else:
        first, second = rng.choices((0, rng.randrange(REGISTERS)), k=2)
        least, most = -(1 << 31), (1 << 31) - 1
        wild = rng.choice((least, most, rng.randint(least, most), rng.randint(least, most)))
        value = rng.choice((value, rng.randint(-100, 100), wild))
    if rng.random() < 0.5:
        first, second = second, first
    operands = {"register": register, "value": value, "first": first, "second": second}
    return Step(Opcode.SET_REGISTER, operands)


def _trace(steps: list[Step], most: int) -> bool:
    """Execute the control flow, note the registers at each place, and set the loops' counts.

    Return False if a loop would not run 1 to 3 times because its count register has changed, or if
    more than `most` instructions would be executed.
    """
    registers = [0] * REGISTERS
    # for each open loop: the place of its Loop, and the iterations left
    loops: list[list[int]] = []
    place = executed = 0
    while place < len(steps):
        step = steps[place]
        step.depth = len(loops)
        step.registers.append(tuple(registers))
        executed += 1
        if executed > most or len(step.registers) > _MOST_ITERATIONS:
            return False
        at = step.operands
        match step.opcode:
            case Opcode.SET_REGISTER:
                total = registers[at["first"]] + registers[at["second"]] + at["value"]
                registers[at["register"]] = total % _WORD
            case Opcode.LOOP:
                base = registers[at["count_register"]]
                if len(step.registers) == 1:
                    at["count"] = (at["count"] - base) % _WORD
                count = (at["count"] + base) % _WORD
                if not 1 <= count <= 3:
                    return False
                loops.append([place, count])
            case Opcode.END_LOOP:
                loops[-1][1] -= 1
                if loops[-1][1]:
                    place = loops[-1][0]
                else:
                    loops.pop()
            case _:
                pass
        place += 1
    return True
