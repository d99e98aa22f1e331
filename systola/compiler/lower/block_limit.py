# SPDX-License-Identifier: Apache-2.0
"""The message for a value that has too many blocks of channels for one instruction."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.config import PRESETS, Config
from systola.arch.isa import Opcode
from systola.arch.isa.instructions import BY_OPCODE

_COUNTS = ("blocks", "k_tiles", "n_tiles")
"""Names of the instructions' operands that count blocks of channels."""


def too_many_blocks(config: Config, opcode: Opcode, operands: Mapping[str, int]) -> str:
    """Return a message if an instruction has too many blocks of channels, else an empty text.

    The message names a preset that can take so many blocks, if there is one. The text is also empty
    if another operand does not fit its field.
    """
    for field in BY_OPCODE[opcode].fields:
        value, (low, high) = operands.get(field.name, field.default), field.range
        if value is None or low <= value <= high:
            continue
        if field.name not in _COUNTS or value < low:
            return ""
        size = _block(config)
        text = f"{value} blocks of {size} channels, the machine takes {high} at one time"
        wider = [each for each in PRESETS.values() if _block(each) * high >= value * size]
        if wider:
            best = min(wider, key=lambda each: (_block(each), each.buffer_lines))
            text += f"; the preset '{best.name}' has blocks of {_block(best)}"
        return text
    return ""


def _block(config: Config) -> int:
    return min(config.rows, config.cols)
