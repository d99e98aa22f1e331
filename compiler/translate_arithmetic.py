# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element, as operations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation
from systola.compiler.errors import ModelError
from systola.compiler.fully_connected import multiplier
from systola.compiler.graph import Operator, Tensor
from systola.compiler.host_stage import HostStage, Quantise
from systola.compiler.operations import Binary, Scale, Unary, Value, scalar_requantisation
from systola.compiler.quantise import (
    curve_table,
    leaky_relu_table,
    quantise_multiplier,
    relu_limits,
    table_bytes,
    to_single,
)
from systola.compiler.scope import (
    Scope,
    activated_requantisation,
    check_moves,
    gathered,
    one_result,
)

OPERATIONS: Mapping[str, Operation] = {
    "ADD": Operation.ADD,
    "SUB": Operation.SUBTRACT,
    "MUL": Operation.MULTIPLY,
}
ADD_BITS = 20
"""Bits by which ADD and SUB shift their operands to the left first."""


def translate_binary(scope: Scope, operator: Operator) -> None:
    """ADD, SUB and MUL."""
    one_result(operator, 2)
    a, tensor_a = scope.operand(operator, 0)
    b, tensor_b = scope.operand(operator, 1)
    result, result_tensor = scope.result(operator)
    operation = OPERATIONS[operator.kind]
    if operation == Operation.MULTIPLY:
        scale_a, scale_b = Scale(tensor_a.zero_point), Scale(tensor_b.zero_point)
        # LiteRT multiplies and divides these in float32.
        scale = to_single(to_single(tensor_a.scale * tensor_b.scale) / result_tensor.scale)
    else:
        common = 2 * max(tensor_a.scale, tensor_b.scale)
        scale_a, scale_b = _sum_scale(tensor_a, common), _sum_scale(tensor_b, common)
        scale = common / (2**ADD_BITS * result_tensor.scale)
    scope.add(
        Binary(
            operator=str(operator),
            result=result,
            operation=operation,
            a=_spread(scope, operator, a, result, tensor_a.zero_point),
            b=_spread(scope, operator, b, result, tensor_b.zero_point),
            scale_a=scale_a,
            scale_b=scale_b,
            output=activated_requantisation(operator, scale, result_tensor),
        )
    )


def _sum_scale(tensor: Tensor, common: float) -> Scale:
    q, shift = quantise_multiplier(tensor.scale / common)
    return Scale(tensor.zero_point, q, -shift)


def _spread(
    scope: Scope,
    operator: Operator,
    operand: Value | NDArray[np.int8],
    result: Value,
    zero_point: int,
) -> Value | NDArray[np.int8]:
    """An operand in a form that Binary takes."""
    if not isinstance(operand, Value):
        try:
            return np.broadcast_to(operand, result.shape)
        except ValueError:
            raise ModelError(f"its input of shape {operand.shape} does not fit") from None
    if operand.channels == 1 and result.channels > 1:
        check_moves(1, result.channels)
        wide = Value(f"{operand.name} for {operator}", (*operand.shape[:-1], result.channels))
        origin = np.zeros(result.channels, np.int64)
        scope.add(gathered(str(operator), operand, wide, origin, zero_point))
        operand = wide
    if operand.channels != result.channels or operand.pixels not in (1, result.pixels):
        raise ModelError(f"its input of shape {operand.shape} does not fit {result.shape}")
    return operand


def translate_curve(scope: Scope, operator: Operator) -> None:
    """LOGISTIC and TANH: a table."""
    source, source_tensor, result, result_tensor = _unary(scope, operator)
    table = curve_table(
        operator.kind,
        source_tensor.scale,
        source_tensor.zero_point,
        result_tensor.scale,
        result_tensor.zero_point,
    )
    scope.add(Unary(operator=str(operator), result=result, source=source, table=table_bytes(table)))


def translate_leaky_relu(scope: Scope, operator: Operator) -> None:
    """LEAKY_RELU: a table."""
    source, source_tensor, result, result_tensor = _unary(scope, operator)
    table = leaky_relu_table(
        source_tensor.scale,
        source_tensor.zero_point,
        result_tensor.scale,
        result_tensor.zero_point,
        float(operator.options.get("Alpha", 0.0)),
    )
    scope.add(Unary(operator=str(operator), result=result, source=source, table=table_bytes(table)))


def translate_quantize(scope: Scope, operator: Operator) -> None:
    """QUANTIZE: from float32 on the host, from int8 a requantisation."""
    one_result(operator, 1)
    if scope.tensor(operator, 0).dtype != "float32":
        translate_rescale(scope, operator)
        return
    source, _ = scope.source(operator, dtype="float32")
    result, tensor = scope.result(operator)
    if source.shape != result.shape:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    scope.add(
        HostStage(
            operator=str(operator),
            sources=(source,),
            result=result,
            function=Quantise(tensor.scale, tensor.zero_point),
        )
    )


def translate_rescale(scope: Scope, operator: Operator) -> None:
    """QUANTIZE from int8, RELU and RELU6: requantisation, with bounds."""
    source, source_tensor, result, result_tensor = _unary(scope, operator)
    scale = source_tensor.scale / result_tensor.scale
    function, ceiling = Function.NONE, 127
    if operator.kind != "QUANTIZE":
        # LiteRT divides these scales in float32, those of QUANTIZE in float64.
        scale = to_single(scale)
        function = Function.RELU6 if operator.kind == "RELU6" else Function.RELU
        ceiling = relu_limits(operator.kind, result_tensor.scale, result_tensor.zero_point)[1]
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
    if source.shape != result.shape:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    return source, source_tensor, result, result_tensor
