# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's QLinearSoftmax, with exponentials of 256 codes from a table and sums in
float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RESERVE = 5.0
"""Natural logarithm of a safety factor: the largest float32 is e^5 times ONNX Runtime's largest sum
of exponentials.
"""


def fits_float32(length: int, scale: float, out_scale: float) -> bool:
    """Return whether ONNX Runtime's QLinearSoftmax of rows of `length` elements has defined
    results.

    Otherwise the operator converts infinity to an integer, with a result that depends on the
    processor: 0 in a uint8, 127 in an int8.
    """
    with np.errstate(over="ignore"):
        return bool(np.isfinite(_exponentials(scale, length)[255] * _steps(out_scale)))


def quantised_softmax(
    x: NDArray[np.int8], scale: float, out_scale: float, zero_point: int
) -> NDArray[np.int8]:
    """Return the softmax of each row of `x`, rows x elements; the result has the same shape.

    The arguments must satisfy fits_float32. For a model with uint8, `x` and `zero_point` are 128
    less than in the model.
    """
    table = _exponentials(scale, x.shape[1])
    codes = x.astype(np.int64)
    # The largest element of each row takes the last entry, and other elements the entries before it
    # by their distance in codes.
    values = table[255 + codes - codes.max(axis=1, keepdims=True)]
    total = np.add.accumulate(values, axis=1, dtype=np.float32)[:, -1:]
    whole = np.rint(values * _steps(out_scale) / total).astype(np.int64)
    return np.clip(whole + zero_point, -128, 127).astype(np.int8)


def _steps(out_scale: float) -> np.float32:
    """Return the distance between the result's codes for 0 and for 1."""
    return np.floor(np.float32(1) / np.float32(out_scale))


def _exponentials(scale: float, length: int) -> NDArray[np.float32]:
    """Return a table of the exponentials of all distances from -255 to 0 codes.

    All entries are multiplied by one factor, chosen so that a sum of `length` entries fits float32.
    """
    largest = np.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    shift = max(0.0, float(largest) - RESERVE) / float(np.float32(scale))
    distance = np.arange(256, dtype=np.float64) - 255 + shift
    return np.exp(distance * float(np.float32(scale))).astype(np.float32)
