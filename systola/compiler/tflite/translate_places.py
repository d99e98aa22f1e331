# SPDX-License-Identifier: Apache-2.0
"""The translation of ARG_MAX and ARG_MIN, which find the index of an extreme along an axis."""

from __future__ import annotations

import math

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import Extreme
from systola.compiler.moves import moved
from systola.compiler.operations import Value
from systola.compiler.partition import Item, needs_host
from systola.compiler.places import columns_along, first_places
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis
from systola.compiler.tflite.graph import Operator
from systola.compiler.tflite.scope import Scope, one_result


def translate_arg_extreme(scope: Scope, operator: Operator) -> None:
    """Translate ARG_MAX and ARG_MIN of int8 to two pools on the machine. For float32 and uint8, and
    for axes along which the machine would need too many moves, they become work of the host.
    """
    one_result(operator, 2)
    tensor = scope.tensor(operator, 0)
    if tensor.dtype not in ("int8", "uint8", "float32"):
        raise ModelError(f"its input is {tensor.dtype}, supported are int8, uint8 and float32")
    axes = scope.whole_numbers(operator, 1).reshape(-1).tolist()
    if len(axes) != 1:
        raise ModelError("it needs one axis")
    axis = checked_axis(axes[0], len(tensor.shape))
    source, _ = scope.source(operator, dtype=tensor.dtype)
    dtype = scope.graph.tensors[operator.outputs[0]].dtype
    if dtype not in ("int32", "int64") or (axis == 0 and scope.repeat > 1):
        raise ModelError(f"a result of {dtype} along axis {axis} is not supported")
    result, _ = scope.result(operator, dtype=dtype)
    if result.shape != (*source.shape[:axis], *source.shape[axis + 1 :]):
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    items = _on_the_machine(operator, source, result, axis) if tensor.dtype == "int8" else None
    if items is None:
        scope.host(operator, Extreme(axis, operator.kind == "ARG_MAX", dtype), result, source)
    else:
        scope.add(*items)


def _on_the_machine(
    operator: Operator, source: Value, result: Value, axis: int
) -> list[Item] | None:
    """Return the operations for ARG_MAX or ARG_MIN of int8 on the machine, or None if it cannot."""
    shape = source.shape
    if math.prod(shape) > MOST_ELEMENTS:
        return None
    columns = columns_along(shape, axis)
    value = Value(f"{source.name} for {operator}", columns.shape)
    positions = np.arange(math.prod(shape)).reshape(shape).transpose(columns.order)
    moves = moved(str(operator), source, value, positions)
    found = first_places(
        str(operator), value, result, result.dtype, smallest=operator.kind == "ARG_MIN"
    )
    if found is None or needs_host(moves):
        return None
    return [*moves, *found]
