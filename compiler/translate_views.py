# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements, as operations."""

from __future__ import annotations

import math

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.graph import Operator
from systola.compiler.operations import Concatenation, Reshape, Slice, Value, Window
from systola.compiler.scope import Scope, check_moves, gathered, one_result, same_quantisation


def translate_reshape(scope: Scope, operator: Operator) -> None:
    """RESHAPE, SQUEEZE and EXPAND_DIMS, of values of any type."""
    one_result(operator, 1)
    dtype = scope.tensor(operator, 0).dtype
    source, _ = scope.source(operator, dtype=dtype)
    result, _ = scope.result(operator, dtype=dtype)
    if math.prod(source.shape) != math.prod(result.shape):
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    scope.add(Reshape(operator=str(operator), result=result, source=source))


def translate_transpose(scope: Scope, operator: Operator) -> None:
    """TRANSPOSE that leaves the elements in their order."""
    one_result(operator, 2)
    source, _ = scope.source(operator)
    order = [int(axis) for axis in scope.constant(operator, 1, "int32").reshape(-1)]
    if sorted(order) != list(range(len(source.shape))):
        raise ModelError(f"its permutation {order} does not fit the shape {source.shape}")
    moved = [axis for axis in order if source.shape[axis] > 1]
    if moved != sorted(moved):
        raise ModelError("a transposition that changes the order of elements is not supported")
    translate_reshape(scope, operator)


def translate_split(scope: Scope, operator: Operator) -> None:
    """SPLIT into equal parts."""
    axis = int(scope.constant(operator, 0, "int32").reshape(-1)[0])
    source, tensor = scope.source(operator, 1)
    axis = _axis(axis, len(source.shape))
    start = 0
    for position in range(len(operator.outputs)):
        result, result_tensor = scope.result(operator, position)
        same_quantisation(tensor, result_tensor)
        size = result.shape[axis] if axis < len(result.shape) else 0
        _slice(scope, operator, source, result, axis, start, 1)
        start += size
    if start != source.shape[axis]:
        raise ModelError(f"its parts have {start} of {source.shape[axis]} elements")


def translate_unpack(scope: Scope, operator: Operator) -> None:
    """UNPACK: slices of one element, without that axis."""
    source, tensor = scope.source(operator)
    axis = _axis(int(operator.options.get("Axis", 0)), len(source.shape))
    if len(operator.outputs) != source.shape[axis]:
        raise ModelError(f"it makes {len(operator.outputs)} of {source.shape[axis]} elements")
    shape = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    for position in range(len(operator.outputs)):
        result, result_tensor = scope.result(operator, position)
        same_quantisation(tensor, result_tensor)
        part = Value(f"{result.name} unpacked", shape)
        _slice(scope, operator, source, part, axis, position, 1)
        _reshape(scope, operator, part, result)


def translate_strided_slice(scope: Scope, operator: Operator) -> None:
    """STRIDED_SLICE with constant bounds and positive strides."""
    one_result(operator, 4)
    source, tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    same_quantisation(tensor, result_tensor)
    options = operator.options
    if options.get("EllipsisMask") or options.get("NewAxisMask") or options.get("Offset"):
        raise ModelError("its masks are not supported")
    begin, end, strides = (
        [int(value) for value in scope.constant(operator, position, "int32").reshape(-1)]
        for position in (1, 2, 3)
    )
    if not len(begin) == len(end) == len(strides) <= len(source.shape):
        raise ModelError("its bounds do not fit its input")
    if any(stride < 1 for stride in strides):
        raise ModelError("strides below 1 are not supported")
    value = source
    for axis, (low, high, stride) in enumerate(zip(begin, end, strides, strict=True)):
        size = source.shape[axis]
        if options.get("ShrinkAxisMask", 0) >> axis & 1:
            positions = range(low % size, low % size + 1)
        else:
            first = None if options.get("BeginMask", 0) >> axis & 1 else low
            last = None if options.get("EndMask", 0) >> axis & 1 else high
            positions = range(size)[first:last:stride]
        if len(positions) == 0:
            raise ModelError("its result is empty")
        if len(positions) == size:
            continue
        shape = (*value.shape[:axis], len(positions), *value.shape[axis + 1 :])
        part = Value(f"{result.name} along {axis}", shape)
        _slice(scope, operator, value, part, axis, positions.start, positions.step)
        value = part
    _reshape(scope, operator, value, result)


def translate_concatenation(scope: Scope, operator: Operator) -> None:
    """CONCATENATION of values with the same scale and zero point."""
    one_result(operator, 1)
    result, result_tensor = scope.result(operator)
    if operator.options.get("FusedActivationFunction", "NONE") != "NONE":
        raise ModelError("a fused activation is not supported")
    axis = _axis(int(operator.options.get("Axis", 0)), len(result.shape))
    parts: list[Value] = []
    for position in range(len(operator.inputs)):
        part, tensor = scope.source(operator, position)
        same_quantisation(tensor, result_tensor)
        shape = (*part.shape[:axis], result.shape[axis], *part.shape[axis + 1 :])
        if len(part.shape) != len(result.shape) or shape != result.shape:
            raise ModelError(f"its input of shape {part.shape} does not fit {result.shape}")
        parts.append(part)
    if sum(part.shape[axis] for part in parts) != result.shape[axis]:
        raise ModelError("its result has not as many elements as its inputs")
    if axis < len(result.shape) - 1 and math.prod(result.shape[:axis]) > 1:
        raise ModelError(f"along axis {axis} of {result.shape} it is not supported")
    scope.add(Concatenation(operator=str(operator), result=result, parts=tuple(parts), axis=axis))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"it has no axis {axis}")
    return axis % rank


def _slice(
    scope: Scope,
    operator: Operator,
    source: Value,
    result: Value,
    axis: int,
    start: int,
    stride: int,
) -> None:
    """Every `stride`-th element along one axis, from `start` on."""
    count = result.shape[axis] if axis < len(result.shape) else 0
    shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
    if result.shape != shape or start + (count - 1) * stride >= source.shape[axis]:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    last = axis == len(source.shape) - 1
    if stride == 1 and (last or math.prod(source.shape[:axis]) == 1):
        scope.add(
            Slice(operator=str(operator), result=result, source=source, axis=axis, start=start)
        )
        return
    if last:
        check_moves(source.channels, count)
        channels, window = start + stride * np.arange(count), None
    elif len(source.shape) == 4 and source.shape[0] == 1 and axis in (1, 2):
        check_moves(source.channels, source.channels)
        channels = np.arange(source.channels)
        window = Window(
            kernel=(1, 1),
            stride=(stride, 1) if axis == 1 else (1, stride),
            first=(start, 0) if axis == 1 else (0, start),
            out=result.grid,
        )
    else:
        raise ModelError(f"along axis {axis} of {source.shape} it is not supported")
    scope.add(gathered(str(operator), source, result, channels, 0, window))


def _reshape(scope: Scope, operator: Operator, source: Value, result: Value) -> None:
    if math.prod(source.shape) != math.prod(result.shape):
        raise ModelError(f"it makes shape {result.shape} of {math.prod(source.shape)} elements")
    scope.add(Reshape(operator=str(operator), result=result, source=source))
