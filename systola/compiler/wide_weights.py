# SPDX-License-Identifier: Apache-2.0
"""Weights of more than 8 bits, as sums of weights of 8 bits.

Such weights arise where a zero point is subtracted from weights of uint8. A channel with such a
weight is repeated, and the products of all repetitions, each with a weight of 8 bits, are added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.compiler.operations import Concatenation, Node, Slice, Value

BLOCK = 32
"""Number of channels that are repeated together if any of them has a weight of more than 8 bits."""


def weight_parts(weights: NDArray[np.int64]) -> list[NDArray[np.int8]]:
    """Return int8 arrays that add up to `weights`.

    There is one array if all weights are within 8 bits, and two if all are from -256 to 254. A
    weight of 255 takes three, as an array adds 127 at most.
    """
    parts: list[NDArray[np.int8]] = []
    while not parts or weights.any():
        part = np.clip(weights, -128, 127).astype(np.int8)
        parts.append(part)
        weights = weights - part
    return parts


def widened(
    operator: str, value: Value, weights: NDArray[np.int64]
) -> tuple[Value, list[Node], NDArray[np.int8]]:
    """Return a wider value, the operations that make it of `value`, and its weights of 8 bits.

    After the channels of `value`, the wider value has a copy of each block of channels with a
    weight of more than 8 bits. Its products with the new weights add up to the same sums as `value`
    with `weights`. The last axis but one of the weights is along the channels.
    """
    first, *rest = weight_parts(weights)
    axis, channels = len(value.shape) - 1, value.channels
    values, parts, items = [value], [first], list[Node]()
    for part in rest:
        for start in range(0, channels, BLOCK):
            block = part[..., start : start + BLOCK, :]
            if not block.any():
                continue
            count = block.shape[-2]
            some = value
            if count < channels:
                shape = (*value.shape[:-1], count)
                some = Value(f"{value.name} from {start} of {operator}", shape)
                if some not in (each.result for each in items):
                    items.append(
                        Slice(operator=operator, source=value, result=some, axis=axis, start=start)
                    )
            values.append(some)
            parts.append(block)
    if not rest:
        return value, [], first
    count = sum(each.channels for each in values)
    result = Value(f"{value.name} of {count} channels", (*value.shape[:-1], count))
    items.append(Concatenation(operator=operator, result=result, parts=tuple(values), axis=axis))
    return result, items, np.concatenate(parts, axis=-2)


def repeated(operator: str, value: Value, count: int) -> tuple[Value, list[Node]]:
    """Return a value with `count` copies of all channels of `value`, and the operations for it.

    The copies follow each other along the channels.
    """
    if count == 1:
        return value, []
    result = Value(f"{value.name} {count} times", (*value.shape[:-1], count * value.channels))
    axis = len(value.shape) - 1
    parts = (value,) * count
    return result, [Concatenation(operator=operator, result=result, parts=parts, axis=axis)]
