# SPDX-License-Identifier: Apache-2.0
"""Converts numbers to codes of block floating point, and back: each tensor has one exponent.

A tensor of f fraction bits holds codes c that stand for c / 2^f. A scale between tensors that is no
power of two is a multiplier q of 31 bits and a shift, as instruction Activate takes them.
"""

from __future__ import annotations

from math import floor, frexp, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASTER_SHIFT = 8
"""Number of low bits that a master (int16) has beyond the int8 weight with which the array
multiplies."""
_VELOCITY_BITS = 5
"""Least number of fraction bits that velocities have more than their weights."""
LOGIT_BITS = 10
"""Fraction bits of logits and targets, which are int16 codes of -32 to 32."""
MOST_INPUT_BITS = 6
"""Largest number of fraction bits f of inputs, as the input for the bias, 2^f, is an int8."""
MOST_STATE_BITS = 13
"""Largest number of fraction bits f of the results of an LSTM, for which the input for the bias,
2^f, is an int16."""
LEAST_MASTER_BITS, MOST_MASTER_BITS = -64, 32
"""Least and largest number of fraction bits of masters. The limits are due to the exponent
registers, which have 8 bits, and to shifts, which end at 31 bits."""
FULL_BITS = 15
"""Number of magnitude bits at which masters, or moments, have used up their room to grow."""
_TINY = 2.0**-200
"""Least magnitude for the choice of a tensor's fraction bits. Smaller magnitudes count as 2^-200.
"""
_HEADROOM = 14
"""Number of magnitude bits of the largest new master, which leaves one bit to grow into."""

Floats = NDArray[np.floating[Any]]


def fraction_bits(largest: float, code: float) -> int:
    """Return the largest number of fraction bits for which the code of `largest` is at most `code`.

    It is 0 if `largest` is 0.
    """
    return floor(log2(code / max(largest, _TINY))) if largest else 0


def input_bits(x: Floats) -> int:
    """Return the number of fraction bits for samples, at most MOST_INPUT_BITS."""
    return min(MOST_INPUT_BITS, fraction_bits(float(np.abs(x).max(initial=0.0)), 127.5))


def master_bits(weights: Floats) -> int:
    """Return the number of fraction bits for the masters of weights, at most MOST_MASTER_BITS."""
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    return min(MOST_MASTER_BITS, fraction_bits(largest, (1 << _HEADROOM) - 1))


def velocity_bits(momentum: float) -> int:
    """Return how many fraction bits velocities have more than their weights.

    Without gradients a velocity decays until momentum times its code rounds to the same code. This
    code is at most 1 / (2 - 2 momentum). It must stand for less than half a unit of a weight, or
    weights drift.
    """
    rest = 0.5 / (1 - momentum)
    return max(_VELOCITY_BITS, floor(log2(rest)) + 2)


def codes(values: Floats, bits: int, kind: type[np.int8] | type[np.int16]) -> NDArray[Any]:
    """Return the nearest codes of values, with `bits` fraction bits, limited to the range of
    `kind`.
    """
    limits = np.iinfo(kind)
    with np.errstate(over="ignore"):
        scaled = np.rint(np.asarray(values, np.float64) * 2.0**bits)
    return np.clip(scaled, limits.min, limits.max).astype(kind)


def multiplier(scale: float) -> tuple[int, int]:
    """Return a scale as q and r with scale = q / 2^31 / 2^r.

    q is at least 2^30; r may be negative.
    """
    fraction, exponent = frexp(scale)
    q = round(fraction * 2**31)
    return (q, -exponent) if q < 2**31 else (2**30, -exponent - 1)
