# SPDX-License-Identifier: Apache-2.0
"""The operations of the host on a network's data, before, between and after the programs.

Each operation is a function of arrays that have the samples along the first axis. The caller then
reshapes the function's result to the shape of the stage's result. A function is an object with
plain data in its fields, so that a compiled network can be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.bilinear import BILINEAR_BITS, bilinear_places
from systola.compiler.halves import FromSums, Halves, Whole, Windows
from systola.compiler.operations import Value
from systola.compiler.quantise import to_float, to_int8
from systola.compiler.quantised_softmax import quantised_softmax
from systola.compiler.runtime_sums import sum_of_numbers, sum_of_rows
from systola.compiler.softmax import softmax
from systola.compiler.whole_numbers import WHOLE_NUMBERS


@dataclass(frozen=True, kw_only=True, eq=False)
class HostStage:
    """A stage of a network in which the host does one operation."""

    operator: str
    """Text that names, in messages and reports, the network's operator that the stage calculates.
    """
    sources: tuple[Value, ...]
    result: Value
    function: HostFunction


@dataclass(frozen=True)
class View:
    """A function for a mere change of shape: it returns its array unchanged, and the caller
    reshapes it.
    """

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return x


@dataclass(frozen=True)
class Quantise:
    """A function that makes int8 of float32, as LiteRT's QUANTIZE does."""

    scale: float
    zero_point: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return to_int8(x, self.scale, self.zero_point)


@dataclass(frozen=True)
class QuantiseEven:
    """A function that makes int8 of float32 and rounds halves to even, as ONNX's QuantizeLinear."""

    scale: float
    zero_point: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        with np.errstate(over="ignore"):
            steps = np.rint(x / np.float32(self.scale))
        return np.clip(steps + np.float32(self.zero_point), -128, 127).astype(np.int8)


@dataclass(frozen=True)
class Dequantise:
    """A function that makes float32 of int8, as LiteRT's DEQUANTIZE does."""

    scale: float
    zero_point: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return to_float(x, self.scale, self.zero_point)


@dataclass(frozen=True)
class DequantiseWide:
    """A function that makes float32 of int16.

    The input has for each sample a row of low bytes, then a row of high bytes.
    """

    scale: float

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        rows = x.reshape(len(x), 2, -1).view(np.uint8).astype(np.uint16)
        codes = (rows[:, 0] | rows[:, 1] << 8).view(np.int16)
        return (codes * self.scale).astype(np.float32)


@dataclass(frozen=True)
class Softmax:
    """A softmax of int8 along the last axis, as LiteRT's SOFTMAX; results are int8 in units of
    1/256.
    """

    scale: float
    beta: float

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return softmax(x, self.scale, self.beta)


@dataclass(frozen=True)
class QuantisedSoftmax:
    """A softmax of int8 along rows of `length` elements, as ONNX Runtime's QLinearSoftmax."""

    length: int
    scale: float
    out_scale: float
    zero_point: int
    """Zero point of the result, as an int8."""

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        rows = x.reshape(-1, self.length)
        return quantised_softmax(rows, self.scale, self.out_scale, self.zero_point)


