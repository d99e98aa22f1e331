# SPDX-License-Identifier: Apache-2.0
"""The place of the largest code along an axis: two pools, and operations between them.

The first pool finds the largest code. Each element that equals it then becomes its own place,
counted from the end, and all other elements become 0. The second pool finds the largest of these,
which is the first place of the largest code.
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
"""Largest number of elements along the axis, as a code has to count them."""
_FACTOR = 1 << 29
"""Multiplier of an operand of Vector: code x becomes x 2^20 2^29 / 2^31 = x 2^18.

The result is divided by 2^18 again.
"""


@dataclass(frozen=True)
class Columns:
    """A way to see a tensor as a map in which the elements along one axis form columns.

    first_places takes such a map.
    """

    order: tuple[int, ...]
    """Axes of the tensor in the order in which the map has them."""
    shape: tuple[int, int, int, int]
    """Shape of the map: 1 x columns x places x channels."""


def columns_along(shape: Sequence[int], axis: int) -> Columns:
    """Return the map of a tensor of `shape` in which the elements along `axis` form columns."""
    rest = [number for number in range(len(shape)) if number != axis]
    # The last of the other axes becomes the channels.
    channels = shape[rest[-1]] if rest else 1
    columns = math.prod(shape) // (shape[axis] * channels)
    return Columns((*rest[:-1], axis, *rest[-1:]), (1, columns, shape[axis], channels))


def first_places(
    operator: str, source: Value, result: Value, dtype: str, *, smallest: bool
) -> list[Item] | None:
    """Return the operations for ArgMax along the columns of a map; for ArgMin with `smallest`.

    `source` is a map of 1 x columns x places x channels. `result` has columns x channels whole
    numbers of type `dtype`. If several codes are the largest, the first place counts. Returns None
    for more than MOST_PLACES places, and if the machine cannot copy the largest codes to all
    places.
    """
    _, columns, places, channels = source.shape
    if places > MOST_PLACES:
        return None
    items: list[Item] = []
    taken = source
    if smallest:
        # The smallest code has the largest complement, -1 - code.
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
    # The difference to the largest code is 0 for the largest code, and below 0 for the others.
    mark = table_bytes((INT8 == 0).astype(np.int8))
    # Places are counted from the end, in codes with the zero point -128: 1 for the last place.
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
