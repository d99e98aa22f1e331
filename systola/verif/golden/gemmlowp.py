# SPDX-License-Identifier: Apache-2.0
"""The functions `logistic` and `tanh` of gemmlowp for one int16, in plain integers that behave as
in C++.

The functions are written from the description of fixedpoint/fixedpoint.h, step by step. They are
independent of the golden model, which works on whole arrays. With i integer bits, a
number has 15 - i fractional bits."""

from __future__ import annotations

from fractions import Fraction
from math import exp, floor

ONE = 32767
"""The largest number with no integer bits, which is the nearest to 1.0."""


def int16(value: int) -> int:
    """Return `value` wrapped to an int16 variable of C++."""
    return (value + 32768) % 65536 - 32768


def saturated(value: int) -> int:
    """Return the int16 that is nearest to `value`."""
    return min(32767, max(-32768, value))


def truncated(numerator: int, denominator: int) -> int:
    """Divide as C++ does, rounding towards zero; `denominator` is positive."""
    quotient = abs(numerator) // denominator
    return -quotient if numerator < 0 else quotient


def product(a: int, b: int) -> int:
    """Compute gemmlowp's SaturatingRoundingDoublingHighMul."""
    if a == b == -32768:
        return 32767
    nudge = 1 << 14 if a * b >= 0 else 1 - (1 << 14)
    return truncated(a * b + nudge, 1 << 15)


def by_power_of_two(x: int, exponent: int) -> int:
    """Compute SaturatingRoundingMultiplyByPOT: a saturating left or a rounding right shift."""
    if exponent >= 0:
        return saturated(x << exponent)
    mask = (1 << -exponent) - 1
    threshold = (mask >> 1) + (x < 0)
    return (x >> -exponent) + ((x & mask) > threshold)


def constant(value: float, integer_bits: int) -> int:
    """Return the number with `integer_bits` integer bits that is nearest to `value`.

    No constant in use here lies half way between two numbers.
    """
    return floor(Fraction(value) * 2 ** (15 - integer_bits) + Fraction(1, 2))


def exp_between_minus_quarter_and_zero(a: int) -> int:
    """Return exp(a) for `a` in [-1/4, 0), with no integer bits in the argument and the result."""
    term, third = constant(exp(-1 / 8), 0), constant(1 / 3, 0)
    x = int16(a + (1 << 12))
    x2 = product(x, x)
    x3 = product(x2, x)
    x4_over_4 = by_power_of_two(product(x2, x2), -2)
    rest = by_power_of_two(int16(product(int16(x4_over_4 + x3), third) + x2), -1)
    return saturated(term + product(term, int16(x + rest)))


def exp_on_negative_values(a: int, integer_bits: int) -> int:
    """Return exp(a) for `a` <= 0, which has `integer_bits` integer bits; the result has none."""
    if a == 0:
        return ONE
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    part = (a & (quarter - 1)) - quarter
    result = exp_between_minus_quarter_and_zero(by_power_of_two(part, integer_bits))
    remainder = int16(part - a)
    for exponent in range(-2, 5):
        if integer_bits > exponent and remainder & 1 << (fraction_bits + exponent):
            result = product(result, constant(exp(-(2.0**exponent)), 0))
    return result


def reciprocal_of_half_sum(a: int) -> int:
    """Return 2 / (1 + a) with two integer bits, for `a` in [0, 1) with no integer bits."""
    total = a + ONE
    half_denominator = truncated(total + (1 if total >= 0 else -1), 2)
    x = int16(constant(48 / 17, 2) + product(half_denominator, constant(-32 / 17, 2)))
    for _ in range(3):
        error = int16((1 << 13) - product(half_denominator, x))
        x = int16(x + by_power_of_two(product(x, error), 2))
    return x


def logistic(a: int, integer_bits: int) -> int:
    """Return the logistic function of `a`; the result has no integer bits."""
    if a == 0:
        return 1 << 14
    magnitude = a if a > 0 else int16(-a)
    exponential = exp_on_negative_values(int16(-magnitude), integer_bits)
    positive = by_power_of_two(reciprocal_of_half_sum(exponential), 1)
    return positive if a > 0 else int16(ONE - positive)


def tanh(a: int, integer_bits: int) -> int:
    """Return the hyperbolic tangent of `a`; the result has no integer bits."""
    if a == 0:
        return 0
    # The same bits, read with one integer bit more, are twice the number.
    exponential = exp_on_negative_values(a if a < 0 else int16(-a), integer_bits + 1)
    t = by_power_of_two(int16(reciprocal_of_half_sum(exponential) - (1 << 13)), 2)
    return int16(-t) if a < 0 else t
