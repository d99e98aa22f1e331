# SPDX-License-Identifier: Apache-2.0
"""Operators that stay on the host."""

from __future__ import annotations

from systola.compiler.errors import ModelError
from systola.compiler.graph import Operator
from systola.compiler.host_stage import Dequantise, HostStage, Softmax
from systola.compiler.scope import Scope, one_result


def translate_softmax(scope: Scope, operator: Operator) -> None:
    """SOFTMAX of int8."""
    one_result(operator, 1)
    source, source_tensor = scope.source(operator)
    result, tensor = scope.result(operator)
    if tensor.scale != 1 / 256 or tensor.zero_point != -128:
        raise ModelError("its result must have the scale 1/256 and the zero point -128")
    if source.shape != result.shape:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    scale, beta = source_tensor.scale, float(operator.options.get("Beta", 0.0))
    if not 2.0**-26 < beta * scale < 2.0**26:
        raise ModelError(f"its beta of {beta} is not supported")
    scope.add(
        HostStage(
            operator=str(operator),
            sources=(source,),
            result=result,
            function=Softmax(scale, beta),
        )
    )


def translate_dequantize(scope: Scope, operator: Operator) -> None:
    """DEQUANTIZE to float32."""
    one_result(operator, 1)
    source, tensor = scope.source(operator)
    result, _ = scope.result(operator, dtype="float32")
    if source.shape != result.shape:
        raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
    scope.add(
        HostStage(
            operator=str(operator),
            sources=(source,),
            result=result,
            function=Dequantise(tensor.scale, tensor.zero_point),
        )
    )
