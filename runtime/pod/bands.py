# SPDX-License-Identifier: Apache-2.0
"""Operations on maps in bands of rows, so that a model can be cut inside a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Pooling,
    Value,
)
from systola.compiler.partition import Item

Layer = Convolution | DepthwiseConvolution | Pooling


@dataclass(frozen=True)
class Band:
    """Rows `start` to `stop` - 1 of the result of `layer`."""

    layer: Layer
    start: int
    stop: int


Element = Item | Band
"""What a piece may begin or end with."""


def in_bands(item: Item, cost: float, limit: float) -> list[tuple[Element, float]]:
    """`item` in bands of about the same size that cost no more than `limit`, if it has any."""
    if not isinstance(item, Layer) or cost <= limit:
        return [(item, cost)]
    rows = item.result.grid[0]
    count = min(rows, int(cost / limit) + 1)
    edges = [rows * number // count for number in range(count + 1)]
    return [(Band(item, *each), cost * (each[1] - each[0]) / rows) for each in pairwise(edges)]


class Banded:
    """A network's elements, and what a stretch of them is as operations.

    Bands that stay together are one operation; where a layer is cut, the piece with its last rows
    puts the rows in front of them, which come from elsewhere, to its own.
    """

    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = tuple(elements)
        self._rows: dict[tuple[Value, int, int], Value] = {}

    def items(self, begin: int, end: int | None, cuts: Sequence[int]) -> tuple[Item, ...]:
        """The operations of elements `begin` to `end` - 1, or of all from there on, where pieces
        begin at `cuts`."""
        starts = {
            (element.layer, element.start)
            for element in (self._elements[cut] for cut in cuts if cut < len(self._elements))
            if isinstance(element, Band)
        }
        items: list[Item] = []
        for _, group in groupby(self._elements[begin:end], _layer):
            bands = list(group)
            first, last = bands[0], bands[-1]
            if isinstance(first, Band) and isinstance(last, Band):
                edges = {start for layer, start in starts if layer is first.layer}
                items += self._of_layer(first.layer, first.start, last.stop, edges)
            else:
                items += (each for each in bands if not isinstance(each, Band))
        return tuple(items)

    def _of_layer(self, layer: Layer, start: int, stop: int, edges: set[int]) -> Iterator[Item]:
        rows = layer.result.grid[0]
        if (start, stop) == (0, rows):
            yield layer
            return
        inner = sorted(edge for edge in edges if start < edge < stop)
        for one, other in pairwise([start, *inner, stop]):
            window = layer.window
            first = window.first[0] + one * window.stride[0], window.first[1]
            cut = replace(window, first=first, out=(other - one, window.out[1]))
            yield replace(layer, result=self._part(layer.result, one, other), window=cut)
        if stop == rows:
            places = sorted({0, *edges, rows})
            parts = tuple(self._part(layer.result, *each) for each in pairwise(places))
            yield Concatenation(operator=layer.operator, result=layer.result, parts=parts, axis=1)

    def _part(self, value: Value, start: int, stop: int) -> Value:
        key = (value, start, stop)
        if key not in self._rows:
            _, _, width, channels = value.shape
            name = f"{value.name}, rows {start} to {stop - 1}"
            self._rows[key] = Value(name, (1, stop - start, width, channels), value.dtype)
        return self._rows[key]


def _layer(element: Element) -> object:
    """What elements of one layer have in common, and no others."""
    return element.layer if isinstance(element, Band) else element
