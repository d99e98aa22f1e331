# SPDX-License-Identifier: Apache-2.0
"""The speed with which host memory and weight memory answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemorySpeed:
    """The speed of a memory as sim/memory.py has it; stalls count with their mean."""

    latency: int = 0
    """Number of cycles by which each answer is late."""
    stall: float = 0.0
    """Fraction of the cycles, 0 to less than 1, in which a channel does nothing."""

    @property
    def beat(self) -> float:
        """Cycles from one beat to the next."""
        return 1 / (1 - self.stall)

    @property
    def answer(self) -> float:
        """Cycles from a request on the bus to its first beat, or from the last beat of a write to
        its answer."""
        return self.latency + self.beat
