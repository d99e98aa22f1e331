# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of Activate: from 32-bit sums to int8, exactly, in int64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Rounding

INT8_MIN, INT8_MAX = -128, 127
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

Integers = NDArray[np.integer[Any]]


def requantise(
    accumulator: Integers,
    bias: Integers,
    multiplier: Integers,
    left: Integers,
    right: Integers,
    rounding: Rounding,
) -> NDArray[np.int64]:
    """The y of Activate: (accumulator + bias) * 2^left * multiplier / 2^31 / 2^right, rounded.

    All arrays are integers of any width and broadcast against each other. `accumulator` and
    `bias` hold int32 values and add modulo 2^32; `multiplier` is 0 to 2^31 - 1, `left` 0 to 7,
    `right` 0 to 31. The result has the broadcast shape; nothing in it is clamped yet.
    """
    one = np.int64(1)
    q = multiplier.astype(np.int64)
    r = right.astype(np.int64)
    total = (accumulator.astype(np.int64) + bias).astype(np.int32).astype(np.int64)
    x = np.clip(total << left.astype(np.int64), INT32_MIN, INT32_MAX)
    # |x * q| < 2^62 and the rounding terms are at most 2^61: int64 holds every sum.
    if rounding == Rounding.SINGLE:
        return (x * q + (one << (30 + r))) >> (31 + r)
    high = (x * q + (one << 30)) >> 31
    nudge = (one << np.maximum(r - 1, 0)) - (high < 0)
    return np.where(r == 0, high, (high + nudge) >> r)


def activate(
    y: Integers,
    function: Function,
    zero_point: int,
    ceiling: int,
    table: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """The result of Activate for requantised values `y` (any shape, kept).

    `zero_point` and `ceiling` are int8 values; `ceiling` counts for RELU6 only. `table` holds
    256 entries in the order of Load_Table and is needed for TABLE only (ValueError if missing).
    """
    low = zero_point if function in (Function.RELU, Function.RELU6) else INT8_MIN
    high = ceiling if function == Function.RELU6 else INT8_MAX
    # The upper bound comes last: it wins where the bounds cross.
    v = np.minimum(np.maximum(y.astype(np.int64) + zero_point, low), high)
    if function == Function.TABLE:
        if table is None:
            raise ValueError("function TABLE needs a table")
        return table[v & 0xFF]
    return v.astype(np.int8)