@dataclass(frozen=True)
class RealSoftmax:
    """A softmax along rows of `length` elements of float32."""

    length: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        rows = x.reshape(-1, self.length).astype(np.float64)
        exponentials = np.exp(rows - rows.max(axis=1, keepdims=True))
        return (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class RealSigmoid:
    """A sigmoid of each element of float32."""

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


@dataclass(frozen=True)
class RealRescale:
    """A function that multiplies each float32 by `scale` and adds `offset`, as in Keras."""

    scale: float
    offset: float

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        with np.errstate(over="ignore"):
            return x.astype(np.float32) * np.float32(self.scale) + np.float32(self.offset)


@dataclass(frozen=True)
class RealAveragePool:
    """A function that makes means of windows over maps of float32, 1 x H x W x C.

    Pairs of numbers are (y, x).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    first: tuple[int, int]
    """Row and column of the map, from 0, at which the first window begins; negative in the padding.
    """
    out: tuple[int, int]
    padding_counts: bool
    """True if zeros in the padding count as elements of a mean; False if only elements of the map
    do.
    """

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        height, width = x.shape[2:4]
        total = np.zeros((len(x), 1, *self.out, x.shape[4]), np.float32)
        count = np.zeros((*self.out, 1), np.float32)
        for i in range(self.kernel[0]):
            y = self.first[0] + i * self.dilation[0] + self.stride[0] * np.arange(self.out[0])
            rows = (y >= 0) & (y < height)
            for j in range(self.kernel[1]):
                z = self.first[1] + j * self.dilation[1] + self.stride[1] * np.arange(self.out[1])
                columns = (z >= 0) & (z < width)
                there = (rows[:, np.newaxis] & columns)[..., np.newaxis]
                taps = x[:, :, y % height][:, :, :, z % width]
                total += np.where(there, taps, np.float32(0))
                count += there | self.padding_counts
        return total / count


@dataclass(frozen=True)
class AveragePool:
    """A function that makes means of windows over maps of int8, 1 x H x W x C, as LiteRT does.

    Pairs of numbers are (y, x).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    first: tuple[int, int]
    """Row and column of the map, from 0, at which the first window begins; negative in the padding.
    """
    out: tuple[int, int]
    floor: int
    ceiling: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        # Entry (y, x) of `sums` is the sum of all elements above row y and left of column x. So the
        # sum of a window is a sum of the four entries at its corners, two of them negative.
        sums = np.zeros((len(x), x.shape[2] + 1, x.shape[3] + 1, x.shape[4]), np.int64)
        sums[:, 1:, 1:] = x[:, 0].astype(np.int64).cumsum(axis=1).cumsum(axis=2)
        (top, bottom), (left, right) = (
            (np.clip(begin, 0, size), np.clip(begin + taps, 0, size))
            for begin, taps, size in zip(
                (
                    f + s * np.arange(n)
                    for f, s, n in zip(self.first, self.stride, self.out, strict=True)
                ),
                self.kernel,
                x.shape[2:4],
                strict=True,
            )
        )
        columns = sums[:, :, right] - sums[:, :, left]
        total = columns[:, bottom] - columns[:, top]
        count = np.multiply.outer(bottom - top, right - left)[..., np.newaxis]
        mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
        return np.clip(mean, self.floor, self.ceiling).astype(np.int8)


@dataclass(frozen=True)
class ResizeBilinear:
    """A function that resizes maps of int8, 1 x H x W x C, as LiteRT's ResizeBilinearInteger."""

    size: tuple[int, int]
    align_corners: bool
    half_pixel_centers: bool

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        total = x.astype(np.int64)
        for axis, out in zip((2, 3), self.size, strict=True):
            places = bilinear_places(
                x.shape[axis],
                out,
                align_corners=self.align_corners,
                half_pixel_centers=self.half_pixel_centers,
            )
            weights = places.share.reshape(-1, *(1,) * (4 - axis))
            total = (
                np.take(total, places.lower, axis) * ((1 << BILINEAR_BITS) - weights)
                + np.take(total, places.upper, axis) * weights
            )
        # The sums are in units of 2^(-2 BILINEAR_BITS). They are rounded as in LiteRT's C code,
        # with halves away from 0.
        half = 1 << 2 * BILINEAR_BITS - 1
        rounded = np.sign(total) * ((np.abs(total) + half) >> 2 * BILINEAR_BITS)
        return rounded.astype(x.dtype)


@dataclass(frozen=True)
class Extreme:
    """A function that returns the index, from 0, of the largest or smallest element along an axis.

    Of equal elements the first counts, as in LiteRT's ARG_MAX and ARG_MIN.
    """

    axis: int
    """Index of the axis in the shape of one sample, counted from 0."""
    largest: bool
    dtype: str

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        find = np.argmax if self.largest else np.argmin
        return find(x, axis=self.axis + 1).astype(self.dtype)


@dataclass(frozen=True)
class RealMean:
    """A function that makes means of float32, as ONNX's ReduceMean.

    A sample is seen as an array of three axes with sizes `shape`. The means are taken along the
    middle axis.
    """

    shape: tuple[int, int, int]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        outer, count, inner = self.shape
        if inner > 1:
            total = sum_of_rows(x.reshape(len(x) * outer, count, inner))
        else:
            total = sum_of_numbers(x.reshape(len(x), outer, count))
        return total / np.float32(count)


@dataclass(frozen=True, eq=False)
class Embedding:
    """A function that returns rows of a table, as GATHER along the first axis.

    The input has the indices of the rows, counted from 0. The function raises IndexError for an
    index that is outside the table.
    """

    table: NDArray[Any]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        if x.size and not (int(x.min()) >= 0 and int(x.max()) < len(self.table)):
            raise IndexError(f"an index is outside 0 to {len(self.table) - 1}")
        return np.take(self.table, x, axis=0)


@dataclass(frozen=True)
class FlipSign:
    """A function that converts int8 to uint8, or back, by a flip of the sign bit.

    Codes of int8 are 128 less than codes of uint8. `dtype` is the type of the result.
    """

    dtype: str

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return (x.view(np.uint8) ^ np.uint8(128)).view(self.dtype)


@dataclass(frozen=True)
class Transpose:
    """A function that puts the axes of each sample into another order.

    `shape` is the shape of a sample before that. Axis i of the result is axis `order`[i] of the
    sample, both counted from 0 in a sample.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        samples = x.reshape(len(x), *self.shape)
        return samples.transpose(0, *(axis + 1 for axis in self.order))


@dataclass(frozen=True, eq=False)
class Rearrange:
    """A function that puts the elements of each sample into other places.

    Element i of the result is element `origin`[i] of the sample, or `fill` where `origin`[i] is -1.
    Elements are counted from 0 in the order of memory.
    """

    origin: NDArray[np.int64]
    fill: int = 0

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        taken = x.reshape(len(x), -1)[:, np.maximum(self.origin, 0)]
        return np.where(self.origin >= 0, taken, np.asarray(self.fill, x.dtype))


@dataclass(frozen=True)
class Concatenate:
    """A function that joins arrays along an axis.

    `axis` is the axis in the shape of one sample, counted from 0.
    """

    axis: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate(arrays, axis=self.axis + 1)


@dataclass(frozen=True, eq=False)
class LookUp:
    """A function that replaces each int8 or uint8 by an entry of a table.

    Entry 0 is for the least number of the type: -128 for int8, 0 for uint8.
    """

    table: NDArray[Any]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return self.table[x.astype(np.int64) - np.iinfo(x.dtype).min]


@dataclass(frozen=True)
class Convert:
    """A function that converts numbers to another type, as LiteRT's CAST.

    Whole numbers that do not fit the new type wrap. Floating-point numbers that do not fit a type
    of whole numbers become its least or largest number.
    """

    dtype: str

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        if x.dtype.kind != "f" or np.dtype(self.dtype).kind not in "iu":
            return x.astype(self.dtype)
        limits = np.iinfo(self.dtype)
        fits = (x >= limits.min) & (x < float(limits.max) + 1)
        # NaN is not below 0, so it becomes the largest whole number of the type.
        bound = np.where(x < 0, limits.min, limits.max).astype(self.dtype)
        return np.where(fits, np.where(fits, x, 0).astype(self.dtype), bound)


@dataclass(frozen=True, eq=False)
class Calculate:
    """A function of whole numbers, element by element; `kind` is its key in WHOLE_NUMBERS."""

    kind: str
    operands: tuple[NDArray[Any] | None, ...]
    """Operands of the function in order: an array that is constant, or None for the next array of a
    call.
    """
    rank: int
    """Number of dimensions of the result for one sample. An operand of a call with fewer dimensions
    gets dimensions of size 1 after the axis of samples.
    """

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        rest = iter(arrays)
        operands: list[NDArray[Any]] = []
        for constant in self.operands:
            if constant is None:
                x = next(rest)
                missing = (1,) * (self.rank + 1 - x.ndim)
                operands.append(x.reshape(len(x), *missing, *x.shape[1:]))
            else:
                operands.append(constant)
        return WHOLE_NUMBERS[self.kind](*operands)


HostFunction = (
    View
    | Quantise
    | QuantiseEven
    | Dequantise
    | DequantiseWide
    | Softmax
    | QuantisedSoftmax
    | RealSoftmax
    | RealSigmoid
    | RealRescale
    | RealAveragePool
    | RealMean
    | AveragePool
    | ResizeBilinear
    | Extreme
    | Embedding
    | Halves
    | Whole
    | FromSums
    | Windows
    | FlipSign
    | Transpose
    | LookUp
    | Rearrange
    | Concatenate
    | Convert
    | Calculate
)
"""Type of all functions that a stage of the host can have."""
