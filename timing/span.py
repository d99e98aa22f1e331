# SPDX-License-Identifier: Apache-2.0
"""How long an instruction keeps its unit busy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Cycles since START."""

    begin: float
    """The unit begins to work on it."""
    last: float
    """The unit takes its last vector, line or beat."""
    end: float
    """It is complete."""
    busy: float
    """Cycles in which the unit would have done it with nothing in the way."""
    beats: int = 0
    """Beats on the host bus."""
