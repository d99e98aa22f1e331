# SPDX-License-Identifier: Apache-2.0
"""Gradients of Adam that are cut off at a norm: the factor of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from systola.training.checks import real
from systola.training.errors import TrainingError

_LEAST, _MOST = 2.0**-20, 2.0**20
"""The least and the largest norm that gradients can be cut off at."""


@dataclass(frozen=True)
class Clip:
    """The largest norm of the gradient of a tensor, or of all of them `together`.

    A tensor has a kernel and its biases.
    """

    norm: float
    together: bool

    def factors(self, norms: Sequence[float]) -> list[float]:
        """Return the factor of each tensor, 1 or less, from the norms of their gradients."""
        if self.together:
            norms = [sqrt(sum(norm * norm for norm in norms))] * len(norms)
        return [self.norm / max(norm, self.norm) for norm in norms]


def check_norm(name: str, value: object) -> float | None:
    """Return a norm as a float. Raises TrainingError for one that is out of range."""
    if value is None:
        return None
    norm = real(name, value)
    if not _LEAST <= norm <= _MOST:
        raise TrainingError(f"{name} must be 2^-20 to 2^20, not {norm}")
    return norm
