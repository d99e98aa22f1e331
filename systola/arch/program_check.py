# SPDX-License-Identifier: Apache-2.0
"""Checks that find mistakes in a program without running it, for any contents of the memories.

The only jumps are ends of loops, and the body of a loop runs at least once. So the first run of an
instruction comes after all instructions that stand before it in the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from systola.arch.isa import LOOP_DEPTH, Fault, Opcode, decode


class ProgramError(ValueError):
    """A mistake in a program; `position` is the number of the instruction, from 0."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def check_program(words: Sequence[bytes]) -> None:
    """Raise ProgramError for the first mistake in instructions of INSTRUCTION_BYTES bytes each.

    Mistakes are:

    - no Halt,
    - a Loop without End_Loop, an End_Loop without Loop, or too many loops inside one another,
    - an instruction that needs a window before one is set, or weights before some are read.

    Nothing after the first Halt is checked. The machine itself finds mistakes that depend on
    registers or on sizes of memories.
    """
    if not words:
        raise ProgramError(0, "the program is empty")
    loops: list[int] = []
    seen: set[Opcode] = set()
    for position, word in enumerate(words):
        decoded = decode(word)
        if decoded is None:
            continue
        opcode = decoded[0].opcode
        name = decoded[0].mnemonic
        if opcode == Opcode.LOOP:
            loops.append(position)
            if len(loops) > LOOP_DEPTH:
                raise ProgramError(position, f"loop inside {LOOP_DEPTH} loops, which is the limit")
            if decoded[1]["count"] == 0 and not decoded[1]["count_register"]:
                raise ProgramError(position, "loop with no iteration")
        elif opcode == Opcode.END_LOOP:
            if not loops:
                raise ProgramError(position, "end_loop without loop")
            loops.pop()
        elif Fault.WINDOW in decoded[0].checks and Opcode.SET_CONFIG_WINDOW not in seen:
            raise ProgramError(position, f"{name} without set_config_window before it")
        elif (
            Fault.WEIGHT_UNDERFLOW in decoded[0].checks
            and Opcode.READ_WEIGHTS not in seen
            and not decoded[1].get("from_buffer")
        ):
            raise ProgramError(position, f"{name} without read_weights before it")
        elif opcode == Opcode.HALT:
            break
        seen.add(opcode)
    else:
        raise ProgramError(len(words), "the program has no halt")
    if loops:
        raise ProgramError(loops[-1], "loop without end_loop")
