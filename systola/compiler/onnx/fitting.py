# SPDX-License-Identifier: Apache-2.0
"""A fit of the machine's requantisation to a table of sums and their required results.

From a sum s the machine makes (s + bias) * q * 2^(shift - 31), rounded, with a multiplier q. With
SINGLE rounding, halves are rounded up. Then the result is at least j if (s + bias) * q >= (2 j - 1)
* 2^(30 - shift). So each sum with its required result sets bounds for the bias, or for q if there
is no bias. The fit takes the bias, or the q, that violates the fewest bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.layer import MAX_LEFT, MAX_RIGHT

_CANDIDATES = (0, -1, 1)
"""Distances from the nearest multiplier; fit_bias tries each multiplier at such a distance with its
best bias.
"""


@dataclass(frozen=True)
class Fit:
    """A requantisation that comes close to the required results.

    `differing` is the number of sums with another result than required.
    """

    multiplier: int
    shift: int
    bias: int
    differing: int


@dataclass(frozen=True)
class Wanted:
    """A table of sums, and of the result that each sum must have before the zero point is added."""

    sums: NDArray[np.int64]
    results: NDArray[np.int64]
    low: int
    """Least result; the machine clamps results to the range from `low` to `high`."""
    high: int


def nearest_multiplier(value: float) -> tuple[int, int]:
    """Return (q, shift) such that q * 2^(shift - 31) is nearest to `value`.

    q is below 2^31, and shift is in the range that a parameter entry of the machine can hold.
    """
    if not 0 < value < 2.0**MAX_LEFT:
        raise ModelError(f"its effective scale {value:.6g} is too large or too small")
    shift = max(math.frexp(value)[1], -MAX_RIGHT)
    return min(round(math.ldexp(value, 31 - shift)), (1 << 31) - 1), shift


def fit_bias(wanted: Wanted, scale: float) -> Fit:
    """Return a fit with a multiplier near to `scale` and the best bias.

    Each result must belong to many sums, so that a bias is much finer than a result.
    """
    q, shift = nearest_multiplier(scale)
    lower, upper = wanted.results > wanted.low, wanted.results < wanted.high
    best = Fit(q, shift, 0, wanted.sums.size + 1)
    for distance in _CANDIDATES:
        multiplier = min(max(q + distance, 1), (1 << 31) - 1)
        first = -((-_thresholds(wanted.results, shift)) // multiplier) - wanted.sums
        last = -((-_thresholds(wanted.results + 1, shift)) // multiplier) - 1 - wanted.sums
        bias, differing = _least_violated(first[lower], last[upper], 0)
        if differing < best.differing:
            best = Fit(multiplier, shift, bias, differing)
        if differing == 0:
            break
    return best


def fit_multiplier(wanted: Wanted, scale: float) -> Fit:
    """Return a fit with the best multiplier near to `scale`, and a bias of 0."""
    q, shift = nearest_multiplier(scale)
    sums, results = wanted.sums, wanted.results
    lower, upper = results > wanted.low, results < wanted.high
    positive, negative = sums > 0, sums < 0
    a, b = _thresholds(results, shift), _thresholds(results + 1, shift)
    # A sum has its required result if a <= sum * q < b, which bounds the multiplier q from below
    # and above.
    least = np.concatenate([_up(a, sums, lower & positive), _down(-b, -sums, upper & negative) + 1])
    greatest = np.concatenate(
        [_up(b, sums, upper & positive) - 1, _down(-a, -sums, lower & negative)]
    )
    q, differing = _least_violated(least, greatest, q)
    q = min(max(q, 0), (1 << 31) - 1)
    zeros = results[sums == 0] != min(max(0, wanted.low), wanted.high)
    return Fit(q, shift, 0, differing + int(np.count_nonzero(zeros)))


def _thresholds(results: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    # Thresholds must fit int64, so they are clipped at 2^62. No product of sum and multiplier comes
    # near to 2^62, so clipping changes no comparison.
    exact = np.ldexp((2 * results - 1).astype(np.float64), 30 - shift)
    return np.clip(exact, -(2.0**62), 2.0**62).astype(np.int64)


def _down(
    a: NDArray[np.int64], b: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> NDArray[np.int64]:
    return a[chosen] // b[chosen]


def _up(a: NDArray[np.int64], b: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    return -((-a[chosen]) // b[chosen])


def _least_violated(
    least: NDArray[np.int64], greatest: NDArray[np.int64], near: int
) -> tuple[int, int]:
    """Return the whole number that violates the fewest bounds, and the count of bounds that it
    violates.

    A number violates each bound in `least` that is above it, and each bound in `greatest` that is
    below it. Of several numbers that violate equally few bounds, the nearest to `near` is returned.
    """
    least, greatest = np.sort(least), np.sort(greatest)
    candidates = np.unique(np.concatenate([[near], least, greatest]))
    violated = len(least) - np.searchsorted(least, candidates, "right")
    violated = violated + np.searchsorted(greatest, candidates, "left")
    best = candidates[violated == violated.min()]
    return int(best[np.abs(best - near).argmin()]), int(violated.min())
