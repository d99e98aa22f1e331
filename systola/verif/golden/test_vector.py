# SPDX-License-Identifier: Apache-2.0
"""Tests of Vector against loops, for int8 and int16; results may replace an operand."""

from __future__ import annotations

import random
from math import floor

import numpy as np
import pytest

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, SHAPES, SQUARE, TRAINING, Rig
from systola.verif.kit.seeds import random_seed


def scaled(x: int, multiplier: int, shift: int, wide: int) -> int:
    """Return an operand scaled as in LiteRT: times 2^20 (int16: 2^15), multiplier and shift."""
    return scalar.rdbpot(scalar.srdhm(x * (2**15 if wide else 2**20), multiplier), shift)


def random_scale(rng: random.Random) -> dict[str, int]:
    return {
        "multiplier_a": rng.getrandbits(31) | rng.choice((0, 1 << 30)),
        "shift_a": rng.choice((0, 1, 2, 8, 31)),
        "multiplier_b": rng.getrandbits(31) | rng.choice((0, 1 << 30)),
        "shift_b": rng.choice((0, 1, 2, 8, 31)),
        "zero_a": rng.randint(-128, 127),
        "zero_b": rng.randint(-128, 127),
        "ceiling": rng.randint(-128, 127),
        "limit": rng.choice((0, rng.getrandbits(15), 32767)),
    }


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    rig = Rig(config)
    for _ in range(200):
        operation, rounding = rng.choice(list(Operation)), rng.choice(list(Rounding))
        wide, wide_operands = rng.randrange(2), rng.randrange(2)
        accumulate = wide and rng.randrange(2)
        if wide:
            function = rng.choice((Function.NONE, Function.NONE, Function.SIGMOID, Function.TANH))
        else:
            function = rng.choice((Function.NONE, Function.RELU, Function.RELU6, Function.TABLE))
        rows = rng.randint(1, 6)
        source, result = (1 + wide_operands) * rows, (1 + wide) * rows
        a = rng.randrange(20)
        b = rng.choice((a, a + 1, a + source, a + 100))
        places = [300]
        if source == result:  # results may replace an operand that equals the other, or lies apart
            places += [a] if b == a or b >= a + source or operation == Operation.COPY else []
            places += [b] if b >= a + source else []
        scale = random_scale(rng)
        at = {
            "buffer": a,
            "operand": b,
            "destination": rng.choice(places),
            "rows": rows,
            "parameter": rng.randrange(config.parameter_entries),
            "zero_point": rng.randint(-128, 127),
            "table": rng.randrange(5 if function == Function.TANH else 2),
            "wide_operands": wide_operands,
            "wide": wide,
            "accumulate": accumulate,
        }
        rig.randomise(rng)
        lines, expected = rig.lines(), rig.lines()
        table: list[int] = rig.machine.tables[at["table"] % 2].tolist()
        for m in range(rows):
            low, high = [0] * config.line_bytes, [0] * config.line_bytes
            for c in range(config.cols):
                x: list[int] = []
                for operand, zero in (("buffer", "zero_a"), ("operand", "zero_b")):
                    if wide_operands:
                        first = at[operand] + 2 * m
                        value = scalar.int16(lines[first][c], lines[first + 1][c])
                    else:
                        value = lines[at[operand] + m][c]
                    x.append(value - scale[zero])
                first_term = scaled(x[0], scale["multiplier_a"], scale["shift_a"], wide_operands)
                second_term = scaled(x[1], scale["multiplier_b"], scale["shift_b"], wide_operands)
                s = {
                    Operation.COPY: x[0],
                    Operation.ADD: first_term + second_term,
                    Operation.SUBTRACT: first_term - second_term,
                    Operation.MULTIPLY: x[0] * x[1],
                }[operation]
                y = rig.entry(at["parameter"], c).requantised(scalar.wrap32(s), rounding)
                if wide:
                    line = at["destination"] + 2 * m
                    addend = at["zero_point"]
                    if accumulate:
                        addend = scalar.int16(lines[line][c], lines[line + 1][c])
                    v = scalar.activated_wide(y, function, addend, at["table"])
                    if function == Function.NONE and scale["limit"]:
                        v = scalar.clamped(v, -scale["limit"], scale["limit"])
                    low[c], high[c] = scalar.low_byte(v), scalar.high_byte(v)
                else:
                    low[c] = scalar.activated(
                        y, function, at["zero_point"], scale["ceiling"], table
                    )
            if wide:
                expected[at["destination"] + 2 * m] = low
                expected[at["destination"] + 2 * m + 1] = high
            else:
                expected[at["destination"] + m] = low
        word = encode(
            Opcode.VECTOR, **at, operation=operation, function=function, rounding=rounding
        )
        rig.complete(encode(Opcode.SET_CONFIG_SCALE, **scale), word, HALT)
        assert rig.lines() == expected, (operation, function, rounding, at, scale)


