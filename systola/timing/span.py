# SPDX-License-Identifier: Apache-2.0
"""The time in which an instruction keeps its unit busy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The span of an instruction in its unit, in cycles since START."""

    begin: float
    """Cycle in which the unit begins to work on the instruction."""
    last: float
    """Cycle in which the unit takes the instruction's last vector, line or beat."""
    end: float
    """Cycle in which the instruction is complete."""
    busy: float
    """Cycles that the unit would need for the instruction without any wait."""
    beats: int = 0
    """Number of beats of the instruction on the host bus."""
