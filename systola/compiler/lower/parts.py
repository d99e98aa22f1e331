# SPDX-License-Identifier: Apache-2.0
"""The records that lowering works with: the choice of values in host memory, and the parts of a
program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value


@dataclass(frozen=True)
class Spill:
    """A choice of values that are kept in host memory because the unified buffer is too small."""

    values: frozenset[Value] = frozenset()
    """Values that are kept in host memory."""
    bands: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """Number of bands of rows in which a value is calculated; the key is the value.

    A key is a value in host memory, or the result of an operation that takes such a value.
    """
    overlap: bool = True
    """True if the compiler may use more lines of the buffer at a time to save cycles.

    It then interleaves operations, makes the parts of a concatenation directly in the result, and
    loads inputs early. If False, it does none of these.
    """
    constants: bool = False
    """True if constants are loaded before each use, False if they are loaded once for the whole
    program.
    """


@dataclass(frozen=True)
class Part:
    """A part of a program: operations that are executed for `samples` samples at a time."""

    samples: int
    inputs: dict[Value, HostView]
    outputs: dict[Value, HostView]
    before: list[Step]
    """Steps before the first operation, which load inputs."""
    layers: list[tuple[Node, list[Step]]]
    """Pairs of an operation and its steps, in the order of execution; operations without steps are
    left out.
    """
    behind: list[Step]
    """Steps after the last operation, which write outputs and keep variables."""
