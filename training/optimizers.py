# SPDX-License-Identifier: Apache-2.0
"""The optimisers that the machine has."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.arguments import Only, constructor
from systola.training.checks import choice, real
from systola.training.errors import TrainingError
from systola.training.schedules import Schedule, check_rate

ROUNDINGS = ("nearest", "stochastic")
_MOST_MOMENTUM = 0.999
"""The largest momentum: beyond it, too few of the 16 bits of a velocity are left for updates."""

OFF = {
    "nesterov": Only((False,), "momentum is there"),
    "weight_decay": Only((None, 0.0), "Dropout may do"),
    **dict.fromkeys(
        ("clipnorm", "clipvalue", "global_clipnorm"),
        Only((None,), "gradients have an exponent of their own, take a smaller rate"),
    ),
    "use_ema": Only((False,), "there is no average of the weights"),
    "ema_momentum": Only((0.99,), "there is no average of the weights"),
    "ema_overwrite_frequency": Only((None,), "there is no average of the weights"),
    "loss_scale_factor": Only((None,), "gradients have an exponent of their own"),
    "gradient_accumulation_steps": Only((None,), "take a larger batch"),
}
"""Arguments of Keras's optimisers that must have the values with which they do nothing."""


@constructor(**OFF)
@dataclass(frozen=True)
class SGD:
    """Gradient descent: v = momentum * v - learning_rate * g, w += v. `rounding` is how updates
    become masters: "nearest", or "stochastic", at random, without momentum."""

    learning_rate: float | Schedule = 0.01
    momentum: float = 0.0
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", check_rate(self.learning_rate))
        object.__setattr__(self, "momentum", real("momentum", self.momentum))
        choice("rounding", self.rounding, ROUNDINGS)
        if not (self.momentum == 0 or 2.0**-10 <= self.momentum <= _MOST_MOMENTUM):
            most = f"momentum must be 0, or 2^-10 to {_MOST_MOMENTUM}"
            raise TrainingError(f"{most}, not {self.momentum}")
        if self.stochastic and self.momentum:
            raise TrainingError("velocities are rounded to nearest: take no momentum")

    @property
    def stochastic(self) -> bool:
        """Whether updates are rounded at random."""
        return self.rounding == "stochastic"


NAMES = {"sgd": SGD(), "momentum": SGD(momentum=0.9)}


def optimizer(which: str | SGD) -> SGD:
    """Find the optimiser of that name; an SGD is one already. Raises TrainingError for others."""
    if isinstance(which, SGD):
        return which
    return NAMES[choice("optimizer", which, NAMES, ", or SGD")]
