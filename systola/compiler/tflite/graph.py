# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow Lite network as plain data: a list of operators on tensors.

The number of a tensor is its index in `Graph.tensors`, counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError

SMALLEST_SCALE = 1e-30
"""Bound of scales: activations must have a larger scale, or reciprocals would overflow."""
NUMPY_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")
"""Element types that numpy has by the same name."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a network, either calculated or constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Element type in numpy's spelling if numpy has it: int8, int32, float32."""
    scales: NDArray[np.float32]
    """Scales of the codes, one per tensor or one per channel; empty if the tensor is not
    quantised.
    """
    zero_points: NDArray[np.int64]
    """Zero points of the codes, one for each scale."""
    axis: int
    """Dimension of the channels, if there is more than one scale."""
    data: NDArray[Any] | None
    """Content of a constant, of shape `shape`; None for a calculated tensor."""
    open: bool = False
    """True if sizes in `shape` are placeholders; the interpreter calculates them when it begins."""
    unsigned: bool = False
    """True if the file has the codes as uint8. Then `data` and `zero_points` are 128 less than in
    the file.
    """

    @property
    def size(self) -> int:
        """Return the number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def scale(self) -> float:
        """Return the scale of a tensor that has exactly one positive scale; raise ModelError for
        another tensor.
        """
        if len(self.scales) != 1:
            raise ModelError(f"tensor '{self.name}' needs one scale, it has {len(self.scales)}")
        scale = float(self.channel_scales[0])
        if scale <= SMALLEST_SCALE:
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return scale

    @property
    def channel_scales(self) -> NDArray[np.float64]:
        """Return the tensor's scales in float64.

        A scale may be 0, as for channels without weights. Raises ModelError for invalid scales.
        """
        # numpy warns when it converts some not-a-numbers to float64, so scales are checked before.
        if not bool((np.isfinite(self.scales) & (self.scales >= 0)).all()):
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return self.scales.astype(np.float64)

    @property
    def zero_point(self) -> int:
        """Return the zero point of an int8 tensor that has exactly one; raise ModelError for
        another tensor.
        """
        if len(self.zero_points) != 1 or not -128 <= int(self.zero_points[0]) <= 127:
            raise ModelError(f"tensor '{self.name}' needs one zero point from -128 to 127")
        return int(self.zero_points[0])

    @property
    def byte_zero_point(self) -> int:
        """Return the only zero point of a tensor: from 0 to 255 for uint8, from -128 to 127 for
        int8.

        Raises ModelError for another tensor.
        """
        if self.dtype != "uint8":
            return self.zero_point
        if len(self.zero_points) != 1 or not 0 <= int(self.zero_points[0]) <= 255:
            raise ModelError(f"tensor '{self.name}' needs one zero point from 0 to 255")
        return int(self.zero_points[0])


@dataclass(frozen=True)
class Operator:
    """An operator of a TensorFlow Lite network."""

    index: int
    """Position of the operator in the model, counted from 0."""
    kind: str
    """Name of the operator's kind in TensorFlow Lite's spelling, such as FULLY_CONNECTED."""
    inputs: tuple[int, ...]
    """Numbers of the input tensors in the graph; -1 for a missing optional tensor."""
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    """Options of the operator, by their names in TensorFlow Lite's schema."""
    intermediates: tuple[int, ...] = ()
    """Numbers of tensors without data, which have the scales of values inside the operator."""

    def __str__(self) -> str:
        return f"operator {self.index} ({self.kind})"


@dataclass(frozen=True)
class Graph:
    """A network of operators on tensors; each number of a tensor is an index in `tensors`."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    """Operators in an order in which they can be executed."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    first_values: tuple[NDArray[Any], ...] = ()
    """First values of the variables, which keep a value from one sample to the next.

    The last inputs are the variables before a sample, and the last outputs the variables after it.
    """


def need_type(what: str, tensor: Tensor, dtype: str) -> None:
    """Raise ModelError unless `tensor` is of type `dtype`."""
    if tensor.dtype != dtype:
        raise ModelError(f"its {what} is {tensor.dtype}, supported is {dtype}")
