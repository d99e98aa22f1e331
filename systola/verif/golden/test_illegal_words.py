# SPDX-License-Identifier: Apache-2.0
"""Tests of opcodes that do not exist, reserved bits, and operands that are illegal."""

from __future__ import annotations

import itertools
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
    ("word", "reserved"),
    [
        (encode(Opcode.NOP), (range(8, 128),)),
        (HALT, (range(8, 128),)),
        (encode(Opcode.SYNCHRONIZE), (range(8, 128),)),
        (encode(Opcode.INTERRUPT_HOST), (range(24, 128),)),
        (encode(Opcode.SYNCHRONIZE_HOST), (range(8, 128),)),
        (encode(Opcode.DEBUG_TAG), (range(28, 128),)),
        (requirement(), (range(56, 128),)),
        (encode(Opcode.SET_REGISTER, register=1), (range(17, 32), range(64, 128))),
        (encode(Opcode.LOOP, count=1), (range(11, 32), range(64, 128))),
        (encode(Opcode.END_LOOP), (range(8, 128),)),
        (encode(Opcode.SET_CONFIG_SCALE), (range(119, 128),)),
        (read(), (range(14, 16),)),
        (write(), (range(14, 16),)),
        (parameters(), (range(14, 32), range(88, 128))),
        (table(), (range(11, 32), range(68, 128))),
        (read_alternate(), (range(14, 16),)),
        (write_alternate(), (range(14, 16),)),
        (weights(), (range(11, 32), range(80, 128))),
        (multiply(), (range(21, 32),)),
        (convolve(), (range(15, 32),)),
        (activate(), (range(30, 32), range(124, 128))),
        (depthwise(), (range(17, 20),)),
        (pool(), (range(17, 20), range(108, 128))),
    ],
)
def test_reserved_bits(word: bytes, reserved: tuple[range, ...]) -> None:
    """Check that each bit outside the fields of its instruction must be 0, with bits counted by
    hand.
    """
    for bit in itertools.chain(*reserved):
        rig = Rig(TINY, tiles=1)
        assert rig.fault(weights(), patched(word, bit, 1, 1)) == (Fault.ILLEGAL_FIELD, 1, 0)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (TINY, patched(read(), 16, 0, 16)),  # the field rows is 0
        (TINY, patched(read(), 108, 0, 12)),  # the field blocks is 0
        (TINY, patched(read(), 120, 4, 8)),  # the tail has five bytes, but vectors have four
        (TINY, patched(write(), 16, 0, 16)),
        (TINY, patched(write(), 108, 0, 12)),
        (TINY, patched(write(), 120, 4, 8)),
        (TINY, patched(parameters(), 76, 0, 12)),  # the field count is 0
        (TINY, patched(weights(), 56, 0, 24)),  # the field count is 0
        (TINY, patched(multiply(), 88, 0, 16)),  # the field rows is 0
        (TINY, patched(multiply(), 104, 0, 12)),  # the field k_tiles is 0
        (TINY, patched(multiply(), 116, 0, 12)),  # the field n_tiles is 0
        (TINY, patched(activate(), 68, 0, 16)),  # the field rows is 0
        (TINY, patched(activate(), 112, 0, 12)),  # the field n_tiles is 0
        (TINY, patched(read_alternate(), 16, 0, 16)),
        (TINY, patched(read_alternate(), 108, 0, 12)),
        (TINY, patched(read_alternate(), 120, 4, 8)),
        (TINY, patched(write_alternate(), 120, 4, 8)),
        (TINY, patched(encode(Opcode.SET_REGISTER, register=1), 14, 0, 3)),
        (SQUARE, patched(convolve(), 88, 0, 12)),  # the field k_tiles is 0
        (SQUARE, patched(convolve(), 100, 0, 12)),  # the field n_tiles is 0
        (SQUARE, patched(depthwise(), 92, 0, 12)),  # the field blocks is 0
        (SQUARE, patched(pool(), 96, 0, 12)),  # the field blocks is 0
        (SQUARE, patched(vector(), 92, 0, 16)),  # the field rows is 0
        *((SQUARE, patched(Windows().word, bit, 0, 12)) for bit in (8, 20, 32, 104, 116)),
        *((SQUARE, patched(Windows().word, bit, 0, 8)) for bit in (44, 52)),  # a kernel of size 0
        *((SQUARE, patched(Windows().word, bit, 0, 8)) for bit in (60, 68)),  # a stride of 0
        *((SQUARE, patched(Windows().word, bit, 0, 4)) for bit in (76, 80)),  # a dilation of 0
        # Reduction 3 does not exist.
        (SQUARE, pool(reduction=3)),
        # These combinations of fields are illegal.
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
        # Without attention, a quotient (function 7) needs training and a Vector MULTIPLY.
        *((SQUARE, word(function=7, wide=wide)) for word in (activate, vector) for wide in (0, 1)),
        (SQUARE, vector(function=7, operation=Operation.MULTIPLY)),
        *((TRAINING, activate(function=7, wide=wide)) for wide in (0, 1)),
        *(
            (TRAINING, vector(function=7, wide=1, operation=operation))
            for operation in Operation
            if operation != Operation.MULTIPLY
        ),
        (TRAINING, vector(function=7, operation=Operation.MULTIPLY, accumulate=1)),
        # These fields are illegal also on machines without the hardware for them.
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
        (TINY, read(tail=256)),
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
