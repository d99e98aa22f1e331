# SPDX-License-Identifier: Apache-2.0
"""The translation of TensorFlow Lite's operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation
from systola.compiler.errors import ModelError
from systola.compiler.exact_sum import exact_sum
from systola.compiler.extremes import larger_codes
from systola.compiler.host_stage import LookUp, Quantise
from systola.compiler.layer import MAX_LEFT
from systola.compiler.moves import check_size, constant_value, moved
from systola.compiler.operations import (
    Binary,
    Reshape,
    Scale,
    Unary,
    Value,
    scalar_requantisation,
)
from systola.compiler.quantise import (
    INT8,
    MAX_SHIFT,
    absolute_table,
    curve_table,
    double_rounded,
    hard_swish_table,
    leaky_relu_table,
    quantise_multiplier,
    relu_limits,
    requantise_table,
    table_bytes,
    to_int8,
    to_single,
)
from systola.compiler.tables import binary_table
from systola.compiler.tflite.curves import CURVE_TABLES
from systola.compiler.tflite.fully_connected import multiplier
from systola.compiler.tflite.graph import Operator, Tensor
from systola.compiler.tflite.scope import (
    Scope,
    activated_requantisation,
    one_result,
    same_quantisation,
)
from systola.compiler.tflite.translate_host import (
    broadcast_shape,
    check_same_shape,
    translate_whole_numbers,
)
from systola.compiler.whole_numbers import WHOLE_TYPES

OPERATIONS: Mapping[str, Operation] = {
    "ADD": Operation.ADD,
    "SUB": Operation.SUBTRACT,
    "MUL": Operation.MULTIPLY,
}
ADD_BITS = 20
"""Number of bits by which LiteRT's ADD and SUB of int8 shift operands left before scaling them."""

MOST_SUM_SCALE = 4
"""Least factor from a sum to the result's code for which ADD and SUB are refused.

From this factor on, LiteRT's arithmetic overflows 32 bits.
"""

MOST_STEPS = 1 << 30
"""Limit of the quotient of a float32 number and the scale by which QUANTIZE divides it.

LiteRT converts the quotient to an integer of 32 bits. For larger quotients the result depends on
the processor, so the operator is refused.
"""


def translate_binary(scope: Scope, operator: Operator) -> None:
    """Translate ADD, SUB and MUL: of int8 to Vector instructions, of integers such as indexes to
    work of the host.
    """
    one_result(operator, 2)
    if scope.tensor(operator, 0).dtype in WHOLE_TYPES:
        translate_whole_numbers(scope, operator)
        return
    a, tensor_a = scope.operand(operator, 0)
    b, tensor_b = scope.operand(operator, 1)
    result, result_tensor = scope.result(operator)
    check_broadcast(result, a, b)
    operation = OPERATIONS[operator.kind]
    if operation == Operation.MULTIPLY:
        scale_a, scale_b = Scale(tensor_a.zero_point), Scale(tensor_b.zero_point)
        # LiteRT calculates the scale of a product in float32, so each step is rounded to float32.
        scale = to_single(to_single(tensor_a.scale * tensor_b.scale) / result_tensor.scale)
    else:
        common = 2 * max(tensor_a.scale, tensor_b.scale)
        scale_a, scale_b = _sum_scale(tensor_a, common), _sum_scale(tensor_b, common)
        scale = common / (2**ADD_BITS * result_tensor.scale)
        if scale >= MOST_SUM_SCALE:
            raise ModelError(f"its effective scale {scale:.6g} is too large")
    node = Binary(
        operator=str(operator),
        result=result,
        operation=operation,
        a=spread(scope, operator, a, result),
        b=spread(scope, operator, b, result),
        scale_a=scale_a,
        scale_b=scale_b,
        output=activated_requantisation(operator, scale, result_tensor),
    )
    scope.add(with_one_constant(node) or node)


def check_broadcast(result: Value, *operands: Value | NDArray[np.int8]) -> None:
    """Raise ModelError unless broadcasting the operands gives the result's shape."""
    shapes = [operand.shape for operand in operands]
    if broadcast_shape(shapes) != result.shape:
        raise ModelError(f"its inputs of shapes {shapes} do not make shape {result.shape}")


def with_one_constant(node: Binary) -> Unary | None:
    """Return a Unary with a table that replaces `node`, if one operand is a single constant number.

    Returns None if neither operand is such a constant, or if the other operand has another shape
    than the result.
    """
    for value, constant in ((node.a, node.b), (node.b, node.a)):
        if (
            isinstance(value, Value)
            and value.shape == node.result.shape
            and not isinstance(constant, Value)
            and bool((constant == constant.flat[0]).all())
        ):
            table = binary_table(node, int(constant.flat[0]))
            return Unary(
                operator=node.operator, result=node.result, source=value, table=table_bytes(table)
            )
    return None


