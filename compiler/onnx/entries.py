# SPDX-License-Identifier: Apache-2.0
"""What stands behind the name of a tensor while a model is translated.

Constants are numpy arrays. Between DequantizeLinear and QuantizeLinear the model has float32, which
the machine never sees: these tensors are a note of what is to be done with codes.
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
    """Its elements as they are stored, int8 in any shape."""
    shape: tuple[int, ...]
    """Of the tensor."""
    layout: Layout
    unsigned: bool


@dataclass(frozen=True)
class Dequantised:
    """Numbers that are a function of codes, element by element."""

    codes: Codes
    quantisation: Quantisation
    """That of the codes."""
    curve: NDArray[np.float32] | None = None
    """The numbers for all codes, where these are not those of the quantisation."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The numbers for all codes."""
        return self.quantisation.numbers if self.curve is None else self.curve


@dataclass(frozen=True)
class Limits:
    """Bounds of numbers."""

    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Pending:
    """The result of an operator that the machine calculates once it is known how to quantise it."""

    shape: tuple[int, ...]
    finish: Callable[[Quantisation, Limits], Codes]
    limits: Limits = Limits()
    """By Relu or Clip behind the operator."""
    numbers: Callable[[], HostArray] | None = None
    """Calculates it in float32 on the host, where that can be."""


@dataclass(frozen=True)
class Weights:
    """Constants with scales: the codes that a DequantizeLinear of constants takes."""

    codes: Constant
    """int8, uint8 or int32, as the model has them."""
    scales: NDArray[np.float32]
    """One, or one for each element along `axis`."""
    zero_points: NDArray[np.int64]
    """As many."""
    axis: int

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The numbers that they stand for."""
        shape = [1] * self.codes.ndim
        if self.scales.size > 1:
            shape[self.axis] = -1
        distance = self.codes.astype(np.int64) - self.zero_points.reshape(shape or -1)
        return (distance.astype(np.float32) * self.scales.reshape(shape or -1)).reshape(
            self.codes.shape
        )


@dataclass(frozen=True)
class HostArray:
    """A tensor that the host has, of another type than int8."""

    value: Value
    """In the tensor's shape."""


Entry = Constant | Codes | Dequantised | Pending | Weights | HostArray
