# SPDX-License-Identifier: Apache-2.0
"""The entries that describe a model's tensors, by name, while an ONNX model is translated.

An entry of a plain constant is a numpy array. Codes are quantised numbers. Between DequantizeLinear
and QuantizeLinear the model has float32, which the machine never sees. Entries of tensors in
float32 only note which function of codes gives the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.compiler.onnx.layout import Layout
from systola.compiler.onnx.model import Constant
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.operations import Value


@dataclass(frozen=True)
class Codes:
    """A calculated tensor of codes, int8 or uint8."""

    value: Value
    """Value on the machine, of int8, with the elements in their storage order and in any shape."""
    shape: tuple[int, ...]
    """Shape of the tensor in the model."""
    layout: Layout
    unsigned: bool


@dataclass(frozen=True)
class Dequantised:
    """A tensor of float32 that is a function of codes, element by element."""

    codes: Codes
    quantisation: Quantisation
    """Quantisation of the codes."""
    curve: NDArray[np.float32] | None = None
    """Number for each code, from code -128 on; None if the quantisation gives the numbers."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the number for each code, from code -128 on."""
        return self.quantisation.numbers if self.curve is None else self.curve


@dataclass(frozen=True)
class Limits:
    """The bounds of a result's numbers, which a Relu or Clip after the operator sets."""

    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Pending:
    """A result that the machine can calculate only when the result's quantisation is known."""

    shape: tuple[int, ...]
    finish: Callable[[Quantisation, Limits], Codes]
    limits: Limits = Limits()
    """Bounds of the result, from a Relu or Clip after the operator."""
    numbers: Callable[[], HostArray] | None = None
    """Function that calculates the result in float32 on the host; None if this is not possible."""


@dataclass(frozen=True)
class Weights:
    """A set of constant codes with scales, as a DequantizeLinear of constants takes it."""

    codes: Constant
    """Codes in int8, uint8 or int32, as the model has them."""
    scales: NDArray[np.float32]
    """Scales of the codes: a single scale, or one for each element along `axis`."""
    zero_points: NDArray[np.int64]
    """Zero points of the codes, one for each scale."""
    axis: int

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the float32 numbers for which the codes stand."""
        shape = [1] * self.codes.ndim
        if self.scales.size > 1:
            shape[self.axis] = -1
        distance = self.codes.astype(np.int64) - self.zero_points.reshape(shape or -1)
        return (distance.astype(np.float32) * self.scales.reshape(shape or -1)).reshape(
            self.codes.shape
        )


@dataclass(frozen=True)
class HostArray:
    """A tensor on the host, of a type other than int8."""

    value: Value
    """Value on the host, in the tensor's shape."""


Entry = Constant | Codes | Dequantised | Pending | Weights | HostArray
