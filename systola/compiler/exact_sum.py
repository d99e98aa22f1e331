# SPDX-License-Identifier: Apache-2.0
"""The exact sum of two quantised tensors with the same scale, element by element."""

from __future__ import annotations

from systola.arch.isa import Operation, Rounding
from systola.compiler.operations import Binary, Scale, Value, scalar_requantisation

_FACTOR = 1 << 29
"""Multiplier with which instruction Vector scales each operand, in units of 2^-31.

Vector first makes x 2^20 of a code x, and this multiplier then makes x 2^20 2^29 / 2^31 = x 2^18.
The requantisation of the sum divides by 2^18, so the sum has no rounding.
"""


def exact_sum(
    operator: str,
    result: Value,
    parts: tuple[Value, Value],
    zero_points: tuple[int, int],
    zero_point: int,
) -> Binary:
    """Return the operation that adds the two tensors `parts` without any rounding.

    The operation subtracts from each code the tensor's zero point, in `zero_points`. It adds
    `zero_point`, for the result, to each sum.
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
