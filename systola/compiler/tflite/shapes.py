# SPDX-License-Identifier: Apache-2.0
"""The calculation of shapes that a TensorFlow Lite file leaves open.

A converter writes 1 for a size that it does not know, and marks the tensor as open. The interpreter
calculates the sizes of open tensors when it begins, and so does this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis
from systola.compiler.tflite.element_moves import (
    ELEMENT_MOVES,
    VIEWS,
    Call,
    reduced_shape,
    source_position,
    view_shape,
)
from systola.compiler.tflite.graph import Operator, Tensor

_REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
_OTHERS = ("MAX_POOL_2D", "AVERAGE_POOL_2D", "RANK")
"""Kinds of operators with one input for which no shape is calculated, as the result has another
shape than the input. Their results keep the shape in the file.
"""
_BINARY = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "PRELU")


def with_known_shapes(
    operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
) -> list[Tensor]:
    """Return the tensors `outputs` of an operator, with calculated shapes where they are open.

    Where a shape cannot be calculated, the tensor keeps the shape in the file.
    """
    if not any(output.open for output in outputs):
        return list(outputs)
    try:
        shapes = _shapes(operator, inputs, outputs)
    except (ModelError, ValueError, IndexError, ZeroDivisionError):
        # The operator is malformed: the translation will refuse it later, and give the reason.
        return list(outputs)
    if len(shapes) != len(outputs):
        return list(outputs)
    return [
        replace(output, shape=shape) if output.open and output.data is None else output
        for output, shape in zip(outputs, shapes, strict=True)
    ]


def _shapes(
    operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
) -> list[tuple[int, ...]]:
    """Return the shapes of all results, or an empty list if they cannot be calculated."""
    kind, first = operator.kind, inputs[source_position(operator)] if inputs else None
    if first is None or first.size > MOST_ELEMENTS:
        return []

    def constant(position: int) -> NDArray[np.int64]:
        tensor = inputs[position]
        if tensor is None or tensor.data is None:
            raise ModelError(f"its input {position} must be a constant")
        return tensor.data.astype(np.int64)

    call = Call(operator, constant, [output.shape for output in outputs])
    if kind in VIEWS:
        return [view_shape(call, first.shape)]
    if kind in ELEMENT_MOVES:
        elements = np.broadcast_to(np.int8(0), first.shape)
        return [each.shape for each in ELEMENT_MOVES[kind](call, elements)]
    if kind in _REDUCTIONS:
        rank = len(first.shape)
        axes = {checked_axis(axis, rank) for axis in constant(1).reshape(-1).tolist()}
        return [reduced_shape(first.shape, axes, keep=bool(call.option("KeepDims")))]
    shapes = [each.shape for each in inputs if each is not None]
    if kind == "FULLY_CONNECTED":
        n, k = shapes[1]
        keep = call.option("KeepNumDims")
        return [(*(first.shape[:-1] if keep else (first.size // k,)), n)]
    if kind == "CONCATENATION":
        axis = checked_axis(call.option("Axis"), len(first.shape))
        total = sum(shape[axis] for shape in shapes)
        return [(*first.shape[:axis], total, *first.shape[axis + 1 :])]
    if kind == "PACK":
        axis = checked_axis(call.option("Axis"), len(first.shape) + 1)
        return [(*first.shape[:axis], len(shapes), *first.shape[axis:])]
    if kind == "SHAPE":
        return [(len(first.shape),)]
    one = len(operator.inputs) == 1 and kind not in _OTHERS
    return [np.broadcast_shapes(*shapes)] if one or kind in _BINARY else []
