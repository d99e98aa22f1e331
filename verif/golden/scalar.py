# SPDX-License-Identifier: Apache-2.0
"""The arithmetic and the copies of the machine once more, in plain Python integers and loops.

Expectations of the tests come from here, never from systola.golden. The requantisation is the
published one of gemmlowp and LiteRT: SRDHM, RDBPOT and the exponent of QuantizeMultiplier.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor


def wrap32(value: int) -> int:
    """`value` modulo 2^32 as a signed number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def signed8(byte: int) -> int:
    """The int8 with bit pattern `byte`."""
    return byte - 256 if byte > 127 else byte


def saturate32(value: int) -> int:
    """`value` or the nearest int32."""
    return max(-(2**31), min(2**31 - 1, value))


def srdhm(a: int, q: int) -> int:
    """Rounding doubling high multiplication: a * q / 2^31, halves upwards."""
    return floor(Fraction(a * q, 2**31) + Fraction(1, 2))


def rdbpot(x: int, r: int) -> int:
    """Rounding division by 2^r, halves away from zero."""
    magnitude = floor(Fraction(abs(x), 2**r) + Fraction(1, 2))
    return -magnitude if x < 0 else magnitude


def double(x: int, q: int, e: int) -> int:
    """Returns x * q * 2^(e - 31) with the two roundings of gemmlowp."""
    return rdbpot(srdhm(x << max(e, 0), q), max(-e, 0))


def single(x: int, q: int, e: int) -> int:
    """Returns x * q * 2^(e - 31) rounded once, halves upwards."""
    return floor(Fraction(x * q, 1) * Fraction(2) ** (e - 31) + Fraction(1, 2))


def clamped(y: int, low: int, high: int) -> int:
    """`y` within [low, high]; `high` where the bounds cross."""
    return high if y > high or low > high else max(y, low)


def product(x: list[list[int]], w: list[list[int]]) -> list[list[int]]:
    """The matrix product x w modulo 2^32, row by row."""
    columns = list(zip(*w, strict=True))
    return [
        [wrap32(sum(a * b for a, b in zip(row, column, strict=True))) for column in columns]
        for row in x
    ]
