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
    """An order in which the elements of a tensor are stored.

    The number of elements is written as a product of factors. An element's number, counted in the
    order of the tensor's shape, has one digit for each factor, the most significant first. `order`
    has the indices of the digits, from the slowest in storage to the fastest. A 2 x 3 tensor that
    is stored column by column has the factors (2, 3) and the order (1, 0).
    """

    factors: tuple[int, ...]
    """Factors above 1 of the tensor's number of elements, in the order of the tensor's shape."""
    order: tuple[int, ...]

    def divided(self, shape: Sequence[int]) -> Layout | None:
        """Return the same storage order with `factors` split further.

        Each size in `shape` is then the product of some consecutive factors. Returns None if the
        factors cannot be split in this way.
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
        """Return for each dimension of `shape` a list of its factors, as indices in `factors`.

        The product of a dimension's factors is the size of the dimension. The layout must already
        be split for `shape`, as `divided` does it.
        """
        tails, ends = _tails(shape), _tails(self.factors)
        return [
            [number for number, edge in enumerate(ends[:-1]) if high >= edge > low]
            for high, low in pairwise(tails)
        ]

    def ordered(self, shape: Sequence[int], axes: Sequence[int]) -> Layout:
        """Return the layout of the same tensor if it is stored with its dimensions in the order
        `axes`.

        `shape` is the tensor's shape.
        """
        parts = self.axes(shape)
        return Layout(self.factors, tuple(part for axis in axes for part in parts[axis]))

    def transposed(self, shape: Sequence[int], permutation: Sequence[int]) -> Layout:
        """Return the layout of the transposed tensor if all stored elements stay in their places.

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
        """Return an array with the number of the element at each position in storage.

        Elements are numbered from 0 in the order of the tensor's shape.
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
    """Return the number of elements of `shape`, of `shape[1:]`, of `shape[2:]`, and so on, down to
    1 for no dimensions.
    """
    return [*accumulate(reversed(shape), lambda a, b: a * b, initial=1)][::-1]
