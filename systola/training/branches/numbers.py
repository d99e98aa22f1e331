# SPDX-License-Identifier: Apache-2.0
"""Computes the exponents of sums of tensors, and the range in which exponents are kept.

Int8 tensors with f_i fraction bits are added as int16 tensors. A tensor with the fewest fraction
bits m is shifted left by 6 bits, and the others by fewer. So a sum has m + 6 fraction bits, and a
sum of up to four tensors cannot leave int16.

A sum is narrowed to eight bits again after it has been measured, with halves rounded away from
zero. Sums of a few codes are halves often. Rounded upwards, halves of gradients would add up to an
error over all samples and pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from systola.training.stages import Stage, takes

LEAST_KEPT, KEPT_LINES, KEPT_STEP = -60, 5, 15
"""Range of the exponents that are kept in the buffer.

- LEAST_KEPT: the least exponent. An exponent is the negative of fraction bits.
- KEPT_LINES: how many int16 numbers hold an exponent.
- KEPT_STEP: the most magnitude bits of each of these numbers.
"""
_LEFT = 6
_FULL = 2
"""Logarithm to base 2 of four, the largest number of tensors that can be added with a shift of 6
bits."""


def kept(bits: int) -> int:
    """Return fraction bits limited to the range in which they are kept, -15 to 60.

    No fraction bits that matter are out of this range.
    """
    return min(max(bits, -LEAST_KEPT - KEPT_LINES * KEPT_STEP), -LEAST_KEPT)


def kept_codes(bits: int) -> list[int]:
    """Return the int16 numbers that hold fraction bits in the buffer, see
    `systola.training.branches.kept`.
    """
    counts = [-bits - LEAST_KEPT - KEPT_STEP * number for number in range(KEPT_LINES)]
    return [-(1 << min(max(count, 0), KEPT_STEP)) for count in counts]


def bits_of(codes: Sequence[int]) -> int:
    """Return the fraction bits that the int16 numbers of `kept_codes` hold."""
    return -LEAST_KEPT - sum((code ^ -1 if code < 0 else code).bit_length() for code in codes)


def sum_left(count: int) -> int:
    """Return how many fraction bits a sum of `count` tensors has more than the tensor with the
    fewest.
    """
    return _LEFT - max(0, (count - 1).bit_length() - _FULL)


def alone(stages: Sequence[Stage], at: int) -> bool:
    """Return whether a single stage takes result number `at`, and this stage is no join."""
    users = [stages[number] for number in range(len(stages)) if at in takes(stages, number)]
    return len(users) == 1 and not users[0].join


def dense_of(stages: Sequence[Stage], at: int) -> int | None:
    """Return the number of the Dense that alone takes result number `at`; None if there is none."""
    users = [number for number in range(len(stages)) if at in takes(stages, number)]
    if len(users) > 1:
        return None
    user = stages[users[0]]
    return None if user.join or user.window or user.lstm else users[0]


def width_of(stages: Sequence[Stage], at: int, *, flat: bool) -> int:
    """Return the number of channels of result number `at`, or of all its values for a sample if
    `flat`.
    """
    if not at:
        return stages[0].channels
    stage = stages[at - 1]
    if stage.lstm:
        return stage.lstm.units
    return stage.units * (prod(stage.map) if flat else 1)
