# SPDX-License-Identifier: Apache-2.0
"""The scalar unit: index registers and loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systola.arch.isa import REGISTERS, Instruction


@dataclass
class _Loop:
    body: int
    """Number of the instruction after Loop."""
    left: int
    """Iterations to go, the present one included."""


class ScalarUnit:
    """Index registers and open loops of one program."""

    def __init__(self) -> None:
        self._registers = [0] * REGISTERS
        self._loops: list[_Loop] = []

    @property
    def loops_open(self) -> int:
        """Loops that are open."""
        return len(self._loops)

    def effective(self, entry: Instruction, operands: Mapping[str, int]) -> dict[str, int]:
        """Add index registers to operands, and leave out the fields that select them.

        `operands` are all fields of `entry` as they stand in the word.
        """
        result = {field.name: operands[field.name] for field in entry.fields if not field.indexes}
        for field in entry.fields:
            if field.indexes:
                width = entry.field(field.indexes).width
                total = operands[field.indexes] + self._registers[operands[field.name]]
                result[field.indexes] = total % (1 << width)
        return result

    def set_register(self, register: int, value: int, first: int, second: int) -> None:
        """Set register `register` to register `first` + register `second` + `value`."""
        total = self._registers[first] + self._registers[second] + value
        self._registers[register] = total % (1 << 32)

    def open_loop(self, count: int, body: int) -> None:
        """Open a loop of `count` >= 1 iterations that begin with instruction number `body`."""
        self._loops.append(_Loop(body, count))

    def end_loop(self) -> int | None:
        """End an iteration of the innermost loop.

        Returns the number of the instruction that comes next, or None if it is the instruction
        after End_Loop.
        """
        loop = self._loops[-1]
        loop.left -= 1
        if loop.left:
            return loop.body
        self._loops.pop()
        return None