def magnitude_bits(x: int) -> int:
    """Return the smallest n with -2^n <= x < 2^n."""
    return next(n for n in range(40) if -(2**n) <= x < 2**n)


@pytest.mark.parametrize("wide_operands", [0, 1])
@pytest.mark.parametrize("wide", [0, 1])
def test_quotients(wide_operands: int, wide: int) -> None:
    """Check quotients: operand b divided by the power of two above operand a, with any rounding.

    Operands include the least and the largest numbers.
    """
    rng = random.Random(random_seed())
    rig, ends = Rig(TRAINING), [-32768, 32767, -1, 0, 1, -2, 2, 16383, 16384, -16384, -16385]
    if not wide_operands:
        ends = [-128, 127, -1, 0, 1, 63, 64, -64, -65]
    for zero_a in (0, -128, 127, 5):
        for rounding in Rounding:
            zero_b, limit = rng.choice((0, -128, 127)), rng.choice((0, 100))
            accumulate = wide and rng.randrange(2)
            rig.randomise(rng)
            for c in range(4):
                for line, x in enumerate(rng.choice(ends) for _ in range(2)):
                    low, high = scalar.low_byte(x), scalar.high_byte(x)
                    rig.machine.buffer[2 * line : 2 * line + 2, c] = low, high
            lines = rig.lines()
            expected: list[int] = []
            for c in range(4):
                x1, x2 = (scalar.int16(lines[at][c], lines[at + 1][c]) for at in (0, 2))
                if not wide_operands:
                    x1, x2 = lines[0][c], lines[2][c]
                s = (x2 - zero_b) * floor(2 ** (15 - magnitude_bits(x1 - zero_a)))
                y = rig.entry(3, c).requantised(s, rounding)
                if wide:
                    addend = scalar.int16(lines[20][c], lines[21][c]) if accumulate else -7
                    v = scalar.clamped(y + addend, -32768, 32767)
                    expected.append(scalar.clamped(v, -limit, limit) if limit else v)
                else:
                    expected.append(scalar.clamped(y - 7, -128, 127))
            scale = {"zero_a": zero_a, "zero_b": zero_b, "limit": limit, "ceiling": -100}
            at = {"buffer": 0, "operand": 2, "destination": 20, "rows": 1, "parameter": 3}
            how = {"wide_operands": wide_operands, "wide": wide, "accumulate": accumulate}
            word = encode(
                Opcode.VECTOR,
                **{"operation": Operation.MULTIPLY, "function": Function.QUOTIENT},
                **{"rounding": rounding, "zero_point": -7},
                **at,
                **how,
            )
            rig.complete(encode(Opcode.SET_CONFIG_SCALE, **scale), word, HALT)
            found = rig.lines()
            there = [
                scalar.int16(found[20][c], found[21][c]) if wide else found[20][c] for c in range(4)
            ]
            assert there == expected, (zero_a, rounding)


def test_quotient_by_hand() -> None:
    """Check 1000, -1000, 1002 and 1000 divided by the powers of two above 0, 1, 3 and 500.

    These powers are 2^0, 2^1, 2^2 and 2^9. Halves are rounded up.
    """
    rig = Rig(TRAINING)
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=0, right=14))
    rig.machine.buffer[0:2] = np.array([0, 1, 3, 500], "<i2").view(np.int8).reshape(4, 2).T
    rig.machine.buffer[2:4] = (
        np.array([1000, -1000, 1002, 1000], "<i2").view(np.int8).reshape(4, 2).T
    )
    at = {"buffer": 0, "operand": 2, "destination": 2, "rows": 1, "parameter": 0}
    word = encode(
        *(Opcode.VECTOR,),
        **{"operation": Operation.MULTIPLY, "function": Function.QUOTIENT, "rounding": 1},
        **{"wide_operands": 1, "wide": 1, **at},
    )
    rig.complete(word, HALT)
    result = rig.machine.buffer[2:4].T.copy().view("<i2").reshape(-1)
    assert result.tolist() == [1000, -500, 251, 2]


