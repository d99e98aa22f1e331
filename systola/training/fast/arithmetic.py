# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the machine's activation unit on whole tensors: shifts, and functions as
tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import QUOTIENT_BITS, Rounding
from systola.golden.gates import exponential, sigmoid, tanh
from systola.golden.requantise import INT8_MAX, INT8_MIN, INT16_MAX, INT16_MIN, requantise
from systola.golden.training import held, magnitude_bits, shifts
from systola.training.writer import HALF, Entry

Integers = NDArray[np.integer[Any]]
Narrow = NDArray[np.int8]
Wide = NDArray[np.int16]
Sums = NDArray[np.int32]

_EXACT_BITS = 24
"""Largest number of bits with which float32 holds all whole numbers exactly."""


def measured(values: Integers, floor: int) -> int:
    """Return the shift that leaves eight bits of the largest magnitude. A shift below `floor`
    becomes `floor`.
    """
    return held(max(floor, magnitude_bits(values) - 8))


def product(a: Integers, b: Integers) -> Sums:
    """Multiply two matrices exactly, modulo 2^32: (m, k) and (k, n) to (m, n).

    A product is at most 2^30 and k below 2^20, so float64 holds every partial sum. float32 takes
    half the time, and is used if it holds every partial sum, too.
    """
    largest = _largest(a) * _largest(b) * a.shape[-1]
    kind = np.float32 if largest <= 1 << _EXACT_BITS else np.float64
    return (a.astype(kind) @ b.astype(kind)).astype(np.int64).astype(np.int32)


def _largest(values: Integers) -> int:
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))


def scaled(sums: Integers, entry: Entry, exponent: int | None = None) -> NDArray[np.int64]:
    """Requantise sums by a parameter entry, with the shift of register `exponent` if it is given.

    `exponent` is the content of the register, and replaces the shift of the entry. The results are
    not clamped yet.
    """
    left, right = entry.left, entry.right
    if exponent is not None:
        left, right = shifts(exponent)
    if entry.multiplier == HALF and not left and not entry.bias:
        # A short form of (x 2^30 + 2^(30 + r)) / 2^(31 + r), rounded down. The code below gives the
        # same results, but takes longer.
        return (sums.astype(np.int64) + (1 << right)) >> (right + 1)
    if not left:
        total = (sums.astype(np.int32) + np.int32(entry.bias)).astype(np.int64)
        total *= entry.multiplier
        total += 1 << (30 + right)
        total >>= 31 + right
        return total
    numbers = map(np.asarray, (entry.bias, entry.multiplier, left, right))
    return requantise(sums, *numbers, rounding=Rounding.SINGLE)


def quotient(divisors: Wide, values: Wide, entry: Entry) -> NDArray[np.int64]:
    """Divide values as QUOTIENT of the machine does, and requantise the quotients by a parameter
    entry.

    The machine divides by 2^b, where b is the number of magnitude bits of a divisor. Before the
    division, the values are shifted left by QUOTIENT_BITS. The results are not clamped yet.
    """
    magnitudes = (divisors ^ (divisors >> 15)).astype(np.float32)
    left = QUOTIENT_BITS - np.frexp(magnitudes)[1]
    return scaled(values.astype(np.int32) << left, entry)


def narrow(values: Integers, *, least: int = INT8_MIN) -> Narrow:
    """Return values limited to the range of int8, with `least` as its lower end."""
    return np.clip(values, least, INT8_MAX).astype(np.int8)


def wide(values: Integers) -> Wide:
    """Return values limited to the range of int16."""
    return np.clip(values, INT16_MIN, INT16_MAX).astype(np.int16)


def times(a: Wide, b: Wide, right: int) -> Sums:
    """Multiply int16 numbers and divide by 2^right, with halves rounded upwards.

    The magnitude of a result is at most 2^(30 - right).
    """
    result = np.multiply(a, b, dtype=np.int32)
    result += 1 << (right - 1)
    result >>= right
    return result


def logistic(values: Wide) -> Wide:
    """Compute the sigmoid of int16 values with 12 fraction bits; the result has 15 fraction
    bits.
    """
    return _table(sigmoid)[values.view(np.uint16)]


def tangent(values: Wide, integer_bits: int) -> Wide:
    """Compute tanh of int16 values with `integer_bits` integer bits; the result has 15 fraction
    bits.
    """
    return _table(tanh, integer_bits)[values.view(np.uint16)]


def falling(values: Wide, integer_bits: int) -> Wide:
    """Compute exp(-|x|) of int16 values with `integer_bits` integer bits; the result has 15
    fraction bits.
    """
    return _table(exponential, integer_bits)[values.view(np.uint16)]


@cache
def _table(function: Callable[..., Wide], *options: int) -> Wide:
    """Return the table of a function for all int16 values: 0 to 32,767, then -32,768 to -1."""
    return function(np.arange(1 << 16, dtype=np.uint16).view(np.int16), *options)
