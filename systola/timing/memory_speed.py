# SPDX-License-Identifier: Apache-2.0
"""The speed with which host memory and weight memory answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemorySpeed:
    """The latency and the stalls of a memory as in sim/memory.py; stalls count with their mean."""

    latency: int = 0
    """Number of cycles by which each answer is late."""
    stall: float = 0.0
    """Fraction of the cycles, 0 to less than 1, in which a channel does nothing."""

    @property
    def beat(self) -> float:
        """Mean cycles from one beat to the next."""
        return 1 / (1 - self.stall)

    @property
    def answer(self) -> float:
        """Mean cycles from a request on the bus to the first beat of its answer.

        For a write: mean cycles from the last beat to the answer.
        """
        return self.latency + self.beat
