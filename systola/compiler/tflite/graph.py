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
"""Scales of calculated tensors must be larger than this number, so that 1 / scale is finite."""
NUMPY_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")
"""Names of the element types that numpy has, too, with the same spelling."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a network: an input, a result of an operator, or a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Name of the element type, in numpy's spelling if numpy has the type, such as int8."""
    scales: NDArray[np.float32]
    """Scales of the codes: a single scale, or one for each channel. Empty if the tensor is not
    quantised.
    """
    zero_points: NDArray[np.int64]
    """Zero points of the codes, one for each element of `scales`."""
    axis: int
    """Number of the axis of the channels, counted from 0. Unused if there is a single scale."""
    data: NDArray[Any] | None
    """Content of a constant, of shape `shape`; None for an input or a result."""
    open: bool = False
    """True if sizes in `shape` are placeholders, which LiteRT calculates before the first run."""
    unsigned: bool = False
    """True if the codes are uint8 in the file, and were converted to int8. Then `data` and
    `zero_points` are 128 less than in the file.
    """

    @property
    def size(self) -> int:
        """Return the number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def scale(self) -> float:
        """Return the only scale of the tensor.

        Raises ModelError if the tensor does not have exactly one scale above SMALLEST_SCALE.
        """
        if len(self.scales) != 1:
            raise ModelError(f"tensor '{self.name}' needs one scale, it has {len(self.scales)}")
        scale = float(self.channel_scales[0])
        if scale <= SMALLEST_SCALE:
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return scale

    @property
    def channel_scales(self) -> NDArray[np.float64]:
        """Return all scales of the tensor in float64.

        A scale may be 0, as in channels of which all weights are 0. Raises ModelError if a scale is
        negative, infinite or not a number.
        """
        # The check comes before the conversion, as numpy warns when it converts some not-a-numbers.
        if not bool((np.isfinite(self.scales) & (self.scales >= 0)).all()):
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return self.scales.astype(np.float64)

    @property
    def zero_point(self) -> int:
        """Return the only zero point of an int8 tensor.

        Raises ModelError if the tensor does not have exactly one zero point from -128 to 127.
        """
        if len(self.zero_points) != 1 or not -128 <= int(self.zero_points[0]) <= 127:
            raise ModelError(f"tensor '{self.name}' needs one zero point from -128 to 127")
        return int(self.zero_points[0])

    @property
    def byte_zero_point(self) -> int:
        """Return the only zero point of a tensor of uint8 or int8.

        Raises ModelError if the tensor does not have exactly one zero point. The zero point must be
        from 0 to 255 for uint8, else from -128 to 127.
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
    """Numbers of the input tensors, in order; -1 in place of an optional input that is missing."""
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    """Options of the operator. A key is the option's name in TensorFlow Lite's schema."""
    intermediates: tuple[int, ...] = ()
    """Numbers of tensors without data. They give the scales of values inside the operator."""

    def __str__(self) -> str:
        return f"operator {self.index} ({self.kind})"


@dataclass(frozen=True)
class Graph:
    """A network of operators on tensors."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    """All operators, in an order in which they can be executed."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    first_values: tuple[NDArray[Any], ...] = ()
    """Values of the variables before the first sample, one array for each variable.

    A variable keeps its value from one sample to the next. In the order of this tuple, the last
    `inputs` are the variables before a sample, and the last `outputs` the variables after the
    sample.
    """


def need_type(what: str, tensor: Tensor, dtype: str) -> None:
    """Raise ModelError, which calls `tensor` by the name `what`, unless its type is `dtype`."""
    if tensor.dtype != dtype:
        raise ModelError(f"its {what} is {tensor.dtype}, supported is {dtype}")
