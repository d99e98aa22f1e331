# SPDX-License-Identifier: Apache-2.0
"""Checks of shapes and axes for the front ends of both `.tflite` and `.onnx` files."""

from __future__ import annotations

from systola.compiler.errors import ModelError

MOST_ELEMENTS = 1 << 24
"""Largest number of elements in a tensor that the compiler itself moves or calculates."""


def checked_axis(axis: int, rank: int) -> int:
    """Return `axis` as a number from 0 to `rank` - 1; axis -1 is the last axis.

    Raises ModelError if there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ModelError(f"it has no axis {axis}")
    return axis % rank
