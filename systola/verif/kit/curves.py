# SPDX-License-Identifier: Apache-2.0
"""Function tables with the values that LiteRT uses in its int16 operators, computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, pi, tanh

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import CURVE_ENTRIES, CURVE_TABLES, TABLE_BYTES
from systola.compiler.c_library import of_single

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_F = np.float32


def _exact(function: Callable[[Doubles], Doubles]) -> Callable[[Floats], Floats]:
    """Return a float32 function that rounds only once, as good mathematical libraries nearly do."""
    return lambda x: function(x.astype(np.float64)).astype(_F)


def _round(x: Floats) -> Floats:
    """Round to the nearest integer, and halves away from zero."""
    wide = x.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(_F)


def _gelu(x: Floats) -> Floats:
    rest = of_single("erfcf", erfc)(x * _F(-(0.5**0.5)))
    return _F(0.5) * x * rest


def _gelu_by_tanh(x: Floats) -> Floats:
    inner = _F((2 / pi) ** 0.5) * (x + _F(0.044715) * x * x * x)
    return _F(0.5) * x * (_F(1) + of_single("tanhf", tanh)(inner))


def _inverse_root(x: Floats) -> Floats:
    """Return 1 / sqrt(x), or infinity where x has no inverse root.

    Infinity becomes LiteRT's largest code.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, _F(1) / np.sqrt(x), _F(np.inf)).astype(_F)


CURVES: dict[str, tuple[Callable[[Floats], Floats], float, float]] = {
    "exp": (_exact(np.exp), 10 / 65535, 2 / 65535),
    "gelu": (_gelu, 8 / 32768, 8 / 32768),
    "gelu by tanh": (_gelu_by_tanh, 8 / 32768, 8 / 32768),
    "logistic": (_exact(lambda x: 1 / (1 + np.exp(-x))), 8 / 32768, 1 / 32768),
    "tanh": (_exact(np.tanh), 4 / 32768, 1 / 32768),
    "1 / sqrt": (_inverse_root, 4 / 32768, 8 / 32768),
}
"""Curves by name: a function on float32, the scale of its arguments, and the scale of its
results.
"""


def curve_entries(name: str, scale: float, result: float) -> NDArray[np.int16]:
    """Return the CURVE_ENTRIES table entries of curve `name` of CURVES, for int16 codes.

    `scale` and `result` are the scales of arguments and results. Straight lines join the entries.
    Each entry but the last is the function's value, corrected by half of the error of the line
    that begins at the entry. The error is measured in the middle of the line.
    """
    largest = _F(result) * _F(_HIGH)

    def function(x: Floats) -> Floats:
        y = CURVES[name][0](x)
        return np.where(np.isinf(y), largest, y)

    lines = CURVE_ENTRIES - 1
    least, most = _F(scale) * _F(_LOW), _F(scale) * _F(_HIGH)
    step = (most - least) / _F(lines)
    inverse = _F(65536) / (_F(result) * _F(_HIGH) - _F(result) * _F(_LOW))
    starts = (least + np.arange(lines, dtype=_F) * step).astype(_F)
    ends = (least + np.arange(1, lines + 1, dtype=_F) * step).astype(_F)
    sample = _round(function(starts) * inverse)
    middle = _round((function(ends) * inverse + sample) / _F(2))
    error = middle - _round(function((starts + step / _F(2)).astype(_F)) * inverse)
    first = sample - _round(error / _F(2))
    entries = np.append(first, _round(function(np.array([most], _F)) * inverse))
    return np.clip(entries, _LOW, _HIGH).astype(np.int16)


def curve_bytes(entries: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Return the bytes of the hardware tables that hold a curve, in the order of Load_Table."""
    found = np.zeros(CURVE_TABLES * TABLE_BYTES, np.uint8)
    found[: 2 * CURVE_ENTRIES] = np.frombuffer(entries.astype("<i2").tobytes(), np.uint8)
    return found
