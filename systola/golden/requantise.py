# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of Activate: from 32-bit sums to int8 or int16, exactly, in int64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import DITHER_BITS, INVERSE_ROOT, RECIPROCAL, Function, Rounding
from systola.golden.gates import exponential, inverse_root, reciprocal, sigmoid, tanh

INT8_MIN, INT8_MAX = -128, 127
INT16_MIN, INT16_MAX = -(1 << 15), (1 << 15) - 1
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

Integers = NDArray[np.integer[Any]]


class Entry(NamedTuple):
    """The numbers in parameter entries, all of one shape, as `requantise` takes them."""

    bias: NDArray[np.int32]
    multiplier: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]


def parameter_entry(planes: NDArray[np.uint8]) -> Entry:
    """Return bias, multiplier and shifts of parameter entries, each of shape (..., C).

    `planes` has the bytes of the entries, (..., PARAMETER_PLANES, C).
    """
    words = planes.astype(np.int64)
    place = np.arange(0, 32, 8).reshape(4, 1)
    return Entry(
        bias=(words[..., 0:4, :] << place).sum(axis=-2).astype(np.int32),
        multiplier=(words[..., 4:8, :] << place).sum(axis=-2) & 0x7FFF_FFFF,
        left=words[..., 8, :] >> 5,
        right=words[..., 8, :] & 0x1F,
    )


def requantise(
    accumulator: Integers,
    bias: Integers,
    multiplier: Integers,
    left: Integers,
    right: Integers,
    rounding: Rounding,
    dither: Integers | None = None,
) -> NDArray[np.int64]:
    """Compute y of Activate: (accumulator + bias) * 2^left * multiplier / 2^(31 + right), rounded.

    All arrays are integers of any width and broadcast against each other. `accumulator` and
    `bias` hold int32 values and add modulo 2^32; `multiplier` is 0 to 2^31 - 1, `left` 0 to 7,
    `right` 0 to 31. `dither`: the random numbers t, 0 to 15, in place of `rounding`. The result has
    the broadcast shape; nothing in it is clamped yet.
    """
    one = np.int64(1)
    q = multiplier.astype(np.int64)
    r = right.astype(np.int64)
    total = (accumulator.astype(np.int64) + bias).astype(np.int32).astype(np.int64)
    x = clamped(total << left.astype(np.int64), INT32_MIN, INT32_MAX)
    # |x * q| < 2^62 and the rounding terms are at most 2^61: int64 holds every sum.
    if dither is not None:
        return (x * q + (dither.astype(np.int64) << (31 - DITHER_BITS + r))) >> (31 + r)
    if rounding == Rounding.SINGLE:
        return (x * q + (one << (30 + r))) >> (31 + r)
    high = (x * q + (one << 30)) >> 31
    return shifted(high, r)


def shifted(h: NDArray[np.int64], r: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return h / 2^r, halves away from zero: `r = 0 ? h : (h + 2^(r-1) - (h < 0)) >> r`."""
    nudge = (np.int64(1) << np.maximum(r - 1, 0)) - (h < 0)
    return np.where(r == 0, h, (h + nudge) >> r)


def activate(
    y: Integers,
    function: Function,
    zero_point: int,
    ceiling: int,
    table: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """Compute the result of Activate for requantised values `y`, in the shape of `y`.

    `zero_point` and `ceiling` are int8 values; `ceiling` counts for RELU6 only. `table` holds
    256 entries in the order of Load_Table and is needed for TABLE only (ValueError if missing).
    """
    low = zero_point if function in (Function.RELU, Function.RELU6) else INT8_MIN
    high = ceiling if function == Function.RELU6 else INT8_MAX
    v = clamped(y.astype(np.int64) + zero_point, low, high)
    if function == Function.TABLE:
        if table is None:
            raise ValueError("function TABLE needs a table")
        return table[v & 0xFF]
    return v.astype(np.int8)


def activate_wide(
    y: Integers, function: Function, addend: Integers | int, integer_bits: int
) -> NDArray[np.int16]:
    """Compute the result of Activate with `wide` for requantised values `y`, in the shape of `y`.

    `function` is NONE, QUOTIENT or one of GATES. `addend` is the zero point, or, to accumulate, the
    int16 values so far; it broadcasts against `y`. `integer_bits`, the `table` of the instruction,
    counts for TANH and EXP only.
    """
    v = clamped(y.astype(np.int64) + addend, INT16_MIN, INT16_MAX)
    if function == Function.SIGMOID:
        return sigmoid(v)
    if function == Function.TANH:
        return tanh(v, integer_bits)
    if function == Function.EXP and integer_bits == RECIPROCAL:
        return reciprocal(v)
    if function == Function.EXP and integer_bits == INVERSE_ROOT:
        return inverse_root(v)
    if function == Function.EXP:
        return exponential(v, integer_bits)
    return v.astype(np.int16)


def clamped(v: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    """Return `v` clamped to [low, high], or `high` if low > high."""
    return np.minimum(np.maximum(v, low), high)