def _sum_scale(tensor: Tensor, common: float) -> Scale:
    q, shift = quantise_multiplier(tensor.scale / common)
    return Scale(tensor.zero_point, q, -shift)


def spread(
    scope: Scope, operator: Operator, operand: Value | NDArray[np.int8], result: Value
) -> Value | NDArray[np.int8]:
    """Return `operand`, broadcast as far as Binary needs it.

    A constant and most values get the result's shape. A value of one pixel with the result's
    channels stays as it is, as Binary can repeat this pixel.
    """
    try:
        if not isinstance(operand, Value):
            return np.broadcast_to(operand, result.shape)
        check_size(operand, result)
        positions = np.arange(operand.pixels * operand.channels).reshape(operand.shape)
        origin = np.broadcast_to(positions, result.shape)
    except ModelError:
        raise
    except ValueError:
        shape = operand.shape
        raise ModelError(f"its input of shape {shape} does not fit {result.shape}") from None
    if scope.repeat > 1 and len(operand.shape) != len(result.shape):
        raise ModelError("operands of different dimensions are not supported for several samples")
    if operand.shape == result.shape or (
        operand.pixels == 1 and operand.channels == result.channels
    ):
        return operand
    wide = Value(f"{operand.name} for {operator}", result.shape)
    if operand.channels < result.channels:
        # The single channel is copied to all channels first, so that whole pixels can be repeated.
        channels = Value(f"{wide.name} in all channels", (*operand.shape[:-1], result.channels))
        each = np.broadcast_to(positions, channels.shape)
        scope.add(*moved(str(operator), operand, channels, each))
        operand = channels
        if operand.pixels == 1:
            return operand
        positions = np.arange(operand.pixels * operand.channels).reshape(operand.shape)
        origin = np.broadcast_to(positions, result.shape)
    scope.add(*moved(str(operator), operand, wide, origin))
    return wide


def translate_extreme(scope: Scope, operator: Operator) -> None:
    """Translate MAXIMUM and MINIMUM of int8 to a pool over both inputs, or to a table if one input
    is a single constant. Of integers such as indexes, they are work of the host.
    """
    one_result(operator, 2)
    if scope.tensor(operator, 0).dtype in WHOLE_TYPES:
        translate_whole_numbers(scope, operator)
        return
    a, tensor_a = scope.operand(operator, 0)
    b, tensor_b = scope.operand(operator, 1)
    result, result_tensor = scope.result(operator)
    for tensor in (tensor_a, tensor_b):
        same_quantisation(tensor, result_tensor)
    check_broadcast(result, a, b)
    largest = operator.kind == "MAXIMUM"
    values: list[Value] = []
    for operand in (a, b):
        if not isinstance(operand, Value) and operand.size == 1:
            limit = int(operand.reshape(()))
            table = np.maximum(INT8, limit) if largest else np.minimum(INT8, limit)
            other = b if operand is a else a
            if isinstance(other, Value) and other.shape == result.shape:
                _add_table(scope, operator, other, result, table.astype(np.int8))
                return
        wide = np.broadcast_to(operand, result.shape) if not isinstance(operand, Value) else operand
        if not isinstance(wide, Value):
            wide, node = constant_value(str(operator), f"constant of {operator}", wide)
            scope.add(node)
        if wide.shape != result.shape:
            copies = Value(f"{wide.name} for {operator}", result.shape)
            positions = np.arange(wide.pixels * wide.channels).reshape(wide.shape)
            scope.add(*moved(str(operator), wide, copies, np.broadcast_to(positions, result.shape)))
            wide = copies
        if not largest:
            wide = complement(scope, operator, wide)
        values.append(wide)
    if largest:
        scope.add(*larger_codes(str(operator), values, result))
        return
    pooled = Value(f"{result.name} negated", result.shape)
    scope.add(*larger_codes(str(operator), values, pooled))
    _add_table(scope, operator, pooled, result, (-1 - INT8).astype(np.int8))


def complement(scope: Scope, operator: Operator, source: Value) -> Value:
    """Add a table that replaces each code x by -1 - x, and return the value that it makes.

    The smallest code becomes the largest, so a MAX pooling can find the smallest code, too.
    """
    result = Value(f"{source.name} negated", source.shape)
    _add_table(scope, operator, source, result, (-1 - INT8).astype(np.int8))
    return result


