# SPDX-License-Identifier: Apache-2.0
"""Activations that are curves: tables of 256 entries, from int8 sums to units and slopes.

The sums of a stage are shifted to int8 with a fixed number of fraction bits. With this number the
table ends where the curve is flat. A unit has UNIT_BITS fraction bits except for relu6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

UNIT_BITS = 6
"""Fraction bits of units from -1 to 1. With 6 bits, int8 can also hold the 1 that the next stage
takes for its bias."""
SLOPE_BITS = 7
"""Number of magnitude bits of the largest slope of a curve."""
Reals = NDArray[np.float64]


def _sigmoid(x: Reals) -> Reals:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class Curve:
    """A monotonic activation function, and the function of its slope."""

    value: Callable[[Reals], Reals]
    slope: Callable[[Reals], Reals]
    sum_bits: int
    """Fraction bits of the int8 sums that the table is looked up with."""
    slope_bits: int
    """Fraction bits of the slopes, with which the largest slope has SLOPE_BITS bits."""
    bits: int = UNIT_BITS
    """Fraction bits of the units."""

    @property
    def lost(self) -> int:
        """Number of fraction bits that a gradient loses in its product with a slope."""
        return SLOPE_BITS - self.slope_bits

    def values(self) -> NDArray[np.int8]:
        """Return the units for all int8 sums, in the order 0 to 127, -128 to -1."""
        return _codes(self.value(self._sums()), self.bits)

    def slopes(self) -> NDArray[np.int8]:
        """Return the slopes for all int8 sums, in the order 0 to 127, -128 to -1."""
        return _codes(self.slope(self._sums()), self.slope_bits)

    def _sums(self) -> Reals:
        return np.arange(256, dtype=np.uint8).view(np.int8) / 2.0**self.sum_bits


CURVES = {
    "tanh": Curve(np.tanh, lambda x: 1 - np.tanh(x) ** 2, sum_bits=5, slope_bits=7),
    "sigmoid": Curve(_sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x), sum_bits=4, slope_bits=9),
    "hard_sigmoid": Curve(
        lambda x: np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.where(abs(x) < 3, 1 / 6, 0),
        sum_bits=5,
        slope_bits=9,
    ),
    "relu6": Curve(
        lambda x: np.clip(x, 0, 6),
        lambda x: np.where((x > 0) & (x < 6), 1.0, 0.0),
        sum_bits=4,
        slope_bits=7,
        bits=4,
    ),
}
"""Activations that are curves, by Keras's names."""


@dataclass(frozen=True)
class Scaled:
    """The scale of units for Dropout: a multiplier, and a shift to the right by `right` bits."""

    multiplier: int
    right: int
    bits: int
    """Fraction bits of the scaled units."""


@cache
def scaled_up(curve: str, rate: float) -> Scaled:
    """Return the scale of a curve's units in training, for a Dropout with a rate above zero.

    Scaled units have fewer fraction bits, so that the largest of them still is an int8.
    """
    found = CURVES[curve]
    largest, less = int(found.values().max()) / (1 - rate), 0
    while largest > 2 << 6 << less:
        less += 1
    # The machine divides products by 2^31, so the multiplier 2^29 / (1 - rate) gives a quarter of
    # the scale. A shift to the right that is two bits shorter makes up for this.
    q, right = round((1 << 29) / (1 - rate)), less - 2
    while q >= 1 << 31:
        q, right = q >> 1, right - 1
    return Scaled(q, right, found.bits - less)


def _codes(values: Reals, bits: int) -> NDArray[np.int8]:
    return np.clip(np.rint(values * 2.0**bits), -128, 127).astype(np.int8)
