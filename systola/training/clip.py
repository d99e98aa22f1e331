# SPDX-License-Identifier: Apache-2.0
"""Computes the factors by which gradients of Adam are scaled down to a largest norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt

from systola.golden.requantise import INT16_MAX
from systola.training.checks import real
from systola.training.errors import TrainingError

_LEAST, _MOST = 2.0**-20, 2.0**20
"""Least and largest norm that a user may set as the limit of gradients."""


@dataclass(frozen=True)
class Clip:
    """A limit of the norm of gradients.

    If `together`, the limit is for the norm of all tensors as one, else for the norm of each
    tensor. A kernel and its biases are one tensor.
    """

    norm: float
    together: bool

    def factors(self, norms: Sequence[float]) -> list[float]:
        """Return the factor for the gradient of each tensor, 1 or less; `norms` are the norms of
        the gradients.
        """
        if self.together:
            norms = [sqrt(sum(norm * norm for norm in norms))] * len(norms)
        return [self.norm / max(norm, self.norm) for norm in norms]


def largest_step(value: float | None, rate: float, bits: int) -> int:
    """Return the largest change of a weight in a step, as a code with `bits` fraction bits.

    The change is `rate` times `value`, where `value` is the largest magnitude that a number of a
    gradient may have. The code is at least 1. A result of 0 stands for no limit: if `value` is
    None, or if the change is beyond int16.
    """
    if value is None:
        return 0
    code = max(1, floor(value * rate * 2.0**bits + 0.5))
    return code if code <= INT16_MAX else 0


def check_norm(name: str, value: object) -> float | None:
    """Return a norm as a float, None as it is. Raises TrainingError for a norm out of range."""
    if value is None:
        return None
    norm = real(name, value)
    if not _LEAST <= norm <= _MOST:
        raise TrainingError(f"{name} must be 2^-20 to 2^20, not {norm}")
    return norm
