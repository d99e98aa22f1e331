# SPDX-License-Identifier: Apache-2.0
"""The translation of TensorFlow Lite's operators that stay on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import (
    Calculate,
    Convert,
    Dequantise,
    Embedding,
    FlipSign,
    Softmax,
)
from systola.compiler.operations import Value
from systola.compiler.quantise import INT8, to_float
from systola.compiler.tflite.graph import NUMPY_TYPES, Operator
from systola.compiler.tflite.scope import Dequantised, Scope, one_result
from systola.compiler.tflite.translate_moves import translate_move
from systola.compiler.whole_numbers import WHOLE_TYPES


def translate_softmax(scope: Scope, operator: Operator) -> None:
    """Translate SOFTMAX of int8 to work of the host."""
    one_result(operator, 1)
    source, source_tensor = scope.source(operator)
    result, tensor = scope.result(operator)
    if tensor.scale != 1 / 256 or tensor.zero_point != -128:
        raise ModelError("its result must have the scale 1/256 and the zero point -128")
    check_same_shape(source, result)
    scale, beta = source_tensor.scale, float(operator.options.get("Beta", 0.0))
    if not 2.0**-26 < beta * scale < 2.0**26:
        raise ModelError(f"its beta of {beta} is not supported")
    scope.host(operator, Softmax(scale, beta), result, source)


def translate_flip_sign(scope: Scope, operator: Operator) -> None:
    """Translate FLIP_SIGN, which converts between the model's uint8 and the machine's int8."""
    source, _ = scope.source(operator, dtype=scope.tensor(operator, 0).dtype)
    dtype = scope.graph.tensors[operator.outputs[0]].dtype
    result, _ = scope.result(operator, dtype=dtype)
    scope.host(operator, FlipSign(dtype), result, source)


def translate_dequantize(scope: Scope, operator: Operator) -> None:
    """Translate DEQUANTIZE from int8 to work of the host, unless it becomes a table together with
    the operators after it.

    The host stage is always added. For such a table, the scope notes the float32 number of each
    code, and a host stage that is not needed is removed later.
    """
    one_result(operator, 1)
    source, tensor = scope.source(operator)
    result, _ = scope.result(operator, dtype="float32")
    check_same_shape(source, result)
    scope.host(operator, Dequantise(tensor.scale, tensor.zero_point), result, source)
    numbers = to_float(INT8.astype(np.int8), tensor.scale, tensor.zero_point)
    scope.dequantised[result] = Dequantised(source, numbers)


def translate_gather(scope: Scope, operator: Operator) -> None:
    """Translate GATHER: with constant indexes to a move of elements, with calculated indexes to a
    look-up of rows in a constant table, on the host.
    """
    one_result(operator, 2)
    table, numbers = scope.tensor(operator, 0), scope.tensor(operator, 1)
    if numbers.data is not None:
        translate_move(scope, operator)
        return
    if table.data is None:
        raise ModelError("it has neither constant numbers nor a constant table")
    if int(operator.options.get("Axis", 0)) % max(len(table.shape), 1) != 0:
        raise ModelError("it chooses along another axis than the first, which is not supported")
    if operator.options.get("BatchDims"):
        raise ModelError("batch dimensions are not supported")
    _add_embedding(scope, operator, 0, 1)


def translate_embedding_lookup(scope: Scope, operator: Operator) -> None:
    """Translate EMBEDDING_LOOKUP to a look-up of rows in a constant table, on the host."""
    one_result(operator, 2)
    if scope.tensor(operator, 1).data is None:
        raise ModelError("its table must be a constant")
    _add_embedding(scope, operator, 1, 0)


def _add_embedding(scope: Scope, operator: Operator, table: int, numbers: int) -> None:
    data = scope.tensor(operator, table).data
    dtype = scope.tensor(operator, numbers).dtype
    if dtype not in ("int32", "int64"):
        raise ModelError(f"its numbers are {dtype}, supported are int32 and int64")
    source, _ = scope.source(operator, numbers, dtype)
    assert data is not None
    if data.ndim == 0 or data.size == 0:
        raise ModelError(f"its table has the shape {data.shape}")
    result, _ = scope.result(operator, dtype=str(data.dtype))
    if result.shape != (*source.shape, *data.shape[1:]):
        raise ModelError(f"it makes shape {result.shape} of numbers of shape {source.shape}")
    scope.host(operator, Embedding(data), result, source)


def translate_cast(scope: Scope, operator: Operator) -> None:
    """Translate CAST between types of numpy to work of the host. Quantised int8 and uint8 are
    converted as plain integers, without scale and zero point.
    """
    one_result(operator, 1)
    dtype = scope.tensor(operator, 0).dtype
    result_dtype = scope.graph.tensors[operator.outputs[0]].dtype
    for each in (dtype, result_dtype):
        if each not in NUMPY_TYPES:
            raise ModelError(f"from {dtype} to {result_dtype} it is not supported")
    source, _ = scope.source(operator, dtype=dtype)
    result, _ = scope.result(operator, dtype=result_dtype)
    check_same_shape(source, result)
    scope.host(operator, Convert(result_dtype), result, source)


def translate_whole_numbers(scope: Scope, operator: Operator) -> None:
    """Translate an element-wise operator on integers or truth values to work of the host."""
    one_result(operator, 1)
    operands: list[NDArray[Any] | None] = []
    sources: list[Value] = []
    shapes: list[tuple[int, ...]] = []
    for position in range(len(operator.inputs)):
        tensor = scope.tensor(operator, position)
        if tensor.dtype not in WHOLE_TYPES:
            raise ModelError(f"its input {position} is {tensor.dtype}, supported is int32")
        operands.append(tensor.data)
        if tensor.data is None:
            sources.append(scope.source(operator, position, tensor.dtype)[0])
            shapes.append(sources[-1].shape)
        else:
            shapes.append(tensor.shape)
    result, _ = scope.result(operator, dtype=scope.graph.tensors[operator.outputs[0]].dtype)
    if scope.repeat > 1 and any(len(each.shape) != len(result.shape) for each in sources):
        raise ModelError("operands of different dimensions are not supported for several samples")
    rank = len(result.shape)
    if broadcast_shape(shapes) != result.shape or (
        operator.kind == "SELECT" and len({*shapes} - {()}) > 1
    ):
        raise ModelError(f"its inputs of shapes {shapes} do not make shape {result.shape}")
    scope.host(operator, Calculate(operator.kind, tuple(operands), rank), result, *sources)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape that broadcasting arrays of `shapes` gives, or None if it is impossible."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def check_same_shape(source: Value, result: Value) -> None:
    """Raise ModelError if the source and the result of an operator have different shapes."""
    if source.shape != result.shape:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
