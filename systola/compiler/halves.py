# SPDX-License-Identifier: Apache-2.0
"""Functions of the host that bring tensors of int16 into the machine's form, and back.

The machine has each row of int16 as a row of low bytes and a row of high bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Halves:
    """A function that splits int16 into int8: for each `length` elements a row of low bytes, then a
    row of high bytes.
    """

    length: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        # The low byte of each element must come first, and elements must lie in their order. Some
        # processors and arrays have another order in memory.
        pairs = x.astype("<i2", order="C").view(np.int8).reshape(len(x), -1, self.length, 2)
        return pairs.swapaxes(2, 3)


@dataclass(frozen=True)
class Whole:
    """A function that joins rows of low bytes and rows of high bytes to int16, and clamps the
    results.
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

    Each channel has its own scale in float64. A sum is 65536 times an int16 of the first half of
    the rows, plus the int16 of the same row in the second half. Each row of int16 comes as a row of
    low bytes and a row of high bytes.
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
    """A function that returns the elements of each window over a map 1 x H x W x C as a row.

    Elements outside the map are zeros. Pairs of numbers are (y, x).
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
