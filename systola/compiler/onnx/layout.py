# SPDX-License-Identifier: Apache-2.0
"""The storage order of a tensor's elements, as opposed to the order of the tensor's shape.

ONNX has the channels of a feature map before rows and columns, the machine after them. A
transposition or a change of shape only changes the storage order that the compiler notes. Elements
move only for an operator that needs another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """A storage order: factors of a tensor's number of elements, and the order in which they vary.

    An element's number, counted in the order of the tensor's shape, has one digit for each factor.
    The first digit is the most significant. The same digits, taken in the order `order`, make
    another number. Elements are stored in the order of this second number.
    """

    factors: tuple[int, ...]
    """Numbers above 1. Their product is the tensor's number of elements."""
    order: tuple[int, ...]

    def divided(self, shape: Sequence[int]) -> Layout | None:
        """Return the same layout with factors split further.

        Each size in `shape` is then the product of some consecutive factors. Returns
        None if the factors cannot be split in this way.
        """
        edges = sorted({*_tails(self.factors), *_tails(shape)}, reverse=True)
        if any(high % low for high, low in pairwise(edges)):
            return None
        tails = _tails(self.factors)
        parts = [
            [number for number, edge in enumerate(edges) if high >= edge > low]
            for high, low in pairwise(tails)
        ]
        factors = tuple(high // low for high, low in pairwise(edges))
        return Layout(factors, tuple(part for factor in self.order for part in parts[factor]))

    def axes(self, shape: Sequence[int]) -> list[list[int]]:
        """Return for each dimension of `shape` the factors that it consists of, as indices in
        `factors`.

        The product of these factors is the size of the dimension. The factors must be split for
        this shape, as `divided` does.
        """
        tails, ends = _tails(shape), _tails(self.factors)
        return [
            [number for number, edge in enumerate(ends[:-1]) if high >= edge > low]
            for high, low in pairwise(tails)
        ]

    def ordered(self, shape: Sequence[int], axes: Sequence[int]) -> Layout:
        """Return the layout that stores the same tensor in another order: the dimensions of `shape`
        in the order `axes`.
        """
        parts = self.axes(shape)
        return Layout(self.factors, tuple(part for axis in axes for part in parts[axis]))

    def transposed(self, shape: Sequence[int], permutation: Sequence[int]) -> Layout:
        """Return the layout of the transposed tensor, with all stored elements left in their
        places.

        Dimension i of the new tensor is dimension `permutation`[i] of `shape`.
        """
        parts = self.axes(shape)
        sequence = [part for axis in permutation for part in parts[axis]]
        place = {part: number for number, part in enumerate(sequence)}
        return Layout(
            tuple(self.factors[part] for part in sequence),
            tuple(place[part] for part in self.order),
        )

    @property
    def stored_factors(self) -> tuple[int, ...]:
        """Return the layout's factors in the order of storage."""
        return tuple(self.factors[part] for part in self.order)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Return for each place in storage the number of the tensor's element there, counted in the
        order of the shape.
        """
        count = np.arange(math.prod(self.factors), dtype=np.int64)
        return count.reshape(self.factors).transpose(self.order).reshape(-1)


def plain(shape: Sequence[int]) -> Layout:
    """Return the layout of a tensor with elements stored in the order of its shape."""
    factors = tuple(size for size in shape if size > 1)
    return Layout(factors, tuple(range(len(factors))))


def stored(shape: Sequence[int], axes: Sequence[int]) -> Layout:
    """Return the layout of a tensor of `shape` with its dimensions stored in the order `axes`."""
    return plain(shape).ordered(shape, axes)


def _tails(shape: Sequence[int]) -> list[int]:
    """Return the products of all sizes, of all but the first, and so on, down to 1 for no sizes."""
    return [*accumulate(reversed(shape), lambda a, b: a * b, initial=1)][::-1]
