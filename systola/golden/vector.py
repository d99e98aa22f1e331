# SPDX-License-Identifier: Apache-2.0
"""The sums of Depthwise, Pool and Vector, before they are requantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import QUOTIENT_BITS, Operation, Reduction
from systola.golden.requantise import shifted
from systola.golden.window import Window


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The operands of Set_Config_Scale; zeros at the start of a program."""

    multiplier_a: int = 0
    shift_a: int = 0
    multiplier_b: int = 0
    shift_b: int = 0
    zero_a: int = 0
    zero_b: int = 0
    ceiling: int = 0
    limit: int = 0


def depthwise_sums(
    lines: NDArray[np.int8], kernel: NDArray[np.int8], window: Window, fill: int
) -> NDArray[np.int32]:
    """Compute the sums of Depthwise: for each window and channel, the sum over the taps of pixel
    times weight.

    `lines` is the feature map from its first line on, shape (lines, C); more lines may follow it.
    `kernel` has shape (taps, C). Taps outside the map count as `fill`. The result has shape
    (windows, C).
    """
    sums = np.zeros((window.windows, lines.shape[1]), np.int32)
    for tap, weights in enumerate(kernel.astype(np.int32)):
        source, inside = window.tap_lines(*divmod(tap, window.kernel_width))
        sums += np.where(inside[:, np.newaxis], lines[source], np.int8(fill)) * weights
    return sums


def pooled(
    lines: NDArray[np.int8], window: Window, reduction: Reduction
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the largest tap or the sum of taps of each window, and its number of taps inside.

    `lines` is as for `depthwise_sums`. The results: (windows, C) and (windows,).
    """
    start = -128 if reduction == Reduction.MAX else 0
    result = np.full((window.windows, lines.shape[1]), start, np.int32)
    count = np.zeros(window.windows, np.int64)
    for i in range(window.kernel_height):
        for j in range(window.kernel_width):
            source, inside = window.tap_lines(i, j)
            values = np.where(inside[:, np.newaxis], lines[source], np.int8(start))
            count += inside
            if reduction == Reduction.MAX:
                np.maximum(result, values, out=result)
            else:
                result += values
    return result, count


def vector_sums(
    operation: Operation,
    a: NDArray[np.integer[Any]],
    b: NDArray[np.integer[Any]] | None,
    scale: Scale,
    fraction_bits: int,
) -> NDArray[np.int32]:
    """Compute the sums s of Vector for operands of any one shape; `b` may be None for COPY only.

    `fraction_bits` is the number that the text of Vector calls k: 11 for int8 operands, 16 for
    int16.
    """
    x1 = a.astype(np.int64) - scale.zero_a
    if operation == Operation.COPY:
        return x1.astype(np.int32)
    if b is None:
        raise ValueError(f"{operation.name} needs two operands")
    x2 = b.astype(np.int64) - scale.zero_b
    if operation == Operation.MULTIPLY:
        return (x1 * x2).astype(np.int32)
    first = _scaled(x1, scale.multiplier_a, scale.shift_a, fraction_bits)
    second = _scaled(x2, scale.multiplier_b, scale.shift_b, fraction_bits)
    return (first + second if operation == Operation.ADD else first - second).astype(np.int32)


def quotient_sums(
    a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]], scale: Scale
) -> NDArray[np.int32]:
    """Compute the sums s of Vector with function QUOTIENT for operands of any one shape."""
    x1 = a.astype(np.int64) - scale.zero_a
    x2 = b.astype(np.int64) - scale.zero_b
    # The exponent of frexp is the number of bits of a whole number, 0 for 0.
    bits = np.frexp((x1 ^ (x1 >> 63)).astype(np.float64))[1]
    factor = np.int64(1) << QUOTIENT_BITS >> bits
    return (x2 * factor).astype(np.int32)


def _scaled(x: NDArray[np.int64], q: int, r: int, k: int) -> NDArray[np.int64]:
    """Return an operand scaled with multiplier q and right shift r: f(x, q, r) in the ISA."""
    return shifted((x * q + (1 << (k - 1))) >> k, np.array(r))
