# SPDX-License-Identifier: Apache-2.0
"""The time in which an instruction keeps its unit busy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The span of an instruction in its unit, in cycles since START."""

    begin: float
    """Cycle in which the unit begins to work on it."""
    last: float
    """Cycle in which the unit takes its last vector, line or beat."""
    end: float
    """Cycle in which the instruction is complete."""
    busy: float
    """Cycles that the unit would need without any wait."""
    beats: int = 0
    """Number of beats on the host bus."""
