# SPDX-License-Identifier: Apache-2.0
"""The entry of a partition in plain integers, written from gemmlowp's fixedpoint.h.

It takes nothing from the golden model.
"""

from __future__ import annotations

_LARGEST = 2**31 - 1


def expected_channel(total: int) -> tuple[int, int, int, int]:
    """Return the bias, the multiplier and the shifts left and right for a sum below 2^32."""
    zeros = 32 - total.bit_length()
    right = min(35 - zeros, 31)
    if total == 0 or zeros < 4:
        return 0, 0, 0, right
    return 0, one_over_one_plus_x((total << zeros) - 2**31), 0, right


def one_over_one_plus_x(a: int) -> int:
    """Return `one_over_one_plus_x_for_x_in_0_1` of gemmlowp for an argument with 31 fractional
    bits.
    """
    half_denominator = (a + _LARGEST + 1) // 2  # RoundingHalfSum of positive numbers
    x = 1515870810 + _doubling_high_mul(half_denominator, -1010580540)
    for _ in range(3):
        one_minus = 2**29 - _doubling_high_mul(half_denominator, x)
        x += _saturated(4 * _doubling_high_mul(x, one_minus))
    return _saturated(2 * x)


def corners() -> list[int]:
    """Return sums around each power of two, and around the ends of all ranges."""
    found = {0, 1, 2, 3, (1 << 32) - 1}
    for bits in range(33):
        found |= {(1 << bits) + more for more in (-2, -1, 0, 1, 2)}
        found |= {(3 << bits >> 1) + more for more in (-1, 0, 1)}
    return sorted(total for total in found if 0 <= total < 1 << 32)


def _doubling_high_mul(a: int, b: int) -> int:
    """Return SaturatingRoundingDoublingHighMul of gemmlowp, which truncates towards zero."""
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)


def _saturated(x: int) -> int:
    return max(-_LARGEST - 1, min(_LARGEST, x))
