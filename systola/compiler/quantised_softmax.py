# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's QLinearSoftmax, with exponentials of 256 codes from a table and sums in
float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RESERVE = 5.0
"""Natural logarithm of a quotient: the largest float32 divided by ONNX Runtime's largest sum of
exponentials.
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

    The arguments must satisfy fits_float32. If the model has uint8, codes and zero point here are
    less by 128.
    """
    table = _exponentials(scale, x.shape[1])
    codes = x.astype(np.int64)
    # The table entry for the largest code is used for the largest element of each row.
    values = table[255 + codes - codes.max(axis=1, keepdims=True)]
    total = np.add.accumulate(values, axis=1, dtype=np.float32)[:, -1:]
    whole = np.rint(values * _steps(out_scale) / total).astype(np.int64)
    return np.clip(whole + zero_point, -128, 127).astype(np.int8)


def _steps(out_scale: float) -> np.float32:
    """Return the number of steps of the result's codes from 0 to 1."""
    return np.floor(np.float32(1) / np.float32(out_scale))


def _exponentials(scale: float, length: int) -> NDArray[np.float32]:
    """Return a table of the exponentials of all distances from -255 to 0 codes.

    All are multiplied by the same factor, such that their sums still fit float32.
    """
    largest = np.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    shift = max(0.0, float(largest) - RESERVE) / float(np.float32(scale))
    distance = np.arange(256, dtype=np.float64) - 255 + shift
    return np.exp(distance * float(np.float32(scale))).astype(np.float32)
