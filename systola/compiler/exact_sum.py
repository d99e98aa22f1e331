# SPDX-License-Identifier: Apache-2.0
"""The exact sum of two quantised tensors with the same scale, element by element."""

from __future__ import annotations

from systola.arch.isa import Operation, Rounding
from systola.compiler.operations import Binary, Scale, Value, scalar_requantisation

_FACTOR = 1 << 29
"""Multiplier of each operand of instruction Vector, in units of 2^-31.

Vector makes x 2^20 of a code x, and then x 2^20 2^29 / 2^31 = x 2^18. The requantisation of the sum
divides by 2^18 again.
"""


def exact_sum(
    operator: str,
    result: Value,
    parts: tuple[Value, Value],
    zero_points: tuple[int, int],
    zero_point: int,
) -> Binary:
    """Return the operation that adds the two tensors `parts` without any rounding.

    The operation subtracts `zero_points` from the codes of the two tensors, and adds `zero_point`
    to each sum.
    """
    first, second = parts
    return Binary(
        operator=operator,
        result=result,
        operation=Operation.ADD,
        a=first,
        b=second,
        scale_a=Scale(zero_points[0], _FACTOR),
        scale_b=Scale(zero_points[1], _FACTOR),
        output=scalar_requantisation(1 << 30, -17, rounding=Rounding.SINGLE, zero_point=zero_point),
    )
