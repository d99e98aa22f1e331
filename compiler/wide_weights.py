# SPDX-License-Identifier: Apache-2.0
"""Weights of more than 8 bits, such as uint8 less its zero point, as several of 8 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.compiler.operations import Concatenation, Node, Value


def weight_parts(weights: NDArray[np.int64]) -> list[NDArray[np.int8]]:
    """Return weights of 8 bits that add up to these: one, two for 9 bits, three for 255."""
    parts: list[NDArray[np.int8]] = []
    while not parts or weights.any():
        part = np.clip(weights, -128, 127).astype(np.int8)
        parts.append(part)
        weights = weights - part
    return parts


def repeated(operator: str, value: Value, count: int) -> tuple[Value, list[Node]]:
    """Return a value with the channels of `value` `count` times, and the operations for it."""
    if count == 1:
        return value, []
    result = Value(f"{value.name} {count} times", (*value.shape[:-1], count * value.channels))
    axis = len(value.shape) - 1
    parts = (value,) * count
    return result, [Concatenation(operator=operator, result=result, parts=parts, axis=axis)]
