# SPDX-License-Identifier: Apache-2.0
"""Operations on maps, cut into bands of rows, so that a model can be cut inside a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from systola.compiler.lower.bands import Band as Rows
from systola.compiler.lower.bands import needed, window_of
from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Pooling,
    Slice,
    Value,
)
from systola.compiler.partition import Item

Layer = Convolution | DepthwiseConvolution | Pooling


@dataclass(frozen=True)
class Band:
    """A band of a layer: rows `start` to `stop` - 1 of the result of `layer`."""

    layer: Layer
    start: int
    stop: int


Element = Item | Band
"""The smallest part of a model that goes into a piece: an operation, or a band of a layer."""


def in_bands(item: Item, cost: float, limit: float) -> list[tuple[Element, float]]:
    """Return `item` in bands of about the same size that cost at most `limit` each.

    An item without rows, or of lower cost, is returned whole. A band has at least one row.
    """
    if not isinstance(item, Layer) or cost <= limit:
        return [(item, cost)]
    rows = item.result.grid[0]
    count = min(rows, int(cost / limit) + 1)
    edges = [rows * number // count for number in range(count + 1)]
    return [(Band(item, *each), cost * (each[1] - each[0]) / rows) for each in pairwise(edges)]


class Banded:
    """A network as elements that makes the operations of a piece, a range of elements.

    Adjacent bands of one layer in the same piece are one operation. If a layer is cut, several
    pieces calculate rows of its result, and the piece with the last rows joins all rows. Each piece
    after a cut needs only some rows of the layer's source. The piece that makes the source cuts
    these rows out.
    """

    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = tuple(elements)
        self._made = {_layer(element).result for element in elements}
        self._parts: dict[tuple[Value, int, int], Value] = {}
        self._slices: dict[tuple[Layer, int, int], Slice] = {}

    def items(self, begin: int, end: int | None, cuts: Sequence[int]) -> tuple[Item, ...]:
        """Return the operations of elements `begin` to `end` - 1; with None, of all from `begin`
        on.

        `cuts` has the first element of each piece.
        """
        starts: dict[Layer, set[int]] = defaultdict(set)
        for element in (self._elements[cut] for cut in cuts if cut < len(self._elements)):
            if isinstance(element, Band) and element.start:
                starts[element.layer].add(element.start)
        items: list[Item] = []
        for _, group in groupby(self._elements[begin:end], _layer):
            bands = list(group)
            first, last = bands[0], bands[-1]
            if isinstance(first, Band) and isinstance(last, Band):
                items += self._of_layer(first.layer, first.start, last.stop, starts[first.layer])
            else:
                items += (each for each in bands if not isinstance(each, Band))
        made = {item.result for item in items}
        for layer, edges in starts.items():
            if layer.source in made:
                items += (self._rows_for(layer, *each) for each in _behind(layer, edges))
        return tuple(items)

    def _of_layer(self, layer: Layer, start: int, stop: int, edges: set[int]) -> Iterator[Item]:
        rows = layer.result.grid[0]
        ends = sorted({start, *(edge for edge in edges if start < edge < stop), stop})
        if ends == [0, rows]:
            yield layer
            return
        for one, other in pairwise(ends):
            source, first = layer.source, 0
            if one and layer.source in self._made:
                part = self._rows_for(layer, one, other)
                source, first = part.result, part.start
            yield replace(
                layer,
                source=source,
                result=self._part(layer.result, one, other),
                window=window_of(layer.window, Rows(one, other - one), first),
            )
        if stop == rows:
            places = sorted({0, *edges, rows})
            parts = tuple(self._part(layer.result, *each) for each in pairwise(places))
            yield Concatenation(operator=layer.operator, result=layer.result, parts=parts, axis=1)

    def _rows_for(self, layer: Layer, start: int, stop: int) -> Slice:
        """Return the rows of the source of `layer` that these rows of its result need.

        The rows of the result are `start` to `stop` - 1.
        """
        key = (layer, start, stop)
        if key not in self._slices:
            source = layer.source
            rows = needed(layer.window, source.grid[0], Rows(start, stop - start))
            self._slices[key] = Slice(
                operator=layer.operator,
                source=source,
                result=_rows(source, rows.first, rows.first + rows.count),
                axis=1,
                start=rows.first,
            )
        return self._slices[key]

    def _part(self, value: Value, start: int, stop: int) -> Value:
        key = (value, start, stop)
        if key not in self._parts:
            self._parts[key] = _rows(value, start, stop)
        return self._parts[key]


def _rows(value: Value, start: int, stop: int) -> Value:
    """Return a new value for rows `start` to `stop` - 1 of `value`."""
    _, _, width, channels = value.shape
    name = f"{value.name}, rows {start} to {stop - 1}"
    return Value(name, (1, stop - start, width, channels), value.dtype)


def _behind(layer: Layer, edges: set[int]) -> Iterator[tuple[int, int]]:
    """Return the first row and the row after the last, for each part of a layer except the first
    part.
    """
    return pairwise([*sorted(edges), layer.result.grid[0]])


def _layer(element: Element) -> Item:
    """Return the layer that a band is a part of; an operation is returned as it is."""
    return element.layer if isinstance(element, Band) else element
