# SPDX-License-Identifier: Apache-2.0
"""The reciprocals of sums that a partition, a mode of Vector, puts into a parameter entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import (
    PARAMETER_PLANES,
    PARTITION_SHIFT,
    PARTITION_ZEROS,
    RECIPROCAL_SLOPE,
    RECIPROCAL_START,
)


def partition_planes(numbers: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the bytes (PARAMETER_PLANES, C) of the entry for looked-up numbers (rows, C)."""
    total = numbers.astype(np.int64).sum(axis=0) % (1 << 32)
    # The exponent of frexp is the number of bits of a whole number, 0 for 0.
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    multiplier = _reciprocal((total << zeros) >> 1)
    multiplier[(zeros < PARTITION_ZEROS) | (total == 0)] = 0
    planes = np.zeros((PARAMETER_PLANES, len(total)), np.uint8)
    planes[4:8] = multiplier.astype("<u4").view(np.uint8).reshape(-1, 4).T
    planes[8] = np.minimum(PARTITION_SHIFT - zeros, 31)
    return planes


def _reciprocal(d: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return R of the text of Vector for numbers d from 2^30 to 2^31 - 1."""
    x = RECIPROCAL_START + _product(d, np.int64(RECIPROCAL_SLOPE))
    for _ in range(3):
        x = x + 4 * _product(x, (1 << 29) - _product(d, x))
    return np.minimum(2 * x, (1 << 31) - 1)


def _product(x: NDArray[np.int64], y: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
    """Return p(x, y) of the text of Vector."""
    return (x * y + (1 << 30)) >> 31
