# SPDX-License-Identifier: Apache-2.0
"""An ONNX model as plain data, without objects of the package `onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from systola.compiler.errors import ModelError

Constant = np.ndarray[tuple[int, ...], np.dtype[Any]]
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | Constant


@dataclass(frozen=True)
class OnnxNode:
    """A node of an ONNX model: one use of an operator, with its inputs, outputs and attributes."""

    index: int
    """Position of the node among the model's nodes, counted from 0."""
    kind: str
    """Name of the operator, such as Conv, without its domain."""
    name: str
    inputs: tuple[str, ...]
    """Names of the input tensors; an empty name stands for a missing optional tensor."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    """Values of the node's attributes, by the attributes' names."""

    def __str__(self) -> str:
        return f"node {self.index} ({self.kind}{f' {self.name!r}' if self.name else ''})"

    def integer(self, name: str, default: int) -> int:
        """Return the attribute `name` as a whole number, or `default` if the node does not have it.

        Raises ModelError for an attribute of another type.
        """
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ModelError(f"its attribute '{name}' is not a whole number")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the attribute `name` as whole numbers, or `default` if the node does not have it.

        Raises ModelError if the attribute is no list of whole numbers, or if the node has neither
        attribute nor default.
        """
        value = self.attributes.get(name, default)
        if value is None:
            raise ModelError(f"its attribute '{name}' is missing")
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise ModelError(f"its attribute '{name}' is not a list of whole numbers")
        return tuple(int(item) for item in value)

    def number(self, name: str, default: float) -> float:
        """Return the attribute `name` as a finite number, or `default` if the node does not have
        it.

        Raises ModelError for any other attribute.
        """
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, float)) or not np.isfinite(value):
            raise ModelError(f"its attribute '{name}' is not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """Return the attribute `name` as text, or `default` if the node does not have it.

        Raises ModelError for an attribute of another type.
        """
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise ModelError(f"its attribute '{name}' is not text")
        return value


@dataclass(frozen=True)
class OnnxInput:
    """An input of an ONNX model, which gets its data from the user."""

    name: str
    dtype: str
    """Type of the elements in numpy's spelling."""
    shape: tuple[int, ...]
    """Shape of the input; the first size is 1 if the model leaves it open."""


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model, with its nodes in an order in which they can be executed."""

    opset: int
    """Version of ONNX's standard operators; operators of ONNX Runtime have versions of their own.
    """
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant]
    """Constant tensors of the model (ONNX's initialisers), by the tensors' names."""
    nodes: tuple[OnnxNode, ...]
