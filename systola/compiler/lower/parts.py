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
    """A choice of the values that are kept in host memory because the buffer is too small."""

    values: frozenset[Value] = frozenset()
    """Values that are kept in host memory."""
    bands: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """Number of bands for each result that is spilled or is calculated from a spilled value."""
    overlap: bool = True
    """True if the compiler may use more of the buffer at a time to save cycles.

    The compiler then interleaves operations, makes parts of a value directly in their place, and
    loads inputs early.
    """
    constants: bool = False
    """True if constants are loaded before each use, and not once for the whole program."""


@dataclass(frozen=True)
class Part:
    """A part of a program: operations that are executed for `samples` samples at a time."""

    samples: int
    inputs: dict[Value, HostView]
    outputs: dict[Value, HostView]
    before: list[Step]
    """Steps before the first operation, which load inputs."""
    layers: list[tuple[Node, list[Step]]]
    """Operations with their steps, in order; operations without steps are left out."""
    behind: list[Step]
    """Steps after the last operation, which write outputs and keep variables."""
