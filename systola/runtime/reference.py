# SPDX-License-Identifier: Apache-2.0
"""The function of a layer in plain numpy: no tiles, no instructions, no machine.

It shares no code with the golden model, so that the two can check each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Rounding
from systola.compiler.layer import Layer

_ROWS_AT_A_TIME = 1024


def layer_reference(a: NDArray[np.int8], layer: Layer) -> NDArray[np.int8]:
    """Return the M x N result of `layer`, int8, for the M x K matrix `a`."""
    weights = layer.weights.astype(np.float64)
    result = np.empty((a.shape[0], layer.n), np.int8)
    for start in range(0, a.shape[0], _ROWS_AT_A_TIME):
        part = a[start : start + _ROWS_AT_A_TIME]
        # Products of int8 and their sums are exact in float64, and BLAS is fast.
        sums = (part.astype(np.float64) @ weights).astype(np.int64) + layer.bias
        wrapped = (sums + 2**31) % 2**32 - 2**31
        result[start : start + _ROWS_AT_A_TIME] = _activated(_scaled(wrapped, layer), layer)
    return result


def _scaled(x: NDArray[np.int64], layer: Layer) -> NDArray[np.int64]:
    """Return x * multiplier * 2^(shift - 31), rounded as LiteRT does."""
    q = layer.multiplier.astype(np.int64)
    left = np.maximum(layer.shift, 0).astype(np.int64)
    right = np.maximum(-layer.shift, 0).astype(np.int64)
    x = np.clip(x * 2**left, -(2**31), 2**31 - 1)
    if layer.rounding == Rounding.SINGLE:
        return np.floor_divide(x * q + 2 ** (30 + right), 2 ** (31 + right))
    doubled_high = np.floor_divide(x * q + 2**30, 2**31)
    # Exact halves are rounded away from zero.
    divisor = 2**right
    quotient, remainder = np.divmod(doubled_high, divisor)
    up = (2 * remainder > divisor) | ((2 * remainder == divisor) & (doubled_high >= 0))
    return quotient + (up & (right > 0))


def _activated(y: NDArray[np.int64], layer: Layer) -> NDArray[np.int8]:
    v = y + layer.zero_point
    if layer.function in (Function.RELU, Function.RELU6):
        v = np.maximum(v, layer.zero_point)
    if layer.function == Function.RELU6:
        v = np.minimum(v, layer.ceiling)
    v = np.clip(v, -128, 127).astype(np.int8)
    if layer.table is not None:
        v = np.frombuffer(layer.table, np.int8)[v.view(np.uint8)]
    return v
