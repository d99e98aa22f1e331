# SPDX-License-Identifier: Apache-2.0
"""The entries that describe a model's tensors while an ONNX model is translated.

Each tensor's name has an entry. The entry of a plain constant is a numpy array. Codes are quantised
numbers. Between DequantizeLinear and QuantizeLinear the model has float32, which the machine never
sees. So the entry of a tensor of float32 has codes, and the function of these codes that gives the
tensor's numbers.
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
    """A tensor of int8 or uint8 codes that the model calculates."""

    value: Value
    """Value of int8 on the machine, with the elements in the order of `layout`. Its shape may be
    another one than `shape`.
    """
    shape: tuple[int, ...]
    """Shape of the tensor in the model."""
    layout: Layout
    unsigned: bool


@dataclass(frozen=True)
class Dequantised:
    """A tensor of float32 in which each element is a function of a code."""

    codes: Codes
    quantisation: Quantisation
    """Quantisation of the codes."""
    curve: NDArray[np.float32] | None = None
    """Number that each code stands for, from code -128 on; None if it follows from the
    quantisation.
    """

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the number that each code stands for, from code -128 on."""
        return self.quantisation.numbers if self.curve is None else self.curve


@dataclass(frozen=True)
class Limits:
    """The least and the greatest number of a result, as a Relu or Clip after the operator sets
    them.
    """

    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Pending:
    """A result that waits for its quantisation: the machine's operations are chosen only when it is
    known.
    """

    shape: tuple[int, ...]
    finish: Callable[[Quantisation, Limits], Codes]
    """Function that adds the operations for a quantisation and bounds of the result, and returns
    its codes.
    """
    limits: Limits = Limits()
    """Bounds of the result, from a Relu or Clip after the operator."""
    numbers: Callable[[], HostArray] | None = None
    """Function that adds the calculation of the result in float32 on the host; None if this is
    impossible.
    """


@dataclass(frozen=True)
class Weights:
    """A constant tensor of codes with their scales, which a DequantizeLinear turns into float32."""

    codes: Constant
    """Codes of int8, uint8 or int32, as they stand in the model."""
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
    """A tensor that is on the host and has a type other than int8."""

    value: Value
    """Value on the host, in the tensor's shape."""


Entry = Constant | Codes | Dequantised | Pending | Weights | HostArray
