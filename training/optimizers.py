# SPDX-License-Identifier: Apache-2.0
"""The optimisers that the machine has."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.errors import TrainingError

ROUNDINGS = ("nearest", "stochastic")
_MOST_MOMENTUM = 0.999
"""The largest momentum: beyond it, too few of the 16 bits of a velocity are left for updates."""


@dataclass(frozen=True)
class SGD:
    """Gradient descent: v = momentum * v - learning_rate * g, w += v. `rounding` is how updates
    become masters: "nearest", or "stochastic", at random, without momentum."""

    learning_rate: float = 0.01
    momentum: float = 0.0
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        if not 2.0**-20 <= self.learning_rate <= 8:
            raise TrainingError(f"learning_rate must be 2^-20 to 8, not {self.learning_rate}")
        if not (self.momentum == 0 or 2.0**-10 <= self.momentum <= _MOST_MOMENTUM):
            most = f"momentum must be 0, or 2^-10 to {_MOST_MOMENTUM}"
            raise TrainingError(f"{most}, not {self.momentum}")
        if self.rounding not in ROUNDINGS:
            known = ", ".join(ROUNDINGS)
            raise TrainingError(f"rounding '{self.rounding}' is not there (known: {known})")
        if self.stochastic and self.momentum:
            raise TrainingError("velocities are rounded to nearest: take no momentum")

    @property
    def stochastic(self) -> bool:
        """Whether updates are rounded at random."""
        return self.rounding == "stochastic"


NAMES = {"sgd": SGD(), "momentum": SGD(momentum=0.9)}


def optimizer(which: str | SGD) -> SGD:
    """The optimiser of that name, or the one given."""
    if isinstance(which, SGD):
        return which
    if which not in NAMES:
        raise TrainingError(f"optimizer '{which}' is not there (known: {', '.join(NAMES)}, or SGD)")
    return NAMES[which]
