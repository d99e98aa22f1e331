# SPDX-License-Identifier: Apache-2.0
"""Tensors of int16 as the machine has them, a row of low bytes and one of high bytes.

The host does this, before and after a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Halves:
    """Rows of `length` elements of int16 as int8: low bytes of a row, then high bytes."""

    length: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        # A processor may have another order of bytes, and an array another order of elements.
        pairs = x.astype("<i2", order="C").view(np.int8).reshape(len(x), -1, self.length, 2)
        return pairs.swapaxes(2, 3)


@dataclass(frozen=True)
class Whole:
    """The reverse of Halves: int16, clamped, from rows of low bytes and rows of high bytes."""

    floor: int
    ceiling: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        pairs = np.ascontiguousarray(x.reshape(len(x), -1, 2, x.shape[-1]).swapaxes(2, 3))
        return np.clip(pairs.view("<i2"), self.floor, self.ceiling).astype(np.int16)


@dataclass(frozen=True, eq=False)
class FromSums:
    """Sums of 32 bits to int16: times a scale for each channel in float64, halves away from 0.

    A sum is 65536 times an int16 of the first half of the rows, plus the int16 of the same row in
    the second half. The rows lie as Halves has them.
    """

    scales: NDArray[np.float64]
    floor: int
    ceiling: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        parts = Whole(-(1 << 15), (1 << 15) - 1)(x).reshape(len(x), 2, -1, x.shape[-1])
        sums = parts[:, 0].astype(np.int64) * (1 << 16) + parts[:, 1]
        results = sums * self.scales
        rounded = np.copysign(np.floor(np.abs(results) + 0.5), results)
        return np.clip(rounded, self.floor, self.ceiling).astype(np.int16)


@dataclass(frozen=True)
class Windows:
    """The elements of each window over maps 1 x H x W x C, as rows; pairs are (y, x).

    Outside a map are zeros.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    first: tuple[int, int]
    """Row and column of the first window; negative for padding."""
    out: tuple[int, int]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        result = np.zeros((len(x), *self.out, *self.kernel, x.shape[4]), x.dtype)
        places = (
            first + step * np.arange(out)[:, np.newaxis] + apart * np.arange(taps)
            for first, step, out, apart, taps in zip(
                self.first, self.stride, self.out, self.dilation, self.kernel, strict=True
            )
        )
        rows, columns = places
        rows, columns = rows[:, np.newaxis, :, np.newaxis], columns[:, np.newaxis]
        inside = (rows >= 0) & (rows < x.shape[2]) & (columns >= 0) & (columns < x.shape[3])
        taken = x[:, 0, rows % x.shape[2], columns % x.shape[3]]
        np.copyto(result, taken, where=inside[..., np.newaxis])
        return result
