# SPDX-License-Identifier: Apache-2.0
"""The arguments and the results of lowering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value


@dataclass(frozen=True)
class Spill:
    """A choice of the values that leave the buffer because it is too small."""

    values: frozenset[Value] = frozenset()
    """Values that are kept in host memory."""
    bands: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """Number of bands of rows in which each result is calculated that needs such a value or is one.
    """
    overlap: bool = True
    """True if the compiler may use more of the buffer at a time to save cycles.

    It then interleaves operations, makes parts of a value in their place, and loads inputs early.
    """
    constants: bool = False
    """True if constants are loaded before each use."""


@dataclass(frozen=True)
class Part:
    """Operations that are executed one after another for `samples` samples at a time."""

    samples: int
    inputs: dict[Value, HostView]
    outputs: dict[Value, HostView]
    before: list[Step]
    """Steps before the layers."""
    layers: list[tuple[Node, list[Step]]]
    """Steps after the layers; `layers` has the steps of each operation that has some."""
    behind: list[Step]
