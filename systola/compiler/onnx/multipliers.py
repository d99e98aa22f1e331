# SPDX-License-Identifier: Apache-2.0
"""The machine's multipliers for ONNX Runtime's requantisation.

ONNX Runtime converts a sum of 32 bits to float32, multiplies it by a scale of float32, and rounds
the product half to even. The machine has a multiplier of 31 bits and rounds half up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.layer import MAX_LEFT
from systola.compiler.onnx.entries import Limits
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.quantise import MAX_STEPS, NO_SCALE, fitted_multipliers

_FURTHEST = 1 << 40
"""Number above all sums of 32 bits; the search in _first_sums uses it in place of larger sums."""


def code_limits(quantisation: Quantisation, limits: Limits) -> tuple[int, int]:
    """Return the codes of the two bounds `limits.low` and `limits.high`, the least and the
    greatest.
    """
    ends = np.array([limits.low, limits.high], np.float32)
    low, high = quantisation.codes(ends).tolist()
    return low, max(low, high)


def runtime_multipliers(
    scale: NDArray[np.float32],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    least_result: int,
    greatest_result: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return three arrays with an entry for each scale: multipliers, shifts, and whether they are
    exact.

    A multiplier and shift are exact if all sums from `low` to `high` get ONNX Runtime's results.
    Results are clamped to `least_result` and `greatest_result` before the zero point is added.
    """
    if not bool(np.isfinite(scale).all() and (scale >= 0).all()):
        raise ModelError("its scales are not positive numbers")
    scale = np.maximum(scale, np.float32(NO_SCALE))
    if float(scale.max()) >= 1 << MAX_LEFT:
        raise ModelError(
            f"its effective scale {float(scale.max()):.6g} is too large, the limit is "
            f"{1 << MAX_LEFT}"
        )
    sums = _first_sums(scale[:, np.newaxis])
    return fitted_multipliers(
        scale.astype(np.float64), sums, low, high, least_result, greatest_result
    )


def rounded_product(sums: NDArray[np.int64], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ONNX Runtime's rounded results for sums, not clamped and without the zero point."""
    with np.errstate(over="ignore"):
        return np.rint(sums.astype(np.float32) * scale)


def _first_sums(scale: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return for each scale a row with the least positive sums that give at least 1, 2, ...,
    MAX_STEPS.

    The sums are found by bisection.
    """
    steps = np.arange(1, MAX_STEPS + 1)
    # float32 rounds sums and products by at most one part in 2^24. So each sum is within one part
    # in 2^22 of the exact quotient, and the search begins with these bounds.
    near = np.minimum((steps - 0.5) / scale.astype(np.float64), _FURTHEST)
    below = np.maximum(np.floor(near * (1 - 2.0**-22)) - 2, 0).astype(np.int64)
    above = np.ceil(near * (1 + 2.0**-22)).astype(np.int64) + 2
    for _ in range(int(np.max(above - below)).bit_length() + 1):
        middle = (below + above) // 2
        reached = rounded_product(middle, scale) >= steps
        above = np.where(reached, middle, above)
        below = np.where(reached, below, middle)
    return above
