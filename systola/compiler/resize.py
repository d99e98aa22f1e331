# SPDX-License-Identifier: Apache-2.0
"""Bilinear resizing of maps on the machine, as depthwise convolutions with exact weights.

First, each pixel is repeated several times in its row, so that one kernel makes all columns of the
result. A row of the result is a weighted mean of one row of the source, or of two neighbouring
rows. One convolution makes all rows of the result with the same weights. At last a concatenation
puts the rows in order.

One kernel makes all columns if the map becomes wider by a power of two, or narrower by a whole
factor. Each weighted sum is divided by the sum of the weights, which is a power of two. Halves are
rounded away from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Reduction
from systola.compiler.bilinear import BILINEAR_BITS, Places
from systola.compiler.errors import ModelError
from systola.compiler.lower.pooling import reciprocal
from systola.compiler.moves import MAX_LEFT, MAX_SIDE, MAX_STRIDE, MAX_TOP
from systola.compiler.operations import (
    Concatenation,
    DepthwiseConvolution,
    Node,
    Pooling,
    Reshape,
    Slice,
    Value,
    Window,
)

MOST_PIXELS = 256
"""Largest number of pixels along an axis of the map and of the resized result.

More pixels are refused, as the compilation would take too long.
"""
MOST_WEIGHT = 127
"""Largest weight of a convolution: weights are int8."""


@dataclass(frozen=True)
class _Kernel:
    """A kernel along one axis of a map in which each source pixel is repeated `copies` times.

    The kernel moves by `stride` copies from a pixel of the result to the next. Beyond an edge of
    the map, the pixel at the edge is repeated.
    """

    copies: int
    first: int
    """Index of the copy under the kernel's first weight, for the first pixel of the result.

    Index 0 is the first copy of the first source pixel. Negative indexes are before this pixel.
    """
    stride: int
    weights: tuple[int, ...]

    def pixels(self, count: int) -> NDArray[np.int64]:
        """Return the index of the source pixel under each weight, for `count` result pixels.

        The array has a row for each result pixel, and a column for each weight. Indexes below 0 or
        above the last source pixel are beyond the edges.
        """
        starts = self.first + self.stride * np.arange(count)
        return (starts[:, np.newaxis] + np.arange(len(self.weights))) // self.copies


def resized(
    operator: str, source: Value, result: Value, rows: Places, columns: Places
) -> list[Node]:
    """Return the operations that make `result` from the int8 map `source` by bilinear resizing.

    `rows` and `columns` have the positions in the source from which results are taken. Raises
    ModelError if the machine cannot make LiteRT's results for these positions.
    """
    for axis, places in (("rows", rows), ("columns", columns)):
        if max(places.size, places.count) > MOST_PIXELS:
            raise ModelError(
                f"it makes {places.count} {axis} of {places.size}, the machine resizes at most "
                f"{MOST_PIXELS}"
            )
    if _is_copy(rows) and _is_copy(columns):
        return [Reshape(operator=operator, source=source, result=result)]
    kernel = _common_kernel(columns)
    if kernel is None:
        raise ModelError(
            f"it makes {columns.count} columns of {columns.size}, the machine makes them larger by "
            "a power of two or smaller by a whole factor"
        )
    unit, mixes = _mixes(rows)
    largest = max(weight for weights in mixes for weight in weights) * max(kernel.weights)
    if largest > MOST_WEIGHT:
        raise ModelError(
            f"it makes {rows.count} rows of {rows.size} with weights up to {largest}, the machine "
            f"has weights up to {MOST_WEIGHT}"
        )
    if max(rows.lower) > MAX_TOP:
        raise ModelError(f"a map of {rows.size} rows is not supported")
    maker = _Maker(operator, source, result, kernel)
    maker.make(unit * sum(kernel.weights), mixes, rows.count)
    return maker.nodes


def _is_copy(places: Places) -> bool:
    pixels = np.arange(places.size)
    return np.array_equal(places.lower, pixels) and np.array_equal(places.upper, pixels)


def _common_kernel(places: Places) -> _Kernel | None:
    """Return one kernel that makes all pixels of the result along an axis, or None if no kernel
    does.
    """
    count, one = places.count, 1 << BILINEAR_BITS
    wanted = np.zeros((count, places.size), np.int64)
    np.add.at(wanted, (np.arange(count), places.lower), one - places.share)
    np.add.at(wanted, (np.arange(count), places.upper), places.share)
    for kernel in _kernels(places):
        total = sum(kernel.weights)
        if one % total:
            continue
        found = np.zeros_like(wanted)
        pixels = np.clip(kernel.pixels(count), 0, places.size - 1)
        each = np.array(kernel.weights) * (one // total)
        np.add.at(found, (np.arange(count)[:, np.newaxis], pixels), each)
        if np.array_equal(found, wanted):
            return kernel
    return None


def _kernels(places: Places) -> Iterator[_Kernel]:
    """Yield kernels to try: _common_kernel checks whether a kernel makes all pixels of a result."""
    if places.size == 1:
        yield _Kernel(min(places.count, MAX_LEFT + 1), 0, 1, (1,))
    stride = int(places.lower[1] - places.lower[0]) if places.count > 1 else 1
    if 0 < stride <= MAX_STRIDE:
        first = int(places.lower[0])
        yield _Kernel(1, first, stride, (1,))
        yield _Kernel(1, first, stride, (1, 1))
    copies = 2
    while copies <= MAX_LEFT + 1:
        # The first kernel serves without LiteRT's option half_pixel_centers, the second with it.
        yield _Kernel(copies, 0, 1, (1,) * copies)
        yield _Kernel(copies, -copies // 2, 1, (1, *(2,) * (copies - 1), 1))
        copies *= 2


def _mixes(rows: Places) -> tuple[int, dict[tuple[int, ...], dict[int, list[int]]]]:
    """Return a pair: the sum of the weights of each result row, and the result rows by weights.

    A key of the outer dictionary is a tuple of weights, for one source row or for two consecutive
    source rows. A key of an inner dictionary is the index of the first of these source rows. The
    value is a list of the indexes of all result rows that are made so. Indexes are counted from 0.
    """
    one = 1 << BILINEAR_BITS
    mixed = rows.lower != rows.upper
    common = math.gcd(one, *rows.share[mixed].tolist())
    unit = one // common
    mixes: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for number, (lower, share) in enumerate(zip(rows.lower, rows.share, strict=True)):
        upper = int(share) // common
        weights = (unit - upper, upper) if mixed[number] else (unit,)
        mixes.setdefault(weights, {}).setdefault(int(lower), []).append(number)
    return unit, mixes


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield slices of the increasing `numbers` with a constant difference in each slice.

    The difference is at most MAX_STRIDE. The slices together have all numbers.
    """
    begin = 0
    for end in range(1, len(numbers) + 1):
        near = end < len(numbers) and numbers[end] - numbers[end - 1] <= MAX_STRIDE
        if near and (end - begin < 2 or 2 * numbers[end - 1] == numbers[end] + numbers[end - 2]):
            continue
        yield numbers[begin:end]
        begin = end


