# SPDX-License-Identifier: Apache-2.0
"""Tests of the instructions that need hardware which a configuration may leave out."""

from __future__ import annotations

import dataclasses

import pytest

from systola.arch.config import Config, preset
from systola.arch.features import unavailable
from systola.arch.isa import BY_OPCODE, LINK_OPCODES, Function, Opcode

BASE = preset("base-training-links")
LACKING: dict[str, Config] = {
    "tables": dataclasses.replace(BASE, name="bare", tables=0, training=False),
    "depthwise lanes": dataclasses.replace(BASE, name="bare", depthwise=False),
    "16-bit modes": dataclasses.replace(BASE, name="bare", wide=False, training=False),
    "training": dataclasses.replace(BASE, name="bare", training=False),
    "links": dataclasses.replace(BASE, name="bare", links=False),
}
TABLE = {"function": Function.TABLE}
NEEDS: list[tuple[Opcode, dict[str, int], str]] = [
    (Opcode.LOAD_TABLE, {}, "tables"),
    (Opcode.ACTIVATE, TABLE, "tables"),
    (Opcode.VECTOR, TABLE, "tables"),
    (Opcode.DEPTHWISE, {}, "depthwise lanes"),
    (Opcode.MATRIX_MULTIPLY, {"wide_vectors": 1}, "16-bit modes"),
    (Opcode.MATRIX_MULTIPLY, {"wide_weights": 1}, "16-bit modes"),
    (Opcode.ACTIVATE, {"wide": 1}, "16-bit modes"),
    (Opcode.VECTOR, {"wide": 1}, "16-bit modes"),
    (Opcode.VECTOR, {"wide_operands": 1}, "16-bit modes"),
    (Opcode.MEASURE, {}, "training"),
    (Opcode.TRANSPOSE, {}, "training"),
    (Opcode.RANDOM, {}, "training"),
    (Opcode.MATRIX_MULTIPLY, {"from_buffer": 1}, "training"),
    (Opcode.ACTIVATE, {"exponent": 1}, "training"),
    (Opcode.VECTOR, {"exponent": 1}, "training"),
    (Opcode.ACTIVATE, {"function": Function.EXP}, "training"),
    (Opcode.VECTOR, {"function": Function.EXP}, "training"),
    *((opcode, {}, "links") for opcode in sorted(LINK_OPCODES)),
]


def operands(opcode: Opcode, changes: dict[str, int]) -> dict[str, int]:
    """Return values for all fields of an instruction: the given values, and zeros."""
    return {field.name: 0 for field in BY_OPCODE[opcode].fields} | changes


@pytest.mark.parametrize(("opcode", "changes", "part"), NEEDS)
def test_needs(opcode: Opcode, changes: dict[str, int], part: str) -> None:
    fields = operands(opcode, changes)
    assert unavailable(BASE, opcode, fields) is None
    for lacking, config in LACKING.items():
        lacks = lacking == part or (part == "training" and not config.training)
        expected = f"configuration 'bare' has no {part}" if lacks else None
        assert unavailable(config, opcode, fields) == expected


def test_all_else_is_everywhere() -> None:
    bare = dataclasses.replace(preset("base"), name="bare", tables=0, depthwise=False, wide=False)
    needing = (Opcode.LOAD_TABLE, Opcode.DEPTHWISE)
    trains = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
    for opcode in BY_OPCODE:
        if opcode not in (*needing, *trains, *LINK_OPCODES):
            assert unavailable(bare, opcode, operands(opcode, {})) is None
