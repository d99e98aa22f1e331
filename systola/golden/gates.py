# SPDX-License-Identifier: Apache-2.0
"""SIGMOID, TANH and EXP: functions of gemmlowp's 16-bit fixed-point arithmetic; reciprocals.

The first three are `logistic`, `tanh` and `exp_on_negative_values`, after fixedpoint/fixedpoint.h
of google/gemmlowp, with scalars of int16. Qi.f is a number of i integer and f = 15 - i fractional
bits. Values are kept in int64; where gemmlowp relies on the saturation of int16, they are saturated
here, too. Nothing else leaves the range of int16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGMOID_INTEGER_BITS = 3

_INT16_MIN, _INT16_MAX = -(1 << 15), (1 << 15) - 1

Values = NDArray[np.int64]


def sigmoid(x: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
    """Return 1 / (1 + exp(-x)) in Q0.15 for int16 values in Q3.12, any shape."""
    a = x.astype(np.int64)
    positive = _one_over_one_plus(_exp_on_negative(-np.abs(a), SIGMOID_INTEGER_BITS))
    result = np.where(a > 0, positive, _INT16_MAX - positive)
    return np.where(a == 0, 1 << 14, result).astype(np.int16)


def tanh(x: NDArray[np.integer[Any]], integer_bits: int) -> NDArray[np.int16]:
    """Return tanh(x) in Q0.15 for int16 of `integer_bits` integer bits (0 to 4), any shape."""
    a = x.astype(np.int64)
    # exp(-2|x|): the same bits read with one integer bit more.
    t = _one_minus_over_one_plus(_exp_on_negative(-np.abs(a), integer_bits + 1))
    return np.where(a == 0, 0, np.where(a < 0, -t, t)).astype(np.int16)


def exponential(x: NDArray[np.integer[Any]], integer_bits: int) -> NDArray[np.int16]:
    """Return exp(-|x|) in Q0.15 for int16 of `integer_bits` integer bits (0 to 4), any shape."""
    return _exp_on_negative(-np.abs(x.astype(np.int64)), integer_bits).astype(np.int16)


def inverse_root(x: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
    """Return 1 / sqrt(|x|) in Q1.14 for int16 in Q0.15, any shape; 32767 if the result is too
    large.
    """
    return _where_it_fits(x, _inverse_root(x))


def reciprocal(x: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
    """Return 1 / |x| in Q2.13 for int16 in Q0.15, any shape; 32767 if the result is too large."""
    root = _inverse_root(x)
    return _where_it_fits(x, _product(root, root))


def _where_it_fits(x: NDArray[np.integer[Any]], result: Values) -> NDArray[np.int16]:
    magnitude = np.abs(x.astype(np.int64))
    return np.where(magnitude <= 1 << 13, _INT16_MAX, result).astype(np.int16)


def _inverse_root(x: NDArray[np.integer[Any]]) -> Values:
    """Approximate 1 / sqrt(|x|) by three Newton steps y + y (1 - |x| y^2) / 2, for |x| > 1/4."""
    minus = -np.maximum(np.abs(x.astype(np.int64)), 1 << 13)
    y = _INT16_MAX + _product(minus, 15500)
    for _ in range(3):
        error = _ONE_Q2 + _product(_product(y, y), minus)
        y = np.minimum(y + _product(2 * error, y), _INT16_MAX)
    return y


def _constant(raw: int) -> int:
    """Round a constant of 32 bits, as gemmlowp writes it, to 16 bits."""
    return (raw + (1 << 15)) >> 16


_EXP_MINUS_EIGHTH = _constant(1895147668)
_THIRD = _constant(715827883)
_EXP_FACTORS = tuple(
    zip(
        range(-2, 5),
        map(_constant, (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)),
        strict=True,
    )
)
"""Pairs of i and exp(-2^i) in Q0.15, for i = -2 .. 4."""
# 48/17 and -32/17 in Q2.13: the first guess of the reciprocal.
_RECIPROCAL_START, _RECIPROCAL_SLOPE = _constant(1515870810), _constant(-1010580540)
_ONE_Q2 = 1 << 13


def _saturated(x: Values) -> Values:
    return np.clip(x, _INT16_MIN, _INT16_MAX)


def _product(a: Values | int, b: Values | int) -> Values:
    """Compute a * b / 2^15, rounded with halves upwards. The integer bits of the factors add up."""
    return _saturated((np.multiply(a, b, dtype=np.int64) + (1 << 14)) >> 15)


def _divided(x: Values, exponent: int) -> Values:
    """Compute x / 2^exponent, rounded with halves away from zero."""
    return (x + (1 << (exponent - 1)) - (x < 0)) >> exponent


def _exp_near_zero(a: Values) -> Values:
    """Return exp(a) for -1/4 <= a < 0, both in Q0.15: a Taylor series around -1/8."""
    x = a + (1 << 12)
    x2 = _product(x, x)
    x3 = _product(x2, x)
    x4_over_4 = _divided(_product(x2, x2), 2)
    higher = _divided(_product(x4_over_4 + x3, _THIRD) + x2, 1)
    return _saturated(_EXP_MINUS_EIGHTH + _product(_EXP_MINUS_EIGHTH, x + higher))


def _exp_on_negative(a: Values, integer_bits: int) -> Values:
    """Return exp(a) in Q0.15 for a <= 0 of `integer_bits` integer bits."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    part = (a & (quarter - 1)) - quarter
    result = _exp_near_zero(part << integer_bits)
    remainder = part - a  # whole quarters, with a factor of the result for each bit
    for exponent, factor in _EXP_FACTORS:
        if exponent < integer_bits:
            bit = (remainder >> (fraction_bits + exponent)) & 1
            result = np.where(bit == 1, _product(result, factor), result)
    return np.where(a == 0, _INT16_MAX, result)


def _reciprocal(a: Values) -> Values:
    """Return 2 / (1 + a) in Q2.13 for 0 <= a < 1 in Q0.15: three Newton-Raphson steps."""
    half_denominator = (a + _INT16_MAX + 1) >> 1
    x = _RECIPROCAL_START + _product(half_denominator, _RECIPROCAL_SLOPE)
    for _ in range(3):
        error = _ONE_Q2 - _product(half_denominator, x)
        x = x + _saturated(_product(x, error) << 2)
    return x


def _one_over_one_plus(a: Values) -> Values:
    """Return 1 / (1 + a) for 0 <= a < 1, both in Q0.15."""
    return _saturated(_reciprocal(a) << 1)


def _one_minus_over_one_plus(a: Values) -> Values:
    """Return (1 - a) / (1 + a) for 0 <= a < 1, both in Q0.15."""
    return _saturated((_reciprocal(a) - _ONE_Q2) << 2)
