# SPDX-License-Identifier: Apache-2.0
"""The translation of TensorFlow Lite's operators that only move elements.

The origin of a move is an array: for each element of the result, the position in the flattened
source, or -1 for an element that the move fills in.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import Concatenate, LookUp, View
from systola.compiler.moves import (
    MOST_PARTS,
    Positions,
    constant_value,
    moved,
)
from systola.compiler.operations import Concatenation, Reshape, Slice, Value
from systola.compiler.partition import needs_host
from systola.compiler.quantise import INT8
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis
from systola.compiler.tflite.element_moves import (
    Call,
    move_elements,
    read_padding,
    source_position,
    view_shape,
)
from systola.compiler.tflite.graph import Operator, Tensor
from systola.compiler.tflite.scope import (
    Dequantised,
    Moved,
    Padded,
    Scope,
    one_result,
    same_quantisation,
)


def translate_reshape(scope: Scope, operator: Operator) -> None:
    """Translate RESHAPE, SQUEEZE and EXPAND_DIMS, on any type, to a change of shape."""
    one_result(operator, 1)
    dtype = scope.tensor(operator, 0).dtype
    source, _ = scope.source(operator, dtype=dtype)
    result, tensor = scope.result(operator, dtype=dtype)
    call = Call(operator, lambda number: scope.whole_numbers(operator, number), [tensor.shape])
    shape = view_shape(call, scope.tensor(operator, 0).shape)
    if shape != tensor.shape:
        raise ModelError(f"it makes shape {shape}, not {tensor.shape}")
    if source.shape == result.shape and operator.outputs[0] not in scope.graph.outputs:
        scope.alias(operator, source)
        return
    if dtype == "int8" and source.pixels * source.channels <= MOST_ELEMENTS:
        before = scope.moved.get(source)
        order = np.arange(source.pixels * source.channels)
        add_move(scope, operator, source, result, order, before.fill if before else 0)
    else:
        add_view(scope, operator, source, result)
    if source in scope.dequantised:
        add_view(scope, operator, scope.dequantised[source].codes, _twin(scope, source, result))
    padded = scope.padded.get(source)
    if padded:
        _reshape_padded(scope, padded, source, result)


def add_view(scope: Scope, operator: Operator, source: Value, result: Value) -> None:
    """Add an operation that gives `result` the elements of `source`, in the same order."""
    if math.prod(source.shape) != math.prod(result.shape):
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    if source.dtype == "int8":
        scope.add(Reshape(operator=str(operator), result=result, source=source))
    else:
        scope.host(operator, View(), result, source)


def _reshape_padded(scope: Scope, padded: Padded, source: Value, result: Value) -> None:
    """Note in the scope that `result`, a reshaped `source`, has the padding of `source`.

    A convolution after the reshape can then do this padding itself. Nothing is noted if the change
    of shape does more than add or remove dimensions of size 1.
    """
    axes = [axis for axis, size in enumerate(source.shape) if size > 1]
    wide = [axis for axis, size in enumerate(result.shape) if size > 1]
    if [source.shape[axis] for axis in axes] != [result.shape[axis] for axis in wide]:
        return
    sizes, before = [1] * len(result.shape), [0] * len(result.shape)
    for old, new in zip(axes, wide, strict=True):
        sizes[new], before[new] = padded.source.shape[old], padded.before[old]
    inner = Value(f"{padded.source.name} as {result.name}", tuple(sizes))
    scope.add(Reshape(operator=f"view for {result.name}", result=inner, source=padded.source))
    scope.padded[result] = Padded(inner, tuple(before), padded.fill)


def translate_move(scope: Scope, operator: Operator) -> None:
    """Translate an operator that only moves elements, on values of any type."""
    position = source_position(operator)
    tensor = scope.tensor(operator, position)
    source, _ = scope.source(operator, position, tensor.dtype)
    if tensor.size > MOST_ELEMENTS:
        raise ModelError(f"moving a value of shape {tensor.shape} is not supported")
    results = [
        scope.result(operator, number, tensor.dtype) for number in range(len(operator.outputs))
    ]
    call = Call(
        operator,
        lambda number: scope.whole_numbers(operator, number),
        [each.shape for _, each in results],
    )
    fill = 0
    if operator.kind in ("PAD", "PADV2", "SPACE_TO_BATCH_ND"):
        zeros = operator.kind == "PAD" and tensor.dtype in ("int16", "float32")
        if tensor.dtype != "int8" and not zeros:
            raise ModelError(f"its input is {tensor.dtype}, supported is int8")
        if math.prod(results[0][1].shape) > MOST_ELEMENTS:
            raise ModelError(f"a value of shape {results[0][1].shape} is not supported")
        # LiteRT pads float32 with 0.0, and ignores any zero point of the tensor, so `fill` stays 0.
        if tensor.dtype == "int8" or (len(tensor.scales) and tensor.dtype == "int16"):
            same_quantisation(tensor, results[0][1])
            fill = _fill(scope, operator, tensor.zero_point)
    origins = move_elements(call, np.arange(tensor.size).reshape(tensor.shape))
    for (result, _), origin in zip(results, origins, strict=True):
        one = _of_one_sample(scope, origin, tensor.size)
        add_move(scope, operator, source, result, one, fill)
        if source in scope.dequantised:
            codes = scope.dequantised[source].codes
            code = _code_of_zero(scope.dequantised[source].numbers) if bool((one < 0).any()) else 0
            if code is not None:
                scope.add(*moved(str(operator), codes, _twin(scope, source, result), one, code))
    if operator.kind in ("PAD", "PADV2"):
        pairs = read_padding(call, tensor.shape)
        scope.padded[results[0][0]] = Padded(source, tuple(before for before, _ in pairs), fill)


def add_move(
    scope: Scope, operator: Operator, source: Value, result: Value, origin: Positions, fill: int
) -> None:
    """Add a move of elements from `source` to `result`, with `fill` where `origin` is -1.

    The host may be needed for this move, or for an earlier move that led to `source`. Then the
    single move that does the work of all is added instead, if the machine can do it.
    """
    items = moved(str(operator), source, result, origin, fill)
    if result.dtype == "int8":
        origin = origin.reshape(-1)
        by_host = needs_host(items)
        before = scope.moved.get(source)
        if before and (before.fill == fill or not bool((origin < 0).any())):
            origin = np.where(origin < 0, -1, before.origin[origin])
            source, fill = before.source, before.fill
            by_host = by_host or before.by_host
            if by_host:
                together = moved(str(operator), source, result, origin, fill)
                if not needs_host(together):
                    items, by_host = together, False
        scope.moved[result] = Moved(source, origin, fill, by_host)
    scope.add(*items)


def _code_of_zero(numbers: NDArray[np.float32]) -> int | None:
    """Return a code that stands for +0.0, or None if there is no such code.

    `numbers` has the float32 number of each code, from code -128 to code 127.
    """
    codes = np.flatnonzero((numbers == 0) & ~np.signbit(numbers))
    return int(INT8[codes[0]]) if codes.size else None


def _twin(scope: Scope, source: Value, result: Value) -> Value:
    """Return a new int8 value for the codes of `result`, which a move made of `source`.

    Both are float32 values that stand for codes. The new value is noted in `scope.dequantised`; the
    caller must add the operation that makes it.
    """
    twin = Value(f"{result.name} quantised", result.shape)
    scope.dequantised[result] = Dequantised(twin, scope.dequantised[source].numbers)
    return twin


def _fill(scope: Scope, operator: Operator, zero_point: int) -> int:
    if operator.kind != "PADV2":
        return zero_point
    tensor = scope.tensor(operator, 2)
    if tensor.data is None or tensor.size != 1 or tensor.dtype != "int8":
        raise ModelError("its padding must be a constant of int8")
    return int(tensor.data.reshape(()))


def _of_one_sample(scope: Scope, origin: Positions, size: int) -> Positions:
    """Return the origin of a move within one sample, where `origin` is for all samples together.

    `size` is the number of elements of the source, with all samples. Raises ModelError unless the
    move is the same within each sample.
    """
    if scope.repeat == 1:
        return origin
    each = origin.reshape(scope.repeat, -1)
    first = np.arange(scope.repeat)[:, np.newaxis] * (size // scope.repeat)
    if not np.array_equal(
        np.where(each >= 0, each - first, -1), np.broadcast_to(each[0], each.shape)
    ):
        raise ModelError("moving elements from sample to sample is not supported")
    return each[0]


def translate_concatenation(scope: Scope, operator: Operator) -> None:
    """Translate CONCATENATION. Inputs of int8 must have the scale and zero point of the result."""
    if operator.options.get("FusedActivationFunction", "NONE") != "NONE":
        raise ModelError("a fused activation is not supported")
    result, _ = _joined_result(scope, operator)
    axis = checked_axis(int(operator.options.get("Axis", 0)), len(result.shape))
    parts: list[Value] = []
    for position in range(len(operator.inputs)):
        part = _part(scope, operator, position)
        shape = (*part.shape[:axis], result.shape[axis], *part.shape[axis + 1 :])
        if len(part.shape) != len(result.shape) or shape != result.shape:
            raise ModelError(f"its input of shape {part.shape} does not fit {result.shape}")
        parts.append(part)
    if sum(part.shape[axis] for part in parts) != result.shape[axis]:
        raise ModelError("its result has not as many elements as its inputs")
    join(scope, operator, parts, result, axis)


def translate_pack(scope: Scope, operator: Operator) -> None:
    """Translate PACK to a concatenation of its inputs along a new axis."""
    result, _ = _joined_result(scope, operator)
    axis = checked_axis(int(operator.options.get("Axis", 0)), len(result.shape))
    if axis == 0 and scope.repeat > 1:
        raise ModelError("joining samples is not supported")
    if len(operator.inputs) != result.shape[axis]:
        raise ModelError(f"it makes {result.shape[axis]} elements of {len(operator.inputs)}")
    shape = (*result.shape[:axis], 1, *result.shape[axis + 1 :])
    parts: list[Value] = []
    for position in range(len(operator.inputs)):
        given = _part(scope, operator, position)
        if given.shape != (*shape[:axis], *shape[axis + 1 :]):
            raise ModelError(f"its input of shape {given.shape} does not fit {result.shape}")
        part = Value(f"input {position} of {operator}", shape, result.dtype)
        add_view(scope, operator, given, part)
        parts.append(part)
    join(scope, operator, parts, result, axis)


def _joined_result(scope: Scope, operator: Operator) -> tuple[Value, str]:
    one_result(operator, 1)
    dtype = scope.tensor(operator, 0).dtype
    return scope.result(operator, dtype=dtype)[0], dtype


def _part(scope: Scope, operator: Operator, position: int) -> Value:
    """Return input `position` of CONCATENATION or PACK as a value with the result's scale.

    An int8 input must have this scale already, a uint8 input of CONCATENATION is converted.
    """
    tensor = scope.tensor(operator, position)
    result_tensor = scope.graph.tensors[operator.outputs[0]]
    if result_tensor.dtype == "int8":
        same_quantisation(tensor, result_tensor)
    if tensor.data is None:
        source, _ = scope.source(operator, position, result_tensor.dtype)
        if result_tensor.dtype == "uint8" and operator.kind == "CONCATENATION":
            return _rescaled(scope, operator, source, tensor, result_tensor)
        return source
    if tensor.dtype != "int8" or result_tensor.dtype != "int8":
        raise ModelError("constants of other types than int8 are not supported")
    value, node = constant_value(str(operator), f"input {position} of {operator}", tensor.data)
    scope.add(node)
    return value


def _rescaled(
    scope: Scope, operator: Operator, source: Value, tensor: Tensor, result_tensor: Tensor
) -> Value:
    """Return `source`, a uint8 input of CONCATENATION, with the result's scale and zero point.

    If its own differ, the host converts the codes by a table. The arithmetic is float32, with
    halves rounded away from zero, as in LiteRT's reference_ops::ConcatenationWithScaling.
    """
    both = [(each.scales.tolist(), each.zero_points.tolist()) for each in (tensor, result_tensor)]
    if both[0] == both[1]:
        return source
    scale = np.float32(tensor.scale) * (np.float32(1) / np.float32(result_tensor.scale))
    bias = np.float32(-tensor.byte_zero_point) * scale
    codes = np.arange(256, dtype=np.float32) * scale + bias
    rounded = np.copysign(np.floor(np.abs(codes) + np.float32(0.5)), codes)
    table = np.clip(rounded + result_tensor.byte_zero_point, 0, 255).astype(np.uint8)
    result = Value(f"{source.name} for {operator}", source.shape, source.dtype)
    scope.host(operator, LookUp(table), result, source)
    return result


def join(scope: Scope, operator: Operator, parts: list[Value], result: Value, axis: int) -> None:
    """Add operations that concatenate `parts` along `axis` to `result`.

    The machine does it if it takes few moves, and if the values are int8. Otherwise the host does.
    """
    outer = math.prod(result.shape[:axis])
    if result.dtype != "int8" or (outer * len(parts) > MOST_PARTS and axis < len(result.shape) - 1):
        scope.host(operator, Concatenate(axis), result, *parts)
        return
    if axis == len(result.shape) - 1 or outer == 1:
        scope.add(
            Concatenation(operator=str(operator), result=result, parts=tuple(parts), axis=axis)
        )
        return
    # In the result, pieces of the parts take turns. There is a turn for each index along the axes
    # before `axis`, so each part is cut into `outer` pieces.
    pieces: list[Value] = []
    flat: list[Value] = []
    for part in parts:
        flat.append(Value(f"{part.name} for {operator}", (part.pixels, part.channels)))
        add_view(scope, operator, part, flat[-1])
    for number in range(outer):
        for part in flat:
            count = part.pixels // outer
            piece = Value(f"{part.name} {number}", (count, part.channels))
            scope.add(
                Slice(
                    operator=str(operator),
                    result=piece,
                    source=part,
                    axis=0,
                    start=number * count,
                )
            )
            pieces.append(piece)
    joined = Value(f"{result.name} joined", (result.pixels, result.channels))
    scope.add(Concatenation(operator=str(operator), result=joined, parts=tuple(pieces), axis=0))
    add_view(scope, operator, joined, result)
