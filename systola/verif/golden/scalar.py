# SPDX-License-Identifier: Apache-2.0
"""A second version of the machine's arithmetic and copies, in plain Python integers and loops.

The tests take their expected values from here, never from systola.golden. The requantisation is
published in gemmlowp and LiteRT: SRDHM, RDBPOT and the exponent of QuantizeMultiplier.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor

from systola.arch.isa import Function, Rounding
from systola.verif.golden import gemmlowp


def wrap32(value: int) -> int:
    """Return `value` modulo 2^32 as a signed number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def signed8(byte: int) -> int:
    """Return the int8 with bit pattern `byte`."""
    return byte - 256 if byte > 127 else byte


def saturate32(value: int) -> int:
    """Return the int32 that is nearest to `value`."""
    return max(-(2**31), min(2**31 - 1, value))


def srdhm(a: int, q: int) -> int:
    """Return a * q / 2^31, halves rounded upwards: gemmlowp's rounding doubling high
    multiplication.
    """
    return floor(Fraction(a * q, 2**31) + Fraction(1, 2))


def rdbpot(x: int, r: int) -> int:
    """Return x / 2^r, halves rounded away from zero."""
    magnitude = floor(Fraction(abs(x), 2**r) + Fraction(1, 2))
    return -magnitude if x < 0 else magnitude


def double(x: int, q: int, e: int) -> int:
    """Return x * q * 2^(e - 31) with the two roundings of gemmlowp."""
    return rdbpot(srdhm(x << max(e, 0), q), max(-e, 0))


def single(x: int, q: int, e: int) -> int:
    """Return x * q * 2^(e - 31) rounded once, halves upwards."""
    return floor(Fraction(x * q, 1) * Fraction(2) ** (e - 31) + Fraction(1, 2))


def clamped(y: int, low: int, high: int) -> int:
    """Return `y` limited to [low, high], or `high` if the bounds cross."""
    return high if y > high or low > high else max(y, low)


def product(x: list[list[int]], w: list[list[int]]) -> list[list[int]]:
    """Return the matrix product x w modulo 2^32, row by row."""
    columns = list(zip(*w, strict=True))
    return [
        [wrap32(sum(a * b for a, b in zip(row, column, strict=True))) for column in columns]
        for row in x
    ]


def int16(low: int, high: int) -> int:
    """Return the int16 with a low and a high byte, both given as int8."""
    return high * 256 + low % 256


def low_byte(value: int) -> int:
    """Return the low byte of an int16 as int8."""
    return signed8(value % 256)


def high_byte(value: int) -> int:
    """Return the high byte of an int16 as int8."""
    return floor(Fraction(value, 256))


@dataclass(frozen=True)
class Entry:
    """One channel of a parameter entry: bias, multiplier, and left and right shift."""

    bias: int
    multiplier: int
    left: int
    right: int

    def requantised(self, s: int, rounding: Rounding) -> int:
        """Return the scaled value that Activate computes from an accumulator's sum `s`."""
        x = saturate32(wrap32(s + self.bias) << self.left)
        formula = single if rounding == Rounding.SINGLE else double
        return formula(x, self.multiplier, -self.right)


def activated(
    y: int, function: Function, zero_point: int, ceiling: int, table: list[int] | None = None
) -> int:
    """Return the int8 result of Activate for the scaled sum `y`.

    `table` holds int8 values in the order of Load_Table.
    """
    low = zero_point if function in (Function.RELU, Function.RELU6) else -128
    high = ceiling if function == Function.RELU6 else 127
    v = clamped(y + zero_point, low, high)
    if function == Function.TABLE:
        assert table is not None
        return table[v % 256]
    return v


def activated_wide(y: int, function: Function, addend: int, integer_bits: int) -> int:
    """Return the int16 result of Activate for the scaled sum `y`."""
    v = clamped(y + addend, -32768, 32767)
    if function == Function.SIGMOID:
        return gemmlowp.logistic(v, 3)
    if function == Function.TANH:
        return gemmlowp.tanh(v, integer_bits)
    return v
