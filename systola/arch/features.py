# SPDX-License-Identifier: Apache-2.0
"""Hardware that a configuration may leave out, and the instructions that need it."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, Function, Hardware, Opcode

_WIDE_FLAGS = ("wide", "wide_operands", "wide_vectors", "wide_weights")


def unavailable(config: Config, opcode: Opcode, operands: Mapping[str, int]) -> str | None:
    """Return the reason why a machine of `config` answers the instruction with UNAVAILABLE.

    Returns None if the machine executes it. `operands` has all fields of a legal instruction by
    name.
    """
    needs = BY_OPCODE[opcode].needs
    if needs and not has(config, needs):
        return f"configuration '{config.name}' has no {needs}"
    uses_table = (
        opcode in (Opcode.ACTIVATE, Opcode.VECTOR) and operands["function"] == Function.TABLE
    )
    if uses_table and not config.tables:
        return f"configuration '{config.name}' has no tables"
    if not config.wide and any(operands.get(flag) for flag in _WIDE_FLAGS):
        return f"configuration '{config.name}' has no 16-bit modes"
    trains = (
        operands.get("from_buffer")
        or operands.get("function") == Function.EXP
        or operands.get("exponent")
    )
    if trains and not config.training:
        return f"configuration '{config.name}' has no training"
    return None


def has(config: Config, hardware: Hardware) -> bool:
    """Return whether a machine of `config` has `hardware`."""
    return bool(getattr(config, hardware.name.lower()))
