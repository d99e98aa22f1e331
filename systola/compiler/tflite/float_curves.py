# SPDX-License-Identifier: Apache-2.0
"""Functions of one float32 between DEQUANTIZE and QUANTIZE, which become one table on the machine.

Some kinds of operators stay float32 in a quantised model, such as SIN and POW, because LiteRT does
not have them for int8. A chain of such operators is a function of the int8 code before DEQUANTIZE,
so the function has 256 results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from systola.compiler.c_library import of_single, of_two
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import LookUp
from systola.compiler.tflite.fully_connected import fused_activation
from systola.compiler.tflite.graph import Operator, need_type
from systola.compiler.tflite.scope import Dequantised, Scope, one_result
from systola.compiler.tflite.translate_host import check_same_shape

Numbers = NDArray[np.float32]


def translate_float_curve(scope: Scope, operator: Operator) -> None:
    """Translate functions of one float32 between DEQUANTIZE and QUANTIZE to a table."""
    kind = operator.kind
    one_result(operator, 1)
    types = {scope.tensor(operator, position).dtype for position in range(len(operator.inputs))}
    if types != {"float32"}:
        raise ModelError(f"this kind of operator is not supported on {', '.join(sorted(types))}")
    for position in range(len(operator.inputs)):
        tensor = scope.tensor(operator, position)
        if tensor.data is None:
            source, _ = scope.source(operator, position, "float32")
            if source not in scope.dequantised:
                need_type("input", tensor, "int8")
    if kind in _ONE:
        _add_curve(scope, operator, 0, _ONE[kind])
        return
    one_result(operator, 2)
    constants = [scope.tensor(operator, position).data for position in range(2)]
    calculated = int(constants[0] is not None)
    constant = constants[1 - calculated]
    if constant is None or constant.size != 1:
        raise ModelError("of float32 it takes one calculated tensor and one constant number")
    number = np.float32(constant.reshape(-1)[0])
    function = _TWO[kind]

    def of_one(x: Numbers) -> Numbers:
        return function(number, x) if calculated else function(x, number)

    _add_curve(scope, operator, calculated, of_one)


def _add_curve(
    scope: Scope, operator: Operator, position: int, function: Callable[[Numbers], Numbers]
) -> None:
    """Add the result of an operator to `scope`: `function` of the operator's input `position`.

    The input must be a function of int8 codes. So the result is, too, and its 256 numbers are
    calculated here.
    """
    source, _ = scope.source(operator, position, "float32")
    before = scope.dequantised[source]
    result, _ = scope.result(operator, dtype="float32")
    check_same_shape(source, result)
    with np.errstate(all="ignore"):
        numbers = _activated(operator, function(before.numbers)).astype(np.float32)
    scope.dequantised[result] = Dequantised(before.codes, numbers)
    # The host looks the numbers up only if an operator other than QUANTIZE takes the result.
    scope.host(operator, LookUp(numbers), result, before.codes)


def _activated(operator: Operator, numbers: Numbers) -> Numbers:
    """Return `numbers` after the activation that is fused into the operator, if there is one."""
    activation = fused_activation(operator)
    return numbers if activation == "NONE" else _ONE[activation](numbers)


def _between(low: float, high: float) -> Callable[[Numbers], Numbers]:
    return lambda x: np.clip(x, np.float32(low), np.float32(high))


def _inverse_root(x: Numbers) -> Numbers:
    return (np.float32(1) / np.sqrt(x)).astype(np.float32)


def _difference_squared(a: Numbers, b: Numbers) -> Numbers:
    difference: Numbers = a - b
    return difference * difference


_ONE: Mapping[str, Callable[[Numbers], Numbers]] = {
    "ABS": np.abs,
    "COS": of_single("cosf", math.cos),
    "EXP": of_single("expf", math.exp),
    "FLOOR": np.floor,
    "LOG": of_single("logf", math.log),
    "NEG": np.negative,
    "RELU": _between(0, math.inf),
    "RELU6": _between(0, 6),
    "RELU_0_TO_1": _between(0, 1),
    "RELU_N1_TO_1": _between(-1, 1),
    "RSQRT": _inverse_root,
    "SIGN": np.sign,
    "SIN": of_single("sinf", math.sin),
    "SQRT": np.sqrt,
    "SQUARE": np.square,
    "TANH": of_single("tanhf", math.tanh),
}
"""Functions of an operator with one input, an array of float32. A key is the operator's kind."""

_TWO: Mapping[str, Callable[..., Numbers]] = {
    "ADD": np.add,
    "DIV": np.divide,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MUL": np.multiply,
    "POW": of_two("powf", math.pow),
    "SQUARED_DIFFERENCE": _difference_squared,
    "SUB": np.subtract,
}
"""Functions of an operator with two inputs of float32, of which one is a single constant number.
A key is the operator's kind.
"""

FLOAT_CURVES = (*_ONE, *_TWO)
"""Kinds of operators that translate_float_curve translates."""

FLOAT_ONLY = ("COS", "DIV", "FLOOR", "POW", "SIGN", "SIN", "SQUARE", "SQUARED_DIFFERENCE")
"""Kinds of operators in FLOAT_CURVES that are supported only for float32."""
