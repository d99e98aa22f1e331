# SPDX-License-Identifier: Apache-2.0
"""An ONNX model as plain data."""

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
    """A node of an ONNX model, with one operation."""

    index: int
    """Position of the node in the model, counted from 0."""
    kind: str
    """Operator, such as Conv, without its domain."""
    name: str
    inputs: tuple[str, ...]
    """Names of the input tensors; an empty name stands for a missing optional tensor."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    """Attributes of the node that are numbers, lists of numbers, text or tensors."""

    def __str__(self) -> str:
        return f"node {self.index} ({self.kind}{f' {self.name!r}' if self.name else ''})"

    def integer(self, name: str, default: int) -> int:
        """Return an attribute as a whole number, or `default`; raise ModelError for another
        type.
        """
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ModelError(f"its attribute '{name}' is not a whole number")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return an attribute as a list of whole numbers.

        Raises ModelError if the attribute is no such list, or missing without a default.
        """
        value = self.attributes.get(name, default)
        if value is None:
            raise ModelError(f"its attribute '{name}' is missing")
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise ModelError(f"its attribute '{name}' is not a list of whole numbers")
        return tuple(int(item) for item in value)

    def number(self, name: str, default: float) -> float:
        """Return an attribute as a finite number, or `default`; raise ModelError for
        another type.
        """
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, float)) or not np.isfinite(value):
            raise ModelError(f"its attribute '{name}' is not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """Return an attribute as text, or `default`; raise ModelError for another type."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise ModelError(f"its attribute '{name}' is not text")
        return value


@dataclass(frozen=True)
class OnnxInput:
    """An input of an ONNX model, which the user gives."""

    name: str
    dtype: str
    """Type of the elements in numpy's spelling."""
    shape: tuple[int, ...]
    """Shape; a first dimension that the model leaves open is 1."""


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model in which each node takes only tensors that exist before the node."""

    opset: int
    """Version of the set of standard operators, without ONNX Runtime's own operators."""
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant]
    """Constant tensors of the model, called initialisers, by name."""
    nodes: tuple[OnnxNode, ...]
