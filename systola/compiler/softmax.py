# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX on the host, in the integer arithmetic of LiteRT's reference kernel.

Fixed-point functions follow gemmlowp (fixedpoint.h). A number in Qi.f has a sign bit, i integer
bits and f fractional bits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from systola.compiler.quantise import high_product, quantise_multiplier, rounded_shift

_INPUT_INTEGER_BITS = 5
_SUM_INTEGER_BITS = 12
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
# A pair for each i from -2 to 4: the position of the bit that stands for 2^i in a number in Q5.26,
# counted from 0, and exp(-2^i) in Q0.31.
_EXP_FACTORS = tuple(
    zip(
        range(24, 31),
        (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242),
        strict=True,
    )
)
_EXP_MINUS_EIGHTH = 1895147668
_THIRD = 715827883
# Newton-Raphson for 1 / d begins with 48/17 - 32/17 d. Start and slope are in Q2.29.
_RECIPROCAL_START, _RECIPROCAL_SLOPE = 1515870810, -1010580540


def softmax(x: NDArray[np.int8], scale: float, beta: float = 1.0) -> NDArray[np.int8]:
    """Return the softmax of `x` along the last axis, as codes with scale 1/256 and zero point -128.

    `scale` is the scale of `x`; the zero point of `x` does not matter. The result has the shape of
    `x`.
    """
    exponential = exponentials(scale, beta)[x.max(axis=-1, keepdims=True) - x.astype(np.int64)]
    total = rounded_shift(exponential, _SUM_INTEGER_BITS).sum(axis=-1, keepdims=True)
    factor, shift = reciprocal(total)
    y = rounded_shift(high_product(exponential, factor), shift) - 128
    return np.clip(y, -128, 127).astype(np.int8)


def exponentials(scale: float, beta: float = 1.0) -> NDArray[np.int64]:
    """Return exp(-beta * scale * d) in Q0.31 for d = 0 to 255, in this order.

    d is the distance of a code from the largest code. Elements with a large d are left out of the
    sum by LiteRT; their exponentials are 0 here.
    """
    multiplier = min(beta * float(scale) * (1 << (31 - _INPUT_INTEGER_BITS)), float(_INT32_MAX))
    q, shift = quantise_multiplier(multiplier)
    lowest = -math.floor(
        ((1 << _INPUT_INTEGER_BITS) - 1) * 2.0 ** (31 - _INPUT_INTEGER_BITS - shift)
    )
    difference = -np.arange(256, dtype=np.int64)
    counts = difference >= lowest
    scaled = high_product(np.where(counts, difference, 0) << shift, q)
    return np.where(counts, _exp_on_negative(scaled), 0)


def reciprocal(total: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (multiplier, shift) for the division of exponentials by the sum of their row.

    A result in units of 1/256 is exponential * multiplier / 2^31, shifted to the right by `shift`.
    `total` is the sum of the row's exponentials, each divided by 2^12, from 1 to 2^32 - 1.
    """
    headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    return _one_over_one_plus((total << headroom) - (1 << 31)), 35 - headroom


def _exp_on_negative(a: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return exp(a) in Q0.31 for numbers a <= 0 in Q5.26."""
    quarter = 1 << 24
    part = (a & (quarter - 1)) - quarter
    result = _exp_between_minus_quarter_and_zero(_saturated(part << _INPUT_INTEGER_BITS))
    remainder = part - a
    for bit, factor in _EXP_FACTORS:
        result = np.where((remainder >> bit) & 1, high_product(result, factor), result)
    return np.where(a == 0, _INT32_MAX, result)


def _exp_between_minus_quarter_and_zero(a: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return exp(a) in Q0.31 for -1/4 <= a < 0 in Q0.31, by a Taylor series around -1/8."""
    x = a + (1 << 28)
    x2 = high_product(x, x)
    x3 = high_product(x2, x)
    x4_over_4 = rounded_shift(high_product(x2, x2), 2)
    higher = rounded_shift(high_product(x4_over_4 + x3, _THIRD) + x2, 1)
    return _saturated(_EXP_MINUS_EIGHTH + high_product(x + higher, _EXP_MINUS_EIGHTH))


def _one_over_one_plus(a: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 1 / (1 + a) in Q0.31 for 0 <= a < 1 in Q0.31, by three Newton-Raphson steps."""
    half_denominator = (a + _INT32_MAX + 1) >> 1
    x = _RECIPROCAL_START + high_product(half_denominator, _RECIPROCAL_SLOPE)
    for _ in range(3):
        error = (1 << 29) - high_product(half_denominator, x)
        x = x + _saturated(high_product(x, error) << 2)
    return _saturated(x << 1)


def _saturated(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(x, _INT32_MIN, _INT32_MAX)
