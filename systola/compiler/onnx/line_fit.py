# SPDX-License-Identifier: Apache-2.0
"""A fit of the machine's weight, bias and multiplier to a straight line from codes to results.

Codes are quantised numbers from -128 to 127. With SINGLE rounding and a multiplier m, the machine
makes floor((weight * code + bias) * m + 1/2) of a code, clamped to the range of codes. A weight is
up to 127, so sums have finer steps than codes, and a bias can shift the line by less than a code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.onnx.fitting import nearest_multiplier
from systola.compiler.onnx.numbers import CODES

_MOST_WEIGHT, _MOST_BIAS = 127, 1 << 30
_BESIDE = (0, -1, 1)
"""Distances from the nearest bias; fit_line tries each weight with the biases at these distances.
"""


@dataclass(frozen=True)
class Line:
    """A straight line from codes to results, as weight, bias, multiplier and shift of a channel."""

    weight: int
    bias: int
    multiplier: int
    shift: int
    """Exponent: the line's sums are multiplied by multiplier * 2^(shift - 31)."""


@dataclass(frozen=True)
class WantedLine:
    """A straight line over all codes, with the rounded result that the machine must give for each
    code.
    """

    results: NDArray[np.int64]
    """Required result for each code, from code -128 on, before the zero point is added."""
    used: NDArray[np.bool_]
    """True for each code that occurs, from code -128 on; the results of other codes do not matter.
    """
    low: int
    """Least result; the machine clamps results to the range from `low` to `high`."""
    high: int
    slope: float
    """Increase of the unrounded result from one code to the next."""
    offset: float
    """Unrounded result of code 0."""


def fit_line(wanted: WantedLine) -> Line | None:
    """Return a line with the required results of all codes that occur, or None if none is found."""
    results = wanted.results[wanted.used]
    if bool((results == results[0]).all()):
        # All results are equal, so the weight is 0 and the bias is the result. The multiplier and
        # shift make a factor of (1 * 2^30) * 2^(1 - 31) = 1.
        return Line(0, int(results[0]), 1 << 30, 1)
    if not np.isfinite(wanted.slope) or wanted.slope == 0:
        return None
    sizes = np.arange(_MOST_WEIGHT, 0, -1) * int(np.sign(wanted.slope))
    nearest = np.rint(sizes * (wanted.offset / wanted.slope))
    pairs = [(sizes, nearest + distance) for distance in _BESIDE]
    weights, biases = (np.concatenate(each) for each in zip(*pairs, strict=True))
    fits = np.abs(biases) < _MOST_BIAS
    weights, biases = weights[fits], biases[fits].astype(np.int64)
    if not weights.size:
        return None
    best, scale = _widest(wanted, weights[:, np.newaxis] * CODES + biases[:, np.newaxis])
    try:
        multiplier, shift = nearest_multiplier(scale)
    except ModelError:
        return None
    line = Line(int(weights[best]), int(biases[best]), multiplier, shift)
    made = np.clip(_rounded(line), wanted.low, wanted.high)
    return line if bool((made == wanted.results)[wanted.used].all()) else None


def _widest(wanted: WantedLine, sums: NDArray[np.int64]) -> tuple[int, float]:
    """Return the index of the row of `sums` with the widest range of scales, and a scale inside
    this range.

    A row has the sums of one weight and bias, one sum for each code. The row's range has all scales
    that turn each of these sums into its required result. Ranges are compared relative to their
    least scale.
    """
    up = wanted.used & (wanted.results > wanted.low)
    down = wanted.used & (wanted.results < wanted.high)
    positive, negative = sums > 0, sums < 0
    divisor = np.where(sums == 0, 1, sums)
    above = (wanted.results - 0.5) / divisor
    below = (wanted.results + 0.5) / divisor
    least = np.maximum(
        np.where(positive & up, above, 0).max(axis=1),
        np.where(negative & down, below, 0).max(axis=1),
    )
    greatest = np.minimum(
        np.where(positive & down, below, np.inf).min(axis=1),
        np.where(negative & up, above, np.inf).min(axis=1),
    )
    # A sum of 0 has the result 0 with any scale. So a row is excluded if one of its sums is 0 and
    # another result is required.
    zero = int(np.clip(0, wanted.low, wanted.high))
    wrong = (wanted.used & (sums == 0) & (wanted.results != zero)).any(axis=1)
    room = np.where(wrong, -np.inf, (greatest - least) / np.maximum(least, 1e-30))
    best = int(room.argmax())
    return best, float((least[best] + min(greatest[best], 2 * least[best])) / 2)


def _rounded(line: Line) -> NDArray[np.int64]:
    """Return the result of a straight line for each code, from code -128 on, before clamping."""
    sums = (line.weight * CODES + line.bias) * line.multiplier
    return (sums + (1 << (30 - line.shift))) >> (31 - line.shift)
