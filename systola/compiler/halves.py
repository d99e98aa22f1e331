# SPDX-License-Identifier: Apache-2.0
"""Functions of the host that bring tensors of int16 into the machine's form, and back.

In the machine's form a row of int16 is two rows of bytes: first all low bytes, then all high bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Halves:
    """A function that splits rows of `length` int16 each into a row of low bytes and a row of high
    bytes.
    """

    length: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        # Some processors and arrays have another order of bytes or elements in memory. Here each
        # element's low byte must come first, and elements must lie in the order of their indices.
        pairs = x.astype("<i2", order="C").view(np.int8).reshape(len(x), -1, self.length, 2)
        return pairs.swapaxes(2, 3)


@dataclass(frozen=True)
class Whole:
    """A function that joins rows of low bytes and rows of high bytes to int16.

    The results are clamped to the range from `floor` to `ceiling`.
    """

    floor: int
    ceiling: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        pairs = np.ascontiguousarray(x.reshape(len(x), -1, 2, x.shape[-1]).swapaxes(2, 3))
        return np.clip(pairs.view("<i2"), self.floor, self.ceiling).astype(np.int16)


@dataclass(frozen=True, eq=False)
class FromSums:
    """A function that scales sums of 32 bits to int16, rounding halves away from 0.

    Each channel has its own scale in float64. The input has two halves of as many rows of int16,
    each as a row of low bytes and a row of high bytes. A sum is 65536 times an int16 of the first
    half, plus the int16 in the same place of the second half.
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
    """A function that copies the elements of each window over a map 1 x H x W x C into a row.

    The row has zeros for elements outside the map. Pairs of numbers are (y, x).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    first: tuple[int, int]
    """Row and column of the map, from 0, at which the first window begins; negative in the padding.
    """
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
