# SPDX-License-Identifier: Apache-2.0
"""Block floating point: from numbers to codes with a power-of-two exponent each tensor, and back.

A tensor of f fraction bits holds codes c that stand for c / 2^f. Scales between tensors that are no
powers of two are a multiplier q of 31 bits and a shift, as Activate takes them.
"""

from __future__ import annotations

from math import floor, frexp, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASTER_SHIFT = 8
"""Bits of a weight's master (int16) below those that the array multiplies with (int8)."""
_VELOCITY_BITS = 5
"""Fraction bits of a velocity beyond those of its weights, at least."""
LOGIT_BITS = 10
"""Fraction bits of logits and targets: -32 to 32 in int16."""
MOST_INPUT_BITS = 6
"""Fraction bits of an input at most: the one for the bias, 2^f, is an int8."""
MOST_STATE_BITS = 13
"""The same of what an LSTM gives, for whose bias there is an int16."""
LEAST_MASTER_BITS, MOST_MASTER_BITS = -64, 32
"""Fraction bits of masters: the exponent registers have 8 bits, and shifts end at 31."""
FULL_BITS = 15
"""Bits of masters, or moments, that have used up their room to grow."""
_TINY = 2.0**-200
"""The least magnitude that counts when a tensor gets its fraction bits."""
_HEADROOM = 14
"""Bits of the largest magnitude of new masters: one is left to grow into."""

Floats = NDArray[np.floating[Any]]


def fraction_bits(largest: float, code: float) -> int:
    """The most fraction bits with which `largest` does not exceed `code`; 0 has none."""
    return floor(log2(code / max(largest, _TINY))) if largest else 0


def input_bits(x: Floats) -> int:
    """Fraction bits of the samples."""
    return min(MOST_INPUT_BITS, fraction_bits(float(np.abs(x).max(initial=0.0)), 127.5))


def master_bits(weights: Floats) -> int:
    """Return the fraction bits of the masters of these weights, at most MOST_MASTER_BITS."""
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    return min(MOST_MASTER_BITS, fraction_bits(largest, (1 << _HEADROOM) - 1))


def velocity_bits(momentum: float) -> int:
    """Return the fraction bits of velocities beyond those of their weights.

    Without gradients a velocity decays until momentum times its code rounds to the same code, at
    most 1 / (2 - 2 momentum). This rest must be below half a unit of a weight, or weights drift.
    """
    rest = 0.5 / (1 - momentum)
    return max(_VELOCITY_BITS, floor(log2(rest)) + 2)


def codes(values: Floats, bits: int, kind: type[np.int8] | type[np.int16]) -> NDArray[Any]:
    """The nearest codes of `bits` fraction bits, ends included."""
    limits = np.iinfo(kind)
    with np.errstate(over="ignore"):
        scaled = np.rint(np.asarray(values, np.float64) * 2.0**bits)
    return np.clip(scaled, limits.min, limits.max).astype(kind)


def multiplier(scale: float) -> tuple[int, int]:
    """q and r with scale = q / 2^31 / 2^r, q from 2^30 on; r may be negative."""
    fraction, exponent = frexp(scale)
    q = round(fraction * 2**31)
    return (q, -exponent) if q < 2**31 else (2**30, -exponent - 1)
