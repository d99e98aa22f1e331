# SPDX-License-Identifier: Apache-2.0
"""A network as a list of operators on tensors, whatever file format it came in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError

SMALLEST_SCALE = 1e-30
"""Scales of activations below have no meaning; their reciprocals would overflow."""
NUMPY_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")
"""Types of tensors that numpy has by the same name."""


@dataclass(frozen=True)
class Tensor:
    """A value that flows between operators, or a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """In numpy's spelling where numpy has the type: int8, int32, float32."""
    scales: NDArray[np.float32]
    """One per tensor or one per channel; empty where the tensor is not quantised."""
    zero_points: NDArray[np.int64]
    """As many as there are scales."""
    axis: int
    """The dimension of the channels, where there is more than one scale."""
    data: NDArray[Any] | None
    """Content of a constant, of shape `shape`; None for what is calculated."""
    open: bool = False
    """Whether sizes in `shape` are placeholders, which the interpreter calculates."""
    unsigned: bool = False
    """Whether the codes are 128 more in the file, as uint8."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def scale(self) -> float:
        """The scale of a tensor that has one; raises ModelError for another."""
        if len(self.scales) != 1:
            raise ModelError(f"tensor '{self.name}' needs one scale, it has {len(self.scales)}")
        scale = float(self.channel_scales[0])
        if scale <= SMALLEST_SCALE:
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return scale

    @property
    def channel_scales(self) -> NDArray[np.float64]:
        """The scales in float64, 0 for channels without weights; raises ModelError for others."""
        # Not-a-numbers must not get as far as the conversion, which warns of some of them.
        if not bool((np.isfinite(self.scales) & (self.scales >= 0)).all()):
            raise ModelError(f"tensor '{self.name}' has a scale that is not positive")
        return self.scales.astype(np.float64)

    @property
    def zero_point(self) -> int:
        """The zero point of an int8 tensor that has one; raises ModelError for another."""
        if len(self.zero_points) != 1 or not -128 <= int(self.zero_points[0]) <= 127:
            raise ModelError(f"tensor '{self.name}' needs one zero point from -128 to 127")
        return int(self.zero_points[0])

    @property
    def byte_zero_point(self) -> int:
        """As `zero_point`, from 0 to 255 for uint8."""
        if self.dtype != "uint8":
            return self.zero_point
        if len(self.zero_points) != 1 or not 0 <= int(self.zero_points[0]) <= 255:
            raise ModelError(f"tensor '{self.name}' needs one zero point from 0 to 255")
        return int(self.zero_points[0])


@dataclass(frozen=True)
class Operator:
    """One operation."""

    index: int
    """Position in the model, counted from 0."""
    kind: str
    """In TensorFlow Lite's spelling, such as FULLY_CONNECTED."""
    inputs: tuple[int, ...]
    """Numbers of tensors; -1 for an optional one that is not there."""
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    """What the kind of operator has of its own, by its name in the schema of TensorFlow Lite."""
    intermediates: tuple[int, ...] = ()
    """Tensors that only tell the scales of values inside the operator."""

    def __str__(self) -> str:
        return f"operator {self.index} ({self.kind})"


@dataclass(frozen=True)
class Graph:
    """A network. All tensor numbers in it are valid."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    """In an order in which they can be executed."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def need_type(what: str, tensor: Tensor, dtype: str) -> None:
    """Raises ModelError unless `tensor` is of type `dtype`."""
    if tensor.dtype != dtype:
        raise ModelError(f"its {what} is {tensor.dtype}, supported is {dtype}")
