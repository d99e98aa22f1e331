# SPDX-License-Identifier: Apache-2.0
"""The search for the largest code along an axis (ArgMax): two pools, and operations between them.

The place of an element is its index along the axis. The first pool finds the largest code. Each
element equal to the largest code then becomes its distance from the end, 1 for the last element,
and all other elements become 0. The second pool finds the largest distance, which is the distance
of the first such element. The host turns this distance into an index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from systola.arch.isa import Operation, Reduction, Rounding
from systola.compiler.host_stage import HostStage, LookUp
from systola.compiler.moves import moved
from systola.compiler.operations import (
    Binary,
    Pooling,
    Scale,
    Unary,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.partition import Item, needs_host
from systola.compiler.quantise import INT8, table_bytes

MOST_PLACES = 255
"""Largest number of elements along the axis of the search.

Each element has its distance from the end of the axis, and the last element has distance 1. All
distances must fit into 8 bits.
"""
_FACTOR = 1 << 29
"""Multiplier of both codes in the subtraction of the largest code from an element.

The instruction Vector turns a code x into x * 2^20 * 2^29 / 2^31 = x * 2^18. The requantisation
of the difference divides by 2^18, so the result is the exact difference.
"""


@dataclass(frozen=True)
class Columns:
    """A way to turn a tensor into the map that first_places takes.

    The map has the shape 1 x columns x places x channels. For each column and channel, the places
    are the elements along the searched axis of the tensor.
    """

    order: tuple[int, ...]
    """Numbers of the tensor's axes, counted from 0, in the order that the transposed tensor has."""
    shape: tuple[int, int, int, int]
    """Shape of the map after the transposition: 1 x columns x places x channels."""


def columns_along(shape: Sequence[int], axis: int) -> Columns:
    """Return how a tensor of `shape` becomes a map for a search along `axis`."""
    rest = [number for number in range(len(shape)) if number != axis]
    # The last of the axes that are not searched becomes the channels.
    channels = shape[rest[-1]] if rest else 1
    columns = math.prod(shape) // (shape[axis] * channels)
    return Columns((*rest[:-1], axis, *rest[-1:]), (1, columns, shape[axis], channels))


def first_places(
    operator: str, source: Value, result: Value, dtype: str, *, smallest: bool
) -> list[Item] | None:
    """Return the operations that find the index of the largest code in each column of a map.

    `source` is a map of 1 x columns x places x channels, and `result` has columns x channels
    indexes of type `dtype`. Of several equal codes the first one is found. If `smallest` is true,
    the smallest code is searched in place of the largest. Returns None for more than MOST_PLACES
    elements in a column, and if the machine cannot copy the largest codes to all elements.
    """
    _, columns, places, channels = source.shape
    if places > MOST_PLACES:
        return None
    items: list[Item] = []
    taken = source
    if smallest:
        # The complement of a code is -1 - code. The smallest code has the largest complement.
        taken = Value(f"{source.name} negated", source.shape)
        complement = table_bytes((-1 - INT8).astype(np.int8))
        items.append(Unary(operator=operator, result=taken, source=source, table=complement))
    window = Window(kernel=(1, places), out=(columns, 1))
    best_shape = (1, columns, 1, channels)
    best = Value(f"largest for {operator}", best_shape)
    items.append(_largest(operator, taken, best, window))
    if columns > 1:
        wide = Value(f"{best.name}, repeated", source.shape)
        positions = np.arange(columns * channels).reshape(best_shape)
        copies = moved(operator, best, wide, np.broadcast_to(positions, source.shape))
        if needs_host(copies):
            return None
        items += copies
        best = wide
    equal, marked, counted = (
        Value(f"{name} for {operator}", source.shape) for name in ("differences", "marks", "places")
    )
    first = Value(f"first place for {operator}", best_shape)
    # An element minus the largest code is 0 for the largest codes, below 0 for smaller ones.
    mark = table_bytes((INT8 == 0).astype(np.int8))
    # Distances from the end are 1 for the last element. The zero point of their codes is -128.
    from_end = (places - np.arange(places) - 128).astype(np.int8)
    spread = np.broadcast_to(from_end[:, np.newaxis], source.shape)
    items += [
        Binary(
            operator=operator,
            result=equal,
            operation=Operation.SUBTRACT,
            a=taken,
            b=best,
            scale_a=Scale(0, _FACTOR),
            scale_b=Scale(0, _FACTOR),
            output=scalar_requantisation(1 << 30, -17, rounding=Rounding.SINGLE),
        ),
        Unary(operator=operator, result=marked, source=equal, table=mark),
        Binary(
            operator=operator,
            result=counted,
            operation=Operation.MULTIPLY,
            a=marked,
            b=spread,
            scale_a=Scale(0),
            scale_b=Scale(-128),
            output=scalar_requantisation(1 << 30, 1, rounding=Rounding.SINGLE, zero_point=-128),
        ),
        _largest(operator, counted, first, window),
    ]
    numbers = LookUp((places - np.arange(256)).astype(dtype))
    items.append(HostStage(operator=operator, sources=(first,), result=result, function=numbers))
    return items


def _largest(operator: str, source: Value, result: Value, window: Window) -> Pooling:
    return Pooling(
        operator=operator, source=source, result=result, reduction=Reduction.MAX, window=window
    )
