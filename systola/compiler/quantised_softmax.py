# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's operator QLinearSoftmax on the host, for int8 and uint8.

A table has the exponentials for all 256 distances between two codes; sums are float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RESERVE = 5.0
"""Natural logarithm of the factor between ONNX Runtime's largest sum of exponentials and the
largest float32.
"""


def fits_float32(length: int, scale: float, out_scale: float) -> bool:
    """Return whether QLinearSoftmax of rows with `length` elements stays within float32.

    If not, ONNX Runtime converts infinity to an integer. The result then depends on the processor,
    such as 0 for uint8 and 127 for int8.
    """
    with np.errstate(over="ignore"):
        return bool(np.isfinite(_exponentials(scale, length)[255] * _steps(out_scale)))


def quantised_softmax(
    x: NDArray[np.int8], scale: float, out_scale: float, zero_point: int
) -> NDArray[np.int8]:
    """Return the softmax of each row of `x`, which has the shape rows x elements.

    The result has the shape of `x`. `scale` belongs to `x`, `out_scale` and `zero_point` belong to
    the result. fits_float32 must be true for the arguments. If the model has uint8 codes, `x`, the
    result and `zero_point` are 128 less than in the model.
    """
    table = _exponentials(scale, x.shape[1])
    codes = x.astype(np.int64)
    # The largest element of a row takes entry 255 of the table. An element that is d codes smaller
    # takes entry 255 - d.
    values = table[255 + codes - codes.max(axis=1, keepdims=True)]
    total = np.add.accumulate(values, axis=1, dtype=np.float32)[:, -1:]
    whole = np.rint(values * _steps(out_scale) / total).astype(np.int64)
    return np.clip(whole + zero_point, -128, 127).astype(np.int8)


def _steps(out_scale: float) -> np.float32:
    """Return the number of codes from result 0 to result 1."""
    return np.floor(np.float32(1) / np.float32(out_scale))


def _exponentials(scale: float, length: int) -> NDArray[np.float32]:
    """Return 256 exponentials: entry i is exp((i - 255) * scale) times a common factor.

    ONNX Runtime chooses the factor so that a sum of `length` entries fits float32.
    """
    largest = np.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    shift = max(0.0, float(largest) - RESERVE) / float(np.float32(scale))
    distance = np.arange(256, dtype=np.float64) - 255 + shift
    return np.exp(distance * float(np.float32(scale))).astype(np.float32)
