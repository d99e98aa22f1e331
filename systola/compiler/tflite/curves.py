# SPDX-License-Identifier: Apache-2.0
"""Tables for functions of one int8 element: EXP, LOG, GELU, SQRT, RSQRT and NEG.

Tables for other functions are in the module quantise. Each table has 256 result codes, for the
codes -128 to 127 in this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from systola.compiler.c_library import of_single
from systola.compiler.errors import ModelError
from systola.compiler.quantise import (
    INT8,
    LARGE,
    MAX_SHIFT,
    double_rounded,
    high_product,
    quantise_multiplier,
    round_half_away,
    rounded_shift,
    to_single,
)
from systola.compiler.tflite.graph import Operator, Tensor

_BITS = 20
"""Number of fractional bits that RSQRT keeps in an inverse root until the root is multiplied by the
scales.
"""
_STEPS = 5
"""Number of Newton steps in the calculation of an inverse square root."""
_ONE, _HALF_THREE, _HALF_ROOT = 1 << 28, (1 << 28) + (1 << 27), 1518500250
"""Fixed-point numbers: 1 and 3/2 with 28 fractional bits, sqrt(1/2) with 31 fractional bits."""

Numbers = NDArray[np.float32]


def real_table(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    """Return LiteRT's table of EXP, LOG or GELU, calculated in float32 and rounded to codes."""
    function = gelu_tanh if operator.options.get("Approximate") else _CURVES[operator.kind]
    numbers = np.float32(source.scale) * (INT8 - source.zero_point).astype(np.float32)
    with np.errstate(all="ignore"):
        steps = function(numbers) * (np.float32(1) / np.float32(result.scale))
        codes = round_half_away(steps) + result.zero_point
    # A result that is not a number, such as the logarithm of -1, becomes the code -128.
    return np.clip(np.nan_to_num(codes, nan=-128), -128, 127).astype(np.int8)


def root_table(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    """Return the table of SQRT, with results rounded towards 0 as in LiteRT.

    LiteRT refuses numbers below 0. The table has the code of result 0 for such numbers.
    """
    numbers = np.float32(source.scale) * (INT8 - source.zero_point).astype(np.float32)
    root = np.sqrt(np.maximum(numbers, 0)) / np.float32(result.scale)
    return np.clip(np.trunc(root) + result.zero_point, -128, 127).astype(np.int8)


def inverse_root_table(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    """Return the table of RSQRT, calculated in fixed-point arithmetic as in LiteRT.

    LiteRT refuses numbers below 0. The table has the code 127 for 0 and for such numbers.
    """
    scale = 1 / (to_single(to_single(math.sqrt(source.scale)) * result.scale))
    q, shift = quantise_multiplier(scale)
    if shift > MAX_SHIFT:
        raise ModelError(f"its effective scale {scale:.6g} is too large")
    codes = np.full(INT8.shape, 127, np.int64)
    for number, distance in enumerate((INT8 - source.zero_point).tolist()):
        if distance > 0:
            inverse, places = _inverse_root(distance)
            first = double_rounded(np.array([1], np.int64), inverse, _BITS - places)
            codes[number] = double_rounded(first, q, shift - _BITS)[0] + result.zero_point
    return np.clip(codes, -128, 127).astype(np.int8)


def negative_table(operator: Operator, source: Tensor, result: Tensor) -> NDArray[np.int8]:
    """Return the table of NEG: the result for code q is -q, without regard to the zero point."""
    return (-INT8).astype(np.int8)


def _inverse_root(number: int) -> tuple[int, int]:
    """Return LiteRT's (q, places): q * 2^(-31 - places) is close to 1 / sqrt(number)."""
    if number == 1:
        return (1 << 31) - 1, 0
    pairs = (31 - number.bit_length()) // 2 - 1
    value = number << 2 * pairs >> 1
    half = int(rounded_shift(np.array([value]), 1)[0])
    x = _ONE
    for _ in range(_STEPS):
        cube = _saturated(_product(_product(x, x), x) << 6)
        x = _saturated((_product(_HALF_THREE, x) - _product(half, cube)) << 3)
    return _product(x, _HALF_ROOT), 11 - pairs


def _product(a: int, b: int) -> int:
    return int(high_product(np.array([a], np.int64), b)[0])


def _saturated(x: int) -> int:
    return min(max(x, -(1 << 31)), (1 << 31) - 1)


def _single(x: NDArray[np.float64]) -> Numbers:
    return x.astype(np.float32)


def exponential(x: Numbers) -> Numbers:
    """Return e^x in float32, infinity if the result is too large."""
    return _single(np.exp(np.minimum(x.astype(np.float64), LARGE)))


def _logarithm(x: Numbers) -> Numbers:
    return _single(np.log(x.astype(np.float64)))


def gelu(x: Numbers) -> Numbers:
    """Return GELU(x) in float32, calculated exactly with the error function."""
    scaled: Numbers = np.float32(-math.sqrt(0.5)) * x
    half: Numbers = np.float32(0.5) * x
    return half * of_single("erfcf", math.erfc)(scaled)


def gelu_tanh(x: Numbers) -> Numbers:
    """Return GELU(x) in float32, approximated with tanh."""
    root = np.float32(math.sqrt(2 / math.pi))
    cube: Numbers = np.float32(0.044715) * x * x * x
    inner: Numbers = root * (x + cube)
    half: Numbers = np.float32(0.5) * x
    curve: Numbers = of_single("tanhf", math.tanh)(inner) + np.float32(1)
    return half * curve


_CURVES: Mapping[str, Callable[[Numbers], Numbers]] = {
    "EXP": exponential,
    "LOG": _logarithm,
    "GELU": gelu,
}

CURVE_TABLES: Mapping[str, Callable[[Operator, Tensor, Tensor], NDArray[np.int8]]] = {
    **dict.fromkeys(_CURVES, real_table),
    "SQRT": root_table,
    "RSQRT": inverse_root_table,
    "NEG": negative_table,
}
"""Functions that return the table of an operator. A key is the operator's kind."""
