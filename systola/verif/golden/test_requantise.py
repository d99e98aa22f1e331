# SPDX-License-Identifier: Apache-2.0
"""Tests of the arithmetic of Activate (requantisation) against exact fractions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.isa import Function, Rounding
from systola.golden.requantise import activate, requantise
from systola.verif.golden import scalar
from systola.verif.kit.seeds import random_seed

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
TOTALS = (
    *(0, 1, -1, 2, -2, 3, -3, 5, -5, 127, -128, 2**20 - 1, -(2**20) - 1),
    *(2**24 - 1, 2**24, -(2**24), -(2**24) - 1, 2**30 - 1, 2**30, -(2**30), -(2**30) - 1),
    *(INT32_MAX - 1, INT32_MAX, INT32_MIN, INT32_MIN + 1),
)
MULTIPLIERS = (0, 1, 3, 2**29, 2**30 - 1, 2**30, 2**30 + 1, 1518500250, 2**31 - 2, 2**31 - 1)

Case = tuple[int, int, int, int, int]
"""The operands of a requantisation: accumulator, bias, multiplier, left shift and right shift."""


def expected(case: Case, rounding: Rounding) -> int:
    accumulator, bias, q, left, right = case
    x = scalar.saturate32(scalar.wrap32(accumulator + bias) << left)
    by_exponent = scalar.single if rounding == Rounding.SINGLE else scalar.double
    return by_exponent(x, q, -right)


def check(cases: list[Case]) -> None:
    columns = np.array(cases, np.int64).T
    for rounding in Rounding:
        got = requantise(*columns, rounding=rounding)
        assert got.dtype == np.int64
        wrong = [
            (case, value)
            for case, value in zip(cases, got.tolist(), strict=True)
            if value != expected(case, rounding)
        ]
        assert not wrong, (rounding, wrong[:5])


def test_corners() -> None:
    check(
        [
            (total, 0, q, left, right)
            for total in TOTALS
            for q in MULTIPLIERS
            for left in (0, 1, 7)
            for right in range(32)
        ]
    )


def test_random() -> None:
    rng = random.Random(random_seed())
    check(
        [
            (
                scalar.wrap32(rng.getrandbits(32)) >> rng.randrange(32),
                scalar.wrap32(rng.getrandbits(32)) >> rng.randrange(32),
                rng.getrandbits(31),
                rng.randrange(8),
                rng.randrange(32),
            )
            for _ in range(20000)
        ]
    )


def test_exponent_form() -> None:
    """Check requantisation with an exponent in LiteRT's form.

    A positive exponent becomes the left shift, a negative one the right shift.
    """
    rng = random.Random(random_seed())
    for _ in range(2000):
        e = rng.randrange(-31, 8)
        x = rng.randrange(-(2**23), 2**23)  # x is so small that no left shift saturates
        q = rng.randrange(2**30, 2**31)
        shifts = (np.array([max(e, 0)]), np.array([max(-e, 0)]))
        for rounding, formula in (
            (Rounding.DOUBLE, scalar.double),
            (Rounding.SINGLE, scalar.single),
        ):
            got = requantise(np.array([x]), np.array([0]), np.array([q]), *shifts, rounding)
            assert got[0] == formula(x, q, e), (x, q, e, rounding)


@pytest.mark.parametrize(
    ("total", "q", "right", "double", "single"),
    [
        # 3 / 2 is computed by the multiplier alone: halves are rounded up, also below zero.
        (3, 2**30, 0, 2, 2),
        (-3, 2**30, 0, -1, -1),
        # -5 / 4, rounded twice: -2.5 becomes -2, its half is -1. Rounded once, -1.25 becomes -1.
        (-5, 2**30, 1, -1, -1),
        # 5 / 4, rounded twice: 2.5 becomes 3, its half 1.5 becomes 2. Rounded once, 1.25 becomes 1.
        (5, 2**30, 1, 2, 1),
        # -6 / 4, rounded twice: -3 is exact, its half -1.5 becomes -2. Rounded once it becomes -1.
        (-6, 2**30, 1, -2, -1),
        (INT32_MIN, 2**31 - 1, 0, INT32_MIN + 1, INT32_MIN + 1),
        (INT32_MIN, 2**30, 31, -1, 0),
        (INT32_MAX, 2**31 - 1, 31, 1, 1),
    ],
)
def test_by_hand(total: int, q: int, right: int, double: int, single: int) -> None:
    arguments = [np.array([value]) for value in (total, 0, q, 0, right)]
    assert requantise(*arguments, rounding=Rounding.DOUBLE).tolist() == [double]
    assert requantise(*arguments, rounding=Rounding.SINGLE).tolist() == [single]


def test_bias_wraps_before_the_shift_saturates() -> None:
    q, none = np.array([2**30]), np.array([0])
    low = requantise(np.array([INT32_MAX]), np.array([1]), q, none, none, Rounding.DOUBLE)
    assert low.tolist() == [-(2**30)]
    high = requantise(np.array([2**25]), none, q, np.array([7]), none, Rounding.DOUBLE)
    assert high.tolist() == [2**30]  # half of 2^31 - 1, rounded up
    low = requantise(np.array([-(2**25)]), none, q, np.array([7]), none, Rounding.SINGLE)
    assert low.tolist() == [-(2**30)]


def test_broadcasts_and_keeps_its_inputs() -> None:
    accumulator = np.full((3, 2, 4), 8, np.int32)
    bias = np.array([[[0, 2, 4, 6]]], np.int32)
    q = np.full((1, 1, 4), 2**30, np.int64)
    shift = np.zeros((1, 1, 4), np.uint8)
    got = requantise(accumulator, bias, q, shift, shift, Rounding.DOUBLE)
    assert got.shape == (3, 2, 4)
    assert (got == np.array([4, 5, 6, 7])).all()
    assert (accumulator == 8).all()


@pytest.mark.parametrize(
    ("function", "zero_point", "ceiling", "y", "result"),
    [
        (Function.NONE, 0, 0, [-129, -128, 127, 128, 2**31], [-128, -128, 127, 127, 127]),
        (Function.NONE, -5, 0, [-124, -123, 132, 133], [-128, -128, 127, 127]),
        (Function.RELU, -128, 0, [-1, 0, 1, 255, 256], [-128, -128, -127, 127, 127]),
        (Function.RELU, 10, 0, [-1, 0, 1, 117, 118], [10, 10, 11, 127, 127]),
        (Function.RELU6, 10, 20, [-1, 0, 1, 10, 11], [10, 10, 11, 20, 20]),
        (Function.RELU6, 10, 5, [-100, 0, 100], [5, 5, 5]),
        (Function.RELU6, 127, -128, [-(2**31), 0, 2**31], [-128, -128, -128]),
        (Function.RELU6, -3, -3, [-9, 0, 9], [-3, -3, -3]),
    ],
)
def test_clamp(
    function: Function, zero_point: int, ceiling: int, y: list[int], result: list[int]
) -> None:
    got = activate(np.array(y), function, zero_point, ceiling)
    assert got.dtype == np.int8
    assert got.tolist() == result


def test_table_is_indexed_by_bit_pattern() -> None:
    table = np.array([(7 * i + 3) % 256 for i in range(256)], np.uint8).view(np.int8)
    y = np.array([[0, 1, 126], [-1, -128, -300]])
    got = activate(y, Function.TABLE, 1, -128, table)
    # With the zero point 1, the results are entries 1, 2, 127 and 0, 129, 128 of the table. The
    # numbers 129 and 128 are the bit patterns of -127 and -128.
    patterns = [[10, 17, 892 % 256], [3, 906 % 256, 899 % 256]]
    assert got.tolist() == [[scalar.signed8(p) for p in row] for row in patterns]
    with pytest.raises(ValueError, match="table"):
        activate(y, Function.TABLE, 0, 0)
