# SPDX-License-Identifier: Apache-2.0
"""What lowering is asked for, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value


@dataclass(frozen=True)
class Spill:
    """What does not stay in the buffer."""

    values: frozenset[Value] = frozenset()
    """Values that are in host memory."""
    bands: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """For results of operations on such values, in how many bands of rows they are calculated."""
    overlap: bool = True
    """Operations may be interleaved, parts of a value made in their place, and inputs loaded early,
    for which more is there at one time."""
    constants: bool = False
    """Constants are loaded each time that they are used."""


@dataclass(frozen=True)
class Part:
    """Operations that are executed one after the other for `samples` samples at a time."""

    samples: int
    inputs: dict[Value, HostView]
    outputs: dict[Value, HostView]
    before: list[Step]
    """The steps in front of the layers."""
    layers: list[tuple[Node, list[Step]]]
    """What the steps of each operation do, for operations that have some."""
    behind: list[Step]
