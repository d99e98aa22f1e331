# SPDX-License-Identifier: Apache-2.0
"""Checks of shapes and axes that the readers of `.tflite` and `.onnx` files have in common."""

from __future__ import annotations

from systola.compiler.errors import ModelError

MOST_ELEMENTS = 1 << 24
"""Largest number of elements of a tensor that is moved or calculated by the compiler."""


def checked_axis(axis: int, rank: int) -> int:
    """Return `axis` counted from the first axis, where -1 stands for the last of `rank` axes.

    Raises ModelError if there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ModelError(f"it has no axis {axis}")
    return axis % rank