def test_residual_add_by_hand() -> None:
    """Check a network's ADD: scales 0.5 and 0.25, result scale 0.5, zero points 3, -5 and 10."""
    rig = Rig(SQUARE)
    # LiteRT's common scale is twice the largest: 1. So the operands' factors are 0.5 and 0.25,
    # and the factor of the result is 1 / (2^20 * 0.5) = 2^-19.
    scale = encode(
        Opcode.SET_CONFIG_SCALE,
        **{"multiplier_a": 2**30, "shift_a": 0, "multiplier_b": 2**30, "shift_b": 1},
        **{"zero_a": 3, "zero_b": -5},
    )
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=0, right=18))
    rig.machine.buffer[0] = [13, 3, -100, 127]
    rig.machine.buffer[1] = [15, -4, 40, 127]
    at = {"operation": Operation.ADD, "buffer": 0, "operand": 1, "rows": 1, "parameter": 0}
    rig.complete(scale, encode(Opcode.VECTOR, **at, destination=0, zero_point=10), HALT)
    # Element 0: 0.5 * 10 + 0.25 * 20 = 10 = 20 * 0.5. The other sums are 0.25, -40.25 and 95:
    # the halves among the results are rounded away from zero.
    assert rig.machine.buffer[0].tolist() == [30, 11, -71, 127]


@pytest.mark.parametrize("wide_operands", [0, 1])
def test_ties(wide_operands: int) -> None:
    """Check that the first of two roundings takes halves upwards, and the second away from zero."""
    rig = Rig(SQUARE)
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=1, right=0))
    values, signs = [5, -5, 7, -7], [0, -1, 0, -1]
    rig.machine.buffer[0:4] = [values, signs, [0] * 4, [0] * 4]
    if not wide_operands:
        rig.machine.buffer[0:4] = [values, [0] * 4, values, [0] * 4]
    half = 2**15 if wide_operands else 2**10
    at = {"operation": Operation.ADD, "buffer": 0, "operand": 3 - wide_operands, "rows": 1}
    word = encode(Opcode.VECTOR, **at, destination=9, parameter=0, wide_operands=wide_operands)
    for shift, expected in ((0, [3, -2, 4, -3]), (1, [2, -1, 2, -2])):
        rig.complete(encode(Opcode.SET_CONFIG_SCALE, multiplier_a=half, shift_a=shift), word, HALT)
        assert rig.machine.buffer[9].tolist() == expected


def test_limit_of_the_cell_state() -> None:
    rig = Rig(SQUARE)
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=1, right=0))
    low, high = [0, 1, 0, 0], [0x50, 0x50, -0x50, -128]
    rig.machine.buffer[0:2] = [low, high]
    at = {"operation": Operation.COPY, "buffer": 0, "rows": 1, "parameter": 0}
    word = encode(Opcode.VECTOR, **at, destination=0, wide_operands=1, wide=1)
    rig.complete(encode(Opcode.SET_CONFIG_SCALE, limit=0x5000), word, HALT)
    assert rig.machine.buffer[0].tolist() == [0, 0, 0, 0]
    assert rig.machine.buffer[1].tolist() == [0x50, 0x50, -0x50, -0x50]
    rig.machine.buffer[0:2] = [low, high]
    rig.complete(word, HALT)
    assert rig.machine.buffer[0:2].tolist() == [low, high]


def test_sums_wrap() -> None:
    """Check that sums beyond 32 bits wrap: only wide operands with shifts of 0 have such sums."""
    rig = Rig(SQUARE)
    rig.machine.buffer[0:2] = [[-1] * 4, [127] * 4]  # all elements are 32767
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=0, right=16))
    largest = {"multiplier_a": 2**31 - 1, "multiplier_b": 2**31 - 1}
    scale = encode(Opcode.SET_CONFIG_SCALE, **largest, zero_a=-128, zero_b=-128)
    at = {"operation": Operation.ADD, "buffer": 0, "operand": 0, "destination": 2, "rows": 1}
    word = encode(Opcode.VECTOR, **at, parameter=0, wide_operands=1, wide=1)
    rig.complete(scale, word, HALT)
    term = (32895 * (2**31 - 1) + 2**15) >> 16
    total = 2 * term - 2**32
    assert -(2**31) <= total < 0
    expected = scalar.rdbpot(scalar.srdhm(total, 2**30), 16)
    assert rig.machine.buffer[2:4, 0].tolist() == [
        np.int8(expected % 256 - 256 * (expected % 256 > 127)),
        floor(expected / 256),
    ]
