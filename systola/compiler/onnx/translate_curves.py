# SPDX-License-Identifier: Apache-2.0
"""The translation of functions of one number, to bounds or to tables of codes.

Codes are quantised numbers. After an operator such as Conv, Relu and Clip become bounds of the
operator's result. After DequantizeLinear they become tables, as all other functions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.onnx.entries import Dequantised, Limits, Pending
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.scope import Scope

Numbers = NDArray[np.float32]
Curve = Callable[[OnnxNode, Numbers], Numbers]


def translate_relu(scope: Scope, node: OnnxNode) -> None:
    """Translate Relu to a lower bound of 0 for its input."""
    _limit(scope, node, Limits(low=0.0))


def translate_clip(scope: Scope, node: OnnxNode) -> None:
    """Translate Clip to two constant bounds for its input.

    The bounds are attributes before version 11 of ONNX's standard operators, and inputs since then.
    """
    largest = float(np.finfo(np.float32).max)
    bounds = [node.number("min", -largest), node.number("max", largest)]
    for position in (1, 2):
        if scope.optional(node, position) is not None:
            bound = scope.constant(node, position)
            if bound.size != 1 or bound.dtype != np.float32:
                raise ModelError("its bounds must be single numbers of float32")
            bounds[position - 1] = float(bound.reshape(-1)[0])
    if not bounds[0] <= bounds[1]:
        raise ModelError(f"its bounds {bounds[0]} and {bounds[1]} are not in order")
    _limit(scope, node, Limits(*bounds))


def _limit(scope: Scope, node: OnnxNode, limits: Limits) -> None:
    source = scope.entry(node, 0)
    if isinstance(source, Pending):
        low, high = (
            float(np.clip(bound, limits.low, limits.high))
            for bound in (source.limits.low, source.limits.high)
        )
        scope.result(node, replace(source, limits=Limits(low, high)))
    elif isinstance(source, Dequantised):
        low, high = np.float32(limits.low), np.float32(limits.high)
        scope.result(node, replace(source, curve=np.clip(source.numbers, low, high)))
    else:
        raise ModelError("its input must come from a DequantizeLinear or an operator")


def translate_curve(scope: Scope, node: OnnxNode) -> None:
    """Translate a function of each element to a table with the function's values for all codes.

    The values are noted here, and a QuantizeLinear after the function makes the table from these
    values.
    """
    source = scope.entry(node, 0)
    if not isinstance(source, Dequantised):
        raise ModelError("its input must come from a DequantizeLinear")
    scope.result(node, replace(source, curve=_values(node, node.kind, source.numbers)))


def translate_qlinear_curve(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearLeakyRelu and QLinearSigmoid, operators of ONNX Runtime, to tables."""
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    quantisation = scope.quantisation(node, 3, 4)
    numbers = _values(node, node.kind.removeprefix("QLinear"), source.numbers)
    table = quantisation.codes(numbers)
    scope.result(node, scope.look_up(node, source.codes, table, quantisation.unsigned))


def _values(node: OnnxNode, kind: str, numbers: Numbers) -> Numbers:
    """Return the function `kind` of each number.

    A later conversion to codes turns not-a-number into the least code, as in ONNX Runtime.
    """
    with np.errstate(all="ignore"):
        return _FUNCTIONS[kind](node, numbers).astype(np.float32)


_SIGMOID_END = 18
"""Largest absolute argument of ONNX Runtime's sigmoid, which clamps all larger arguments."""
_SIGMOID_ABOVE = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_SIGMOID_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
"""Coefficients of the polynomials in the numerator (_ABOVE) and denominator (_BELOW) of a fraction.

The fraction is Eigen's approximation of sigmoid(x) - 1/2. The numerator has the powers x^9, x^7,
... x, the denominator x^10, x^8, ... 1.
"""


def _sigmoid(_: OnnxNode, x: Numbers) -> Numbers:
    """Return the sigmoid as ONNX Runtime calculates it, with large relative errors for x far below
    0.
    """
    end = np.float32(_SIGMOID_END)
    x = np.clip(x, -end, end)
    square = x * x
    above = _polynomial(square, _SIGMOID_ABOVE) * x
    half = above / _polynomial(square, _SIGMOID_BELOW) + np.float32(0.5)
    return np.clip(half, np.float32(0), np.float32(1))


