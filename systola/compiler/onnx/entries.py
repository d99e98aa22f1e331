# SPDX-License-Identifier: Apache-2.0
"""The entries for names of tensors while a model is translated.

Constants are numpy arrays. Between DequantizeLinear and QuantizeLinear the model has float32, which
the machine never sees: these tensors only note operations on codes.
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
    """A tensor of int8 or uint8 that is calculated."""

    value: Value
    """Value with the elements in their storage order, int8, in any shape."""
    shape: tuple[int, ...]
    """Shape of the tensor."""
    layout: Layout
    unsigned: bool


@dataclass(frozen=True)
class Dequantised:
    """A tensor of numbers that are a function of codes, element by element."""

    codes: Codes
    quantisation: Quantisation
    """Quantisation of the codes."""
    curve: NDArray[np.float32] | None = None
    """Numbers that the codes stand for, for all codes; None if the quantisation gives them."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the numbers for all codes."""
        return self.quantisation.numbers if self.curve is None else self.curve


@dataclass(frozen=True)
class Limits:
    """The bounds of numbers, from Relu or Clip."""

    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Pending:
    """A result that the machine calculates once its quantisation is known."""

    shape: tuple[int, ...]
    finish: Callable[[Quantisation, Limits], Codes]
    limits: Limits = Limits()
    """Bounds by Relu or Clip after the operator."""
    numbers: Callable[[], HostArray] | None = None
    """Function that calculates the tensor in float32 on the host, if possible."""


@dataclass(frozen=True)
class Weights:
    """A set of constants with scales: the codes that a DequantizeLinear of constants takes."""

    codes: Constant
    """Codes in int8, uint8 or int32, as the model has them."""
    scales: NDArray[np.float32]
    """One scale, or one for each element along `axis`."""
    zero_points: NDArray[np.int64]
    """Zero points, one for each scale."""
    axis: int

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the numbers that the codes stand for."""
        shape = [1] * self.codes.ndim
        if self.scales.size > 1:
            shape[self.axis] = -1
        distance = self.codes.astype(np.int64) - self.zero_points.reshape(shape or -1)
        return (distance.astype(np.float32) * self.scales.reshape(shape or -1)).reshape(
            self.codes.shape
        )


@dataclass(frozen=True)
class HostArray:
    """A tensor on the host, of another type than int8."""

    value: Value
    """Value on the host, in the tensor's shape."""


Entry = Constant | Codes | Dequantised | Pending | Weights | HostArray