def with_inverted_sign(scope: Scope, operator: Operator, source: Value) -> Value:
    """Add a table that inverts the highest bit of each code, and return the value that it makes.

    An int8 x becomes the bits of the uint8 x + 128, and such a uint8 becomes the int8 x again.
    """
    result = Value(f"{source.name} with inverted sign", source.shape)
    _add_table(scope, operator, source, result, (INT8 ^ -128).astype(np.int8))
    return result


def translate_table(scope: Scope, operator: Operator) -> None:
    """Translate a function of one element of int8 to a table."""
    source, source_tensor, result, result_tensor = _unary(scope, operator)
    table = TABLES[operator.kind](operator, source_tensor, result_tensor)
    _add_table(scope, operator, source, result, table)


def _curve(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    return curve_table(
        operator.kind, source.scale, source.zero_point, result.scale, result.zero_point
    )


def _leaky_relu(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    return leaky_relu_table(
        source.scale,
        source.zero_point,
        result.scale,
        result.zero_point,
        float(operator.options.get("Alpha", 0.0)),
    )


def _hard_swish(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    return hard_swish_table(source.scale, source.zero_point, result.scale, result.zero_point)


def _absolute(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    return absolute_table(source.scale, source.zero_point, result.scale, result.zero_point)


def _relu(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    limits = relu_limits(operator.kind, result.scale, result.zero_point)
    return requantise_table(
        source.scale, source.zero_point, result.scale, result.zero_point, limits
    )


TABLES: Mapping[str, Callable[[Operator, Tensor, Tensor], NDArray[np.int8]]] = {
    "LOGISTIC": _curve,
    "TANH": _curve,
    "LEAKY_RELU": _leaky_relu,
    "HARD_SWISH": _hard_swish,
    "ABS": _absolute,
    **dict.fromkeys(("RELU_N1_TO_1", "RELU_0_TO_1"), _relu),
    **CURVE_TABLES,
}
"""Map from a kind of operator to the function that makes the operator's table.

The function takes an operator, its input tensor and its result tensor. The table has the result's
code for each input code from -128 to 127.
"""


def translate_prelu(scope: Scope, operator: Operator) -> None:
    """Translate PRELU, if the slopes, the factors of elements below 0, are constants. With one
    slope it becomes a table. With several slopes it becomes a sum of two values: one has the
    elements above 0, the other has the elements below 0.
    """
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    slopes, slope_tensor = scope.operand(operator, 1)
    result, result_tensor = scope.result(operator)
    if isinstance(slopes, Value):
        raise ModelError("its slopes must be constants")
    check_broadcast(result, source, slopes)
    check_same_shape(source, result)
    zero, zero_point = source_tensor.zero_point, result_tensor.zero_point
    straight = to_single(source_tensor.scale / result_tensor.scale)
    bent = to_single(to_single(source_tensor.scale * slope_tensor.scale) / result_tensor.scale)
    if not max(straight, bent) < 2.0**MAX_SHIFT:
        raise ModelError("its effective scale is too large")
    x = INT8 - zero
    above = double_rounded(np.maximum(x, 0), *quantise_multiplier(straight))
    if slopes.size == 1:
        slope = int(slopes.reshape(())) - slope_tensor.zero_point
        below = double_rounded(np.minimum(x, 0) * slope, *quantise_multiplier(bent))
        table = np.clip(above + below + zero_point, -128, 127)
        _add_table(scope, operator, source, result, table.astype(np.int8))
        return
    parts = [Value(f"{result.name} {name}", result.shape) for name in ("above", "below", "bent")]
    positive = np.clip(above + zero_point, -128, 127).astype(np.int8)
    _add_table(scope, operator, source, parts[0], positive)
    _add_table(scope, operator, source, parts[1], np.minimum(INT8, zero).astype(np.int8))
    q, shift = multiplier(bent)
    scope.add(
        Binary(
            operator=str(operator),
            result=parts[2],
            operation=Operation.MULTIPLY,
            a=parts[1],
            b=np.broadcast_to(slopes, result.shape),
            scale_a=Scale(zero),
            scale_b=Scale(slope_tensor.zero_point),
            output=scalar_requantisation(q, shift, zero_point=zero_point),
        )
    )
    # At least one of the two parts is 0 for each element, so their sum is exact.
    zero_points = zero_point, zero_point
    scope.add(exact_sum(str(operator), result, (parts[0], parts[2]), zero_points, zero_point))


def _add_table(
    scope: Scope, operator: Operator, source: Value, result: Value, table: NDArray[np.int8]
) -> None:
    scope.add(Unary(operator=str(operator), result=result, source=source, table=table_bytes(table)))


def translate_quantize(scope: Scope, operator: Operator) -> None:
    """Translate QUANTIZE: from int8 to int8 to a requantisation on the machine; from float32 to
    int8 and between int8 and uint8 to work of the host.

    If the float32 numbers are a function of int8 codes, QUANTIZE becomes a table instead.
    """
    one_result(operator, 1)
    source_tensor = scope.tensor(operator, 0)
    result_tensor = scope.graph.tensors[operator.outputs[0]]
    types = (source_tensor.dtype, result_tensor.dtype)
    if types == ("int8", "int8"):
        translate_rescale(scope, operator)
        return
    source, _ = scope.source(operator, dtype=source_tensor.dtype)
    if types == ("float32", "int8") and source in scope.dequantised:
        _quantise_again(scope, operator, source, result_tensor)
        return
    if types == ("float32", "int8"):
        result, _ = scope.result(operator)
        function = Quantise(result_tensor.scale, result_tensor.zero_point)
    elif types in (("uint8", "int8"), ("int8", "uint8")):
        result, _ = scope.result(operator, dtype=types[1])
        function = LookUp(_byte_table(source_tensor, result_tensor))
    else:
        raise ModelError(f"from {types[0]} to {types[1]} it is not supported")
    check_same_shape(source, result)
    scope.host(operator, function, result, source)


def _quantise_again(scope: Scope, operator: Operator, source: Value, tensor: Tensor) -> None:
    """Translate QUANTIZE of a float32 `source` that is a function of int8 codes, per element.

    QUANTIZE becomes a table from these codes to the codes of the result. If each code stays the
    same, no table is needed, and a Reshape passes the codes on.
    """
    before = scope.dequantised[source]
    with np.errstate(over="ignore"):
        steps = np.abs(before.numbers / np.float32(tensor.scale))
    if not bool((steps < MOST_STEPS).all()):
        raise ModelError("some codes stand for numbers that processors convert in different ways")
    table = to_int8(before.numbers, tensor.scale, tensor.zero_point)
    result, _ = scope.result(operator)
    check_same_shape(source, result)
    if np.array_equal(table, INT8):
        scope.add(Reshape(operator=str(operator), source=before.codes, result=result))
    else:
        _add_table(scope, operator, before.codes, result, table)


def _byte_table(source: Tensor, result: Tensor) -> NDArray[Any]:
    """Return the table of a QUANTIZE from int8 to uint8 or from uint8 to int8.

    The table has the result's code for each code of the source, from the least code on.
    """
    codes = INT8 if source.dtype == "int8" else INT8 + 128
    low, high = (0, 255) if result.dtype == "uint8" else (-128, 127)
    q, shift = quantise_multiplier(source.scale / result.scale)
    if shift > MAX_SHIFT:
        raise ModelError("its effective scale is too large")
    y = double_rounded(codes - source.byte_zero_point, q, shift) + result.byte_zero_point
    return np.clip(y, low, high).astype(result.dtype)


def translate_rescale(scope: Scope, operator: Operator) -> None:
    """Translate QUANTIZE from int8 to int8, RELU and RELU6 to a requantisation, which also clamps
    results for RELU and RELU6.

    If the scale is too large for a requantisation, the operator becomes a table.
    """
    source, source_tensor, result, result_tensor = _unary(scope, operator)
    scale = source_tensor.scale / result_tensor.scale
    function, ceiling = Function.NONE, 127
    if operator.kind != "QUANTIZE":
        # LiteRT divides the scales of RELU and RELU6 in float32, but the scales of QUANTIZE in
        # float64.
        scale = to_single(scale)
        function = Function.RELU6 if operator.kind == "RELU6" else Function.RELU
        ceiling = relu_limits(operator.kind, result_tensor.scale, result_tensor.zero_point)[1]
    if scale >= 2.0**MAX_LEFT:
        limits = relu_limits(operator.kind, result_tensor.scale, result_tensor.zero_point)
        table = requantise_table(
            source_tensor.scale,
            source_tensor.zero_point,
            result_tensor.scale,
            result_tensor.zero_point,
            None if operator.kind == "QUANTIZE" else limits,
        )
        _add_table(scope, operator, source, result, table)
        return
    q, shift = multiplier(scale)
    scope.add(
        Unary(
            operator=str(operator),
            result=result,
            source=source,
            zero_point=source_tensor.zero_point,
            output=scalar_requantisation(
                q,
                shift,
                zero_point=result_tensor.zero_point,
                function=function,
                ceiling=ceiling,
            ),
        )
    )


def _unary(scope: Scope, operator: Operator) -> tuple[Value, Tensor, Value, Tensor]:
    one_result(operator, 1)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    check_same_shape(source, result)
    return source, source_tensor, result, result_tensor
