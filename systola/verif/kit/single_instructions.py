# SPDX-License-Identifier: Apache-2.0
"""A writer of single instructions, with chosen operands and the smallest values for all others."""

from __future__ import annotations

from systola.arch.isa import BY_OPCODE, INSTRUCTION_BYTES, REGISTERS, Instruction, Opcode
from systola.verif.kit.program_state import ProgramState

PIXEL = {
    **{"height": 1, "width": 1, "pitch": 1, "kernel_height": 1, "kernel_width": 1},
    **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1, "top": 0, "left": 0},
    **{"out_height": 1, "out_width": 1},
}
"""The operands of Set_Config_Window for a map, kernel and result of one pixel."""


class SingleInstructions:
    """A writer that adds single instructions to a random program, and knows its index registers."""

    def __init__(self, writer: ProgramState) -> None:
        self._writer = writer
        self._config = writer.config
        self._rng = writer.rng

    def _one(self, opcode: Opcode, **operands: int) -> None:
        """Write an instruction on one line, row, entry or byte, except as `operands` say."""
        at: dict[str, int] = {}
        for field in BY_OPCODE[opcode].fields:
            if field.default is None:
                at[field.name] = field.minimum or field.less
        self._writer.emit(opcode, **{**at, **operands})

    def _word(self, entry: Instruction, at: dict[str, int], reserved: int = 0) -> None:
        """Write an instruction word with field values that `encode` would refuse."""
        word = int(entry.opcode) | reserved
        for field in entry.fields:
            word |= field.stored(at[field.name]) << entry.offset(field.name)
        self._writer.words.append(word.to_bytes(INSTRUCTION_BYTES, "little"))

    def _set_window(self, **changes: int) -> None:
        self._writer.emit(Opcode.SET_CONFIG_WINDOW, **{**PIXEL, **changes})

    def _value(self, opcode: Opcode, name: str, value: int) -> dict[str, int]:
        """Return operand `name`, perhaps with an index register, so that it has `value` in the
        first pass.
        """
        return self._indexed(opcode, name, value, 0, self._rng.randrange(REGISTERS))

    def _indexed(
        self, opcode: Opcode, name: str, value: int, execution: int, register: int
    ) -> dict[str, int]:
        entry = BY_OPCODE[opcode]
        if not any(field.indexes == name for field in entry.fields):
            return {name: value}
        held = self._writer.registers[execution][register]
        return {
            name: (value - held) % (1 << entry.field(name).width),
            f"{name}_register": register,
        }
