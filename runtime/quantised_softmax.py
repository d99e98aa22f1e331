# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's QLinearSoftmax: exponentials of 256 codes from a table, sums in float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RESERVE = 5.0
"""What ONNX Runtime keeps free of the logarithm of the largest float32, so that sums fit."""


def quantised_softmax(
    x: NDArray[np.int8], scale: float, out_scale: float, zero_point: int, unsigned: bool
) -> NDArray[np.int8]:
    """Softmax of the rows of `x`, rows x elements, with results of the same shape.

    `unsigned`: the model has uint8, 128 more than the codes here.
    """
    table = _exponentials(scale, x.shape[1])
    codes = x.astype(np.int64)
    # The largest element of a row stands for the largest code.
    values = table[255 + codes - codes.max(axis=1, keepdims=True)]
    total = np.add.accumulate(values, axis=1, dtype=np.float32)[:, -1:]
    steps = np.floor(np.float32(1) / np.float32(out_scale))
    with np.errstate(over="ignore"):
        results = np.rint(values * steps / total)
    if unsigned:
        # A row of one element is too large for float32, and becomes 0.
        whole = np.where(np.isfinite(results), results, 0).astype(np.int64)
        return (np.minimum(whole + zero_point + 128, 255) - 128).astype(np.int8)
    # Here it becomes the least number of 32 bits, from which a zero point below 0 goes round.
    whole = np.where(np.isfinite(results), results, -(2.0**31)).astype(np.int64) + zero_point
    return np.clip(np.where(whole < -(2**31), 127, whole), -128, 127).astype(np.int8)


def _exponentials(scale: float, length: int) -> NDArray[np.float32]:
    """For each distance from -255 to 0 its exponential, all of them the same factor larger."""
    largest = np.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    shift = max(0.0, float(largest) - RESERVE) / float(np.float32(scale))
    distance = np.arange(256, dtype=np.float64) - 255 + shift
    return np.exp(distance * float(np.float32(scale))).astype(np.float32)