def _polynomial(x: Numbers, coefficients: Sequence[float]) -> Numbers:
    """Return a polynomial with the given coefficients, the highest power first, by Horner's rule.

    Each step is a fused multiply-add: product and sum together are rounded once to float32.
    """
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        exact = result.astype(np.float64) * x + np.float64(np.float32(coefficient))
        result = exact.astype(np.float32)
    return result


def _tanh(_: OnnxNode, x: Numbers) -> Numbers:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _leaky_relu(node: OnnxNode, x: Numbers) -> Numbers:
    return np.where(x >= 0, x, np.float32(node.number("alpha", 0.01)) * x)


def _hard_sigmoid(node: OnnxNode, x: Numbers) -> Numbers:
    alpha, beta = np.float32(node.number("alpha", 0.2)), np.float32(node.number("beta", 0.5))
    return np.clip(alpha * x + beta, np.float32(0), np.float32(1))


def _hard_swish(_: OnnxNode, x: Numbers) -> Numbers:
    share = np.clip(x / np.float32(6) + np.float32(0.5), 0, 1).astype(np.float32)
    return x * share


def _elu(node: OnnxNode, x: Numbers) -> Numbers:
    bent = node.number("alpha", 1.0) * np.expm1(x.astype(np.float64))
    return np.where(x >= 0, x, bent).astype(np.float32)


def _erf(_: OnnxNode, x: Numbers) -> Numbers:
    return np.array([math.erf(float(each)) for each in x], np.float32)


def _gelu(node: OnnxNode, x: Numbers) -> Numbers:
    wide = x.astype(np.float64)
    if node.text("approximate", "none") == "tanh":
        curve = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        curve = np.array([math.erf(float(each) * math.sqrt(0.5)) for each in x])
    return (0.5 * wide * (1 + curve)).astype(np.float32)


def _selu(node: OnnxNode, x: Numbers) -> Numbers:
    alpha = node.number("alpha", 1.67326319217681884765625)
    bent = alpha * np.expm1(np.minimum(x.astype(np.float64), 0))
    return (node.number("gamma", 1.05070102214813232421875) * np.where(x > 0, x, bent)).astype(
        np.float32
    )


def _celu(node: OnnxNode, x: Numbers) -> Numbers:
    alpha = node.number("alpha", 1.0)
    bent = alpha * np.expm1(np.minimum(x.astype(np.float64), 0) / alpha)
    return np.where(x > 0, x, bent).astype(np.float32)


def _thresholded(node: OnnxNode, x: Numbers) -> Numbers:
    return np.where(x > np.float32(node.number("alpha", 1.0)), x, np.float32(0))


def _exact(function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Curve:
    """Return a curve that calculates `function` in float64 and rounds the result to float32."""
    return lambda _, x: function(x.astype(np.float64)).astype(np.float32)


_FUNCTIONS: dict[str, Curve] = {
    "Abs": _exact(np.abs),
    "Acos": _exact(np.arccos),
    "Acosh": _exact(np.arccosh),
    "Asin": _exact(np.arcsin),
    "Asinh": _exact(np.arcsinh),
    "Atan": _exact(np.arctan),
    "Atanh": _exact(np.arctanh),
    "Ceil": _exact(np.ceil),
    "Celu": _celu,
    "Cos": _exact(np.cos),
    "Cosh": _exact(np.cosh),
    "Elu": _elu,
    "Erf": _erf,
    "Exp": _exact(np.exp),
    "Floor": _exact(np.floor),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Log": _exact(np.log),
    "Mish": _exact(lambda x: x * np.tanh(np.logaddexp(0, x))),
    "Neg": _exact(np.negative),
    "Reciprocal": _exact(np.reciprocal),
    "Round": _exact(np.rint),
    "Selu": _selu,
    "Sigmoid": _sigmoid,
    "Sign": _exact(np.sign),
    "Sin": _exact(np.sin),
    "Sinh": _exact(np.sinh),
    "Softplus": _exact(lambda x: np.logaddexp(0, x)),
    "Softsign": _exact(lambda x: x / (1 + np.abs(x))),
    "Sqrt": _exact(np.sqrt),
    "Tan": _exact(np.tan),
    "Tanh": _tanh,
    "ThresholdedRelu": _thresholded,
}

Translator = Callable[[Scope, OnnxNode], None]
CURVES: dict[str, Translator] = {
    "Relu": translate_relu,
    "Clip": translate_clip,
    **dict.fromkeys(_FUNCTIONS, translate_curve),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid"), translate_qlinear_curve),
}