class _Maker:
    """A maker of the operations that resize one map; they are collected in `nodes`."""

    def __init__(self, operator: str, source: Value, result: Value, kernel: _Kernel) -> None:
        self.nodes: list[Node] = []
        self._operator = operator
        self._source = source
        self._result = result
        self._kernel = kernel

    def make(
        self, divisor: int, mixes: dict[tuple[int, ...], dict[int, list[int]]], count: int
    ) -> None:
        """Add all operations that make the result of `count` rows to `nodes`.

        The weighted sums are divided by `divisor`. `mixes` is the dictionary that _mixes
        returns.
        """
        width = self._result.grid[1]
        pixels = self._kernel.pixels(width)
        before = max(0, -int(pixels.min()))
        after = max(0, int(pixels.max()) - (self._source.grid[1] - 1))
        wide = self._repeated(self._padded(before, after))
        first = self._kernel.first + before * self._kernel.copies
        runs = [
            (weights, places, run)
            for weights, places in mixes.items()
            for run in _runs(sorted(places))
        ]
        made: dict[int, Value] = {}
        for weights, places, run in runs:
            whole = len(runs) == 1 and len(run) == count
            rows = self._result if whole else self._value((1, len(run), width))
            kernel = np.multiply.outer(np.array(weights), np.array(self._kernel.weights))
            self.nodes.append(
                DepthwiseConvolution(
                    operator=self._operator,
                    source=wide,
                    result=rows,
                    weights=np.repeat(kernel.astype(np.int8)[..., np.newaxis], rows.channels, 2),
                    counts=False,
                    window=Window(
                        kernel=(len(weights), len(self._kernel.weights)),
                        stride=(run[1] - run[0] if len(run) > 1 else 1, self._kernel.stride),
                        first=(run[0], first),
                        out=(len(run), width),
                    ),
                    fill=0,
                    output=reciprocal(divisor),
                )
            )
            if whole:
                return
            for number, place in enumerate(run):
                row = self._row(rows, number)
                made.update(dict.fromkeys(places[place], row))
        self._join([made[number] for number in range(count)], 1, self._result)

    def _padded(self, before: int, after: int) -> Value:
        """Return the source with rows extended by `before` first pixels and `after` last pixels."""
        source = self._source
        height, width = source.grid
        if before + after == 0:
            return source
        rows: list[Value] = []
        for number in range(height):
            row = self._row(source, number)
            parts = [row]
            if before:
                parts = [self._part(row, 2, 0, 1)] * before + parts
            if after:
                parts += [self._part(row, 2, width - 1, 1)] * after
            rows.append(self._join(parts, 2, self._value((1, 1, before + width + after))))
        return self._join(rows, 1, self._value((1, height, before + width + after)))

    def _repeated(self, source: Value) -> Value:
        """Return a map in which each pixel of `source` is repeated `copies` times in its row.

        All pixels are reshaped to a column of width 1. A max pool with windows of `copies` pixels
        makes a row of `copies` results from each pixel. Each window contains only this pixel and
        places outside of the column, so all results of the row equal the pixel.
        """
        copies = self._kernel.copies
        if copies == 1:
            return source
        height, width = source.grid
        at_once = max(MAX_SIDE // width, 1)
        bands: list[Value] = []
        for row in range(0, height, at_once):
            count = min(at_once, height - row)
            band = self._part(source, 1, row, count) if count < height else source
            column = self._value((1, count * width, 1))
            spread = self._value((1, count * width, copies))
            bands.append(self._value((1, count, width * copies)))
            window = Window(kernel=(1, copies), first=(0, 1 - copies), out=(count * width, copies))
            self.nodes += (
                Reshape(operator=self._operator, source=band, result=column),
                Pooling(
                    operator=self._operator,
                    source=column,
                    result=spread,
                    reduction=Reduction.MAX,
                    window=window,
                ),
                Reshape(operator=self._operator, source=spread, result=bands[-1]),
            )
        return self._join(bands, 1, self._value((1, height, width * copies)))

    def _row(self, source: Value, number: int) -> Value:
        return source if source.grid[0] == 1 else self._part(source, 1, number, 1)

    def _part(self, source: Value, axis: int, start: int, count: int) -> Value:
        shape = (*source.shape[:axis], count, *source.shape[axis + 1 : -1])
        part = self._value(shape)
        self.nodes.append(
            Slice(operator=self._operator, source=source, result=part, axis=axis, start=start)
        )
        return part

    def _join(self, parts: Sequence[Value], axis: int, result: Value) -> Value:
        if len(parts) == 1:
            return parts[0]
        self.nodes.append(
            Concatenation(operator=self._operator, result=result, parts=tuple(parts), axis=axis)
        )
        return result

    def _value(self, sizes: tuple[int, ...]) -> Value:
        """Return a new value with the shape `sizes` and the channels of the source as last axis."""
        return Value(f"{self._result.name} in {self._operator}", (*sizes, self._source.channels))
