# SPDX-License-Identifier: Apache-2.0
"""The 513 numbers between which LiteRT interpolates functions of int16: EXP, GELU and RSQRT.

LOGISTIC and TANH of int16 are not here: LiteRT interpolates them between only 256 numbers, of 16
bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import CURVE_ENTRIES, CURVE_TABLES, TABLE_BYTES
from systola.compiler.errors import ModelError
from systola.compiler.tflite.curves import exponential, gelu, gelu_tanh
from systola.compiler.tflite.graph import Operator, Tensor

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
_CODES = np.float32(1 << 16)
"""Number of codes of int16.

LiteRT's factor from a real result to its code is this number, divided by the real range of the
codes. The range is 65,535 times the scale, so the factor is slightly more than 1 / scale.
"""

WIDE_CURVES = ("EXP", "GELU", "RSQRT")
"""Kinds of operators on int16 that become a Curve, with lines between 513 numbers."""

Numbers = NDArray[np.float32]


def curve_tables(operator: Operator, source: Tensor, result: Tensor) -> bytes:
    """Return LiteRT's 513 numbers for an operator, as tables in the format of Load_Table.

    Raises ModelError if a number overflows float32, as LiteRT's result is then undefined.
    """
    entries = _entries(_function(operator, result), source.scale, result.scale)
    content = entries.astype("<i2").tobytes()
    return content.ljust(CURVE_TABLES * TABLE_BYTES, b"\0")


def _entries(
    function: Callable[[Numbers], Numbers], scale: float, made: float
) -> NDArray[np.int16]:
    """Return the 513 numbers of `function` as codes of the result, calculated in float32.

    `scale` is the scale of the source, `made` the scale of the result. LiteRT takes 512 straight
    lines between the numbers. In its middle, a line is off from the function. Half of this error is
    subtracted from the function at the line's start, which gives the line's first number.
    """
    lines = CURVE_ENTRIES - 1
    low, high = (np.float32(scale) * np.float32(code) for code in (_LEAST, _MOST))
    step = (high - low) / np.float32(lines)
    places = low + np.arange(CURVE_ENTRIES, dtype=np.float32) * step
    span = np.float32(made) * np.float32(_MOST) - np.float32(made) * np.float32(_LEAST)

    def codes(x: Numbers) -> Numbers:
        return function(x) * (_CODES / span)

    with np.errstate(over="ignore", invalid="ignore"):
        starts, ends = codes(places[:-1]), codes(places[1:])
        middles = codes(places[:-1] + step / np.float32(2))
        last = codes(np.array([high], np.float32))
    if not all(np.isfinite(each).all() for each in (starts, ends, middles, last)):
        raise ModelError("its results are over the range of float32")
    first = _rounded(starts)
    error = _rounded((ends + first) / np.float32(2)) - _rounded(middles)
    numbers = np.append(first - _rounded(error / np.float32(2)), _rounded(last))
    return np.clip(numbers, _LEAST, _MOST).astype(np.int16)


def _rounded(x: Numbers) -> Numbers:
    """Return each number of `x` rounded to a whole number, halves away from zero."""
    # In float32, adding 0.5 to a number just below a half may give a whole number, so the sum is in
    # float64.
    exact = x.astype(np.float64)
    return np.copysign(np.floor(np.abs(exact) + 0.5), exact).astype(np.float32)


def _function(operator: Operator, result: Tensor) -> Callable[[Numbers], Numbers]:
    match operator.kind:
        case "EXP":
            return exponential
        case "GELU":
            return gelu_tanh if operator.options.get("Approximate") else gelu
        case _:
            # The kind is RSQRT. LiteRT gives the largest code for 0, and refuses numbers below 0.
            largest = np.float32(result.scale) * np.float32(_MOST)
            return lambda x: _inverse_root(x, largest)


def _inverse_root(x: Numbers, otherwise: np.float32) -> Numbers:
    """Return 1 / sqrt(x) for each element of `x` above 0, and `otherwise` for all others."""
    above = x > 0
    root: Numbers = np.sqrt(np.where(above, x, np.float32(1)))
    return np.where(above, np.float32(1) / root, otherwise).astype(np.float32)
