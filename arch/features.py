# SPDX-License-Identifier: Apache-2.0
"""Which instructions need hardware that a configuration may leave out."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.config import Config
from systola.arch.isa import LINK_OPCODES, Function, Opcode

_TRAINING = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
_WIDE_FLAGS = ("wide", "wide_operands", "wide_vectors", "wide_weights")


def unavailable(config: Config, opcode: Opcode, operands: Mapping[str, int]) -> str | None:
    """Why a machine of `config` answers the instruction with UNAVAILABLE; None if it does not.

    `operands` holds all fields of a legal instruction by name.
    """
    uses_table = opcode == Opcode.LOAD_TABLE or (
        opcode in (Opcode.ACTIVATE, Opcode.VECTOR) and operands["function"] == Function.TABLE
    )
    if uses_table and not config.tables:
        return f"configuration '{config.name}' has no tables"
    if opcode == Opcode.DEPTHWISE and not config.depthwise:
        return f"configuration '{config.name}' has no depthwise lanes"
    if not config.wide and any(operands.get(flag) for flag in _WIDE_FLAGS):
        return f"configuration '{config.name}' has no 16-bit modes"
    trains = (
        opcode in _TRAINING
        or operands.get("from_buffer")
        or operands.get("function") == Function.EXP
        or operands.get("exponent")
    )
    if trains and not config.training:
        return f"configuration '{config.name}' has no training"
    if opcode in LINK_OPCODES and not config.links:
        return f"configuration '{config.name}' has no links"
    return None
