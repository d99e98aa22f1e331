# SPDX-License-Identifier: Apache-2.0
"""Converts numbers to codes of block floating point: a power-of-two exponent each tensor, and back.

A tensor of f fraction bits holds codes c that stand for c / 2^f. A scale between tensors that is no
power of two is a multiplier q of 31 bits and a shift, as Activate takes them.
"""

from __future__ import annotations

from math import floor, frexp, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASTER_SHIFT = 8
"""Number of bits of a weight's master (int16) below the bits that the array multiplies with (int8).
"""
_VELOCITY_BITS = 5
"""Least number of fraction bits that a velocity has more than its weights."""
LOGIT_BITS = 10
"""Fraction bits of logits and targets, which are -32 to 32 in int16."""
MOST_INPUT_BITS = 6
"""Largest number of fraction bits of an input, as 2^f for the bias is an int8."""
MOST_STATE_BITS = 13
"""Largest number of fraction bits of the results of an LSTM, for which 2^f for the bias is an
int16.
"""
LEAST_MASTER_BITS, MOST_MASTER_BITS = -64, 32
"""Least and largest number of fraction bits of masters: the exponent registers have 8 bits, and
shifts end at 31.
"""
FULL_BITS = 15
"""Number of bits at which masters, or moments, have used up their room to grow."""
_TINY = 2.0**-200
"""Least magnitude that counts when a tensor gets its fraction bits."""
_HEADROOM = 14
"""Number of bits of the largest magnitude of new masters, which leaves one bit to grow into."""

Floats = NDArray[np.floating[Any]]


def fraction_bits(largest: float, code: float) -> int:
    """Return the largest number of fraction bits with which `largest` does not exceed `code`, and 0
    for 0.
    """
    return floor(log2(code / max(largest, _TINY))) if largest else 0


def input_bits(x: Floats) -> int:
    """Return the fraction bits of samples, at most MOST_INPUT_BITS."""
    return min(MOST_INPUT_BITS, fraction_bits(float(np.abs(x).max(initial=0.0)), 127.5))


def master_bits(weights: Floats) -> int:
    """Return the fraction bits of the masters of these weights, at most MOST_MASTER_BITS."""
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    return min(MOST_MASTER_BITS, fraction_bits(largest, (1 << _HEADROOM) - 1))


def velocity_bits(momentum: float) -> int:
    """Return how many fraction bits velocities have more than their weights.

    Without gradients a velocity decays until momentum times its code rounds to the same code. This
    code is at most 1 / (2 - 2 momentum). This code must stand for less than half a unit of a
    weight, or weights drift.
    """
    rest = 0.5 / (1 - momentum)
    return max(_VELOCITY_BITS, floor(log2(rest)) + 2)


def codes(values: Floats, bits: int, kind: type[np.int8] | type[np.int16]) -> NDArray[Any]:
    """Return the nearest codes of `bits` fraction bits, cut off at the ends of `kind`."""
    limits = np.iinfo(kind)
    with np.errstate(over="ignore"):
        scaled = np.rint(np.asarray(values, np.float64) * 2.0**bits)
    return np.clip(scaled, limits.min, limits.max).astype(kind)


def multiplier(scale: float) -> tuple[int, int]:
    """Return q and r with scale = q / 2^31 / 2^r, q from 2^30 on; r may be negative."""
    fraction, exponent = frexp(scale)
    q = round(fraction * 2**31)
    return (q, -exponent) if q < 2**31 else (2**30, -exponent - 1)
