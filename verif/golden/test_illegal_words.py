# SPDX-License-Identifier: Apache-2.0
"""Tests of opcodes that do not exist, reserved bits, and operands that are illegal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Function, Opcode, Operation, encode
from systola.verif.golden.rig import HALT, PLAIN_TALL, SQUARE, TINY, TRAINING, Rig
from systola.verif.golden.windows import Windows
from systola.verif.golden.words import (
    NO_TABLES,
    WIDE,
    activate,
    convolve,
    depthwise,
    multiply,
    parameters,
    patched,
    pool,
    read,
    read_alternate,
    requirement,
    table,
    vector,
    weights,
    write,
    write_alternate,
)


@pytest.mark.parametrize("opcode", sorted(set(range(256)) - {int(code) for code in Opcode}))
def test_illegal_opcode(opcode: int) -> None:
    word = bytes([opcode]) + b"\xff" * 15
    assert Rig(TINY).fault(word) == (Fault.ILLEGAL_OPCODE, 0, opcode)


@pytest.mark.parametrize(
    ("word", "width"),
    [
        (encode(Opcode.NOP), 8),
        (HALT, 8),
        (encode(Opcode.SYNCHRONIZE), 8),
        (encode(Opcode.INTERRUPT_HOST), 24),
        (encode(Opcode.SYNCHRONIZE_HOST), 8),
        (encode(Opcode.DEBUG_TAG), 28),
        (requirement(), 44),
        (encode(Opcode.SET_REGISTER, register=1), 49),
        (encode(Opcode.LOOP, count=1), 43),
        (encode(Opcode.END_LOOP), 8),
        (encode(Opcode.SET_CONFIG_SCALE), 119),
        (read(), 127),
        (write(), 127),
        (parameters(), 70),
        (table(), 47),
        (read_alternate(), 127),
        (write_alternate(), 127),
        (weights(), 59),
        (multiply(), 117),
        (convolve(), 111),
        (activate(), 122),
        (depthwise(), 125),
        (pool(), 105),
        (vector(), 128),
    ],
)
def test_reserved_bits(word: bytes, width: int) -> None:
    """Set every bit above the fields, which are counted by hand here."""
    for bit in range(width, 128):
        rig = Rig(TINY, tiles=1)
        assert rig.fault(weights(), patched(word, bit, 1, 1)) == (Fault.ILLEGAL_FIELD, 1, 0)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (TINY, patched(read(), 60, 0, 16)),  # rows
        (TINY, patched(read(), 100, 0, 12)),  # blocks
        (TINY, patched(read(), 112, 0, 9)),  # tail
        (TINY, patched(write(), 60, 0, 16)),
        (TINY, patched(write(), 100, 0, 12)),
        (TINY, patched(write(), 112, 0, 9)),
        (TINY, patched(parameters(), 52, 0, 12)),  # count
        (TINY, patched(weights(), 32, 0, 24)),  # count
        (TINY, patched(multiply(), 44, 0, 16)),  # rows
        (TINY, patched(multiply(), 60, 0, 12)),  # k_tiles
        (TINY, patched(multiply(), 72, 0, 12)),  # n_tiles
        (TINY, patched(activate(), 44, 0, 16)),  # rows
        (TINY, patched(activate(), 60, 0, 12)),  # n_tiles
        (TINY, patched(read_alternate(), 60, 0, 16)),
        (TINY, patched(read_alternate(), 100, 0, 12)),
        (TINY, patched(read_alternate(), 112, 0, 9)),
        (TINY, patched(write_alternate(), 112, 0, 9)),
        (TINY, patched(encode(Opcode.SET_REGISTER, register=1), 8, 0, 3)),
        (SQUARE, patched(convolve(), 64, 0, 12)),  # k_tiles
        (SQUARE, patched(convolve(), 76, 0, 12)),  # n_tiles
        (SQUARE, patched(depthwise(), 68, 0, 12)),  # blocks
        (SQUARE, patched(pool(), 48, 0, 12)),  # blocks
        (SQUARE, patched(vector(), 70, 0, 16)),  # rows
        *((SQUARE, patched(Windows().word, bit, 0, 12)) for bit in (8, 20, 32, 104, 116)),
        *((SQUARE, patched(Windows().word, bit, 0, 8)) for bit in (44, 52)),  # kernel
        *((SQUARE, patched(Windows().word, bit, 0, 7)) for bit in (60, 67)),  # strides
        *((SQUARE, patched(Windows().word, bit, 0, 4)) for bit in (74, 78)),  # dilations
        # a value that has no name
        (SQUARE, pool(reduction=3)),
        # combinations
        (SQUARE, depthwise(function=Function.TABLE)),
        *(
            (SQUARE, word(**changes))
            for word in (activate, vector)
            for changes in (
                {"accumulate": 1},
                {"function": Function.SIGMOID},
                {"function": Function.TANH},
                {"function": Function.EXP},
                {"function": Function.RELU, "wide": 1},
                {"function": Function.RELU6, "wide": 1},
                {"function": Function.TABLE, "wide": 1},
                {"function": Function.TANH, "wide": 1, "table": 5},
                {"function": Function.EXP, "wide": 1, "table": 5},
            )
        ),
        # a quotient but for Vector with MULTIPLY, and where there is no training
        *((SQUARE, word(function=7, wide=wide)) for word in (activate, vector) for wide in (0, 1)),
        (SQUARE, vector(function=7, operation=Operation.MULTIPLY)),
        *((TRAINING, activate(function=7, wide=wide)) for wide in (0, 1)),
        *(
            (TRAINING, vector(function=7, wide=1, operation=operation))
            for operation in Operation
            if operation != Operation.MULTIPLY
        ),
        (TRAINING, vector(function=7, operation=Operation.MULTIPLY, accumulate=1)),
        # the same where the hardware is missing
        (TINY, activate(function=Function.TANH, wide=1, table=5)),
        (TRAINING, activate(function=Function.TANH, wide=1, table=5)),
        (TRAINING, vector(function=Function.EXP, wide=1, table=7)),
        (TINY, vector(function=Function.RELU, wide=1)),
        (TINY, depthwise(function=Function.TABLE)),
        (NO_TABLES, vector(function=Function.TABLE, wide=1)),
        (TINY, read_alternate(tail=5)),
        (TINY, write_alternate(tail=5)),
        (PLAIN_TALL, read_alternate(tail=7)),
        (PLAIN_TALL, write_alternate(tail=4)),
        (TINY, read_alternate(host=2)),
        (TINY, write_alternate(stride=2)),
        (PLAIN_TALL, read(tail=7)),
        (PLAIN_TALL, write(tail=4)),
        (WIDE, read(tail=4)),
        (WIDE, write(tail=7)),
        (TINY, read(tail=511)),
        (TINY, read(host=2)),
        (TINY, read(stride=2)),
        (TINY, write(host=1)),
        (TINY, write(stride=0xFFFFFF)),
        (TINY, parameters(host=0xFFFFFFFF)),
        (TINY, table(host=6)),
        (preset("base"), read(host=8)),
        (preset("base"), table(host=8)),
    ],
)
def test_illegal_field(config: Config, word: bytes) -> None:
    rig = Rig(config, tiles=1)
    assert rig.fault(weights(), word, HALT) == (Fault.ILLEGAL_FIELD, 1, 0)


def test_longest_tails_are_legal() -> None:
    for reading, writing in ((read, write), (read_alternate, write_alternate)):
        Rig(PLAIN_TALL).complete(reading(tail=6), writing(tail=3), HALT)
        Rig(WIDE).complete(reading(tail=3), writing(tail=6), HALT)


@pytest.mark.parametrize("word", [activate, vector])
def test_legal_combinations(word: Callable[..., bytes]) -> None:
    rig = Rig(SQUARE)
    for changes in (
        {"wide": 1, "accumulate": 1},
        {"wide": 1, "accumulate": 1, "function": Function.SIGMOID, "table": 15},
        {"wide": 1, "function": Function.TANH, "table": 4},
        {"wide": 1, "function": Function.TANH},
    ):
        rig.complete(word(**changes), HALT)
