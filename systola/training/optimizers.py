# SPDX-License-Identifier: Apache-2.0
"""The optimisers that the machine has."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from systola.training.arguments import Only, constructor
from systola.training.checks import choice, real
from systola.training.clip import Clip, check_norm
from systola.training.decay import MOST_DECAY
from systola.training.errors import TrainingError
from systola.training.moments import Decays
from systola.training.schedules import Schedule, check_rate

ROUNDINGS = ("nearest", "stochastic")
_LEAST_DECAY, _MOST_FIRST, _MOST_SECOND = 0.5, 0.99, 0.9999
"""Least value of a moment's decay, and its largest value for first and for second moments."""
_MOST_MOMENTUM = 0.999
"""The largest momentum: beyond it, too few of the 16 bits of a velocity are left for updates."""

OFF = {
    "nesterov": Only((False,), "momentum is there"),
    **dict.fromkeys(
        ("clipnorm", "global_clipnorm"),
        Only((None,), "Adam has it; gradients are in the weights before their norm is known"),
    ),
    "use_ema": Only((False,), "there is no average of the weights"),
    "ema_momentum": Only((0.99,), "there is no average of the weights"),
    "ema_overwrite_frequency": Only((None,), "there is no average of the weights"),
    "loss_scale_factor": Only((None,), "gradients have an exponent of their own"),
    "gradient_accumulation_steps": Only((None,), "take a larger batch"),
}
"""Arguments of Keras's optimisers that are accepted only with the value that changes nothing."""
_OFF_ADAPTIVE = {name: rule for name, rule in OFF.items() if name != "nesterov"} | {
    "epsilon": Only((1e-7, 1e-8), "the last places of the moments stand for it")
}
_OFF_ADAM = {
    **{name: rule for name, rule in _OFF_ADAPTIVE.items() if not name.endswith("clipnorm")},
    "amsgrad": Only((False,), "moments follow the last gradients"),
}


def _check_decay(optimizer: object, name: str, most: float) -> None:
    """Make the field of a moment's decay a float; raise TrainingError if it is out of range."""
    value = real(name, getattr(optimizer, name))
    if not _LEAST_DECAY <= value <= most:
        raise TrainingError(f"{name} must be {_LEAST_DECAY} to {most}, not {value}")
    object.__setattr__(optimizer, name, value)


def _keep_weight_decay(optimizer: object, given: object) -> None:
    """Make the field of a weight decay a float; raise TrainingError if it is out of range."""
    if given is None:
        return
    value = real("weight_decay", given)
    if not 0 <= value <= MOST_DECAY:
        raise TrainingError(f"weight_decay must be 0 to {MOST_DECAY}, not {value}")
    object.__setattr__(optimizer, "weight_decay", value)


@constructor(**OFF)
@dataclass(frozen=True)
class SGD:
    """Gradient descent: v = momentum * v - learning_rate * g, w += v.

    Each number of g is cut off at `clipvalue`, if there is one. `rounding` is the way in which
    updates are rounded to masters: "nearest", or "stochastic", at random, without momentum.
    """

    learning_rate: float | Schedule = 0.01
    momentum: float = 0.0
    rounding: str = "nearest"
    _: KW_ONLY
    weight_decay: float | None = None
    clipvalue: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clipvalue", check_norm("clipvalue", self.clipvalue))
        object.__setattr__(self, "learning_rate", check_rate(self.learning_rate))
        _keep_weight_decay(self, self.weight_decay)
        object.__setattr__(self, "momentum", real("momentum", self.momentum))
        choice("rounding", self.rounding, ROUNDINGS)
        if not (self.momentum == 0 or 2.0**-10 <= self.momentum <= _MOST_MOMENTUM):
            most = f"momentum must be 0, or 2^-10 to {_MOST_MOMENTUM}"
            raise TrainingError(f"{most}, not {self.momentum}")
        if self.stochastic and self.momentum:
            raise TrainingError("velocities are rounded to nearest: take no momentum")

    @property
    def decays(self) -> None:
        """None, as SGD has no moments."""

    @property
    def clip(self) -> None:
        """None, as SGD does not cut gradients off at a norm."""

    @property
    def stochastic(self) -> bool:
        """Whether updates are rounded at random."""
        return self.rounding == "stochastic"


class _Adaptive:
    """A base of the optimisers with moments, with fixed values for settings that only SGD has."""

    momentum: ClassVar[float] = 0.0
    stochastic: ClassVar[bool] = False


@constructor(**_OFF_ADAM)
@dataclass(frozen=True)
class Adam(_Adaptive):
    """Adam: steps of the first moment of the gradients over the root of their second moment.

    `systola.training.moments` has the numerics. The gradient of each tensor, a kernel with its
    biases, has a norm of at most `clipnorm`. All gradients together have a norm
    of at most `global_clipnorm`. Or each number of a gradient is cut off at `clipvalue`.
    """

    learning_rate: float | Schedule = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    _: KW_ONLY
    weight_decay: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None
    clipvalue: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", check_rate(self.learning_rate))
        _keep_weight_decay(self, self.weight_decay)
        _check_decay(self, "beta_1", _MOST_FIRST)
        _check_decay(self, "beta_2", _MOST_SECOND)
        names = ("clipnorm", "global_clipnorm", "clipvalue")
        for name in names:
            object.__setattr__(self, name, check_norm(name, getattr(self, name)))
        if sum(getattr(self, name) is not None for name in names) > 1:
            raise TrainingError("give one of clipnorm, global_clipnorm and clipvalue")

    @property
    def clip(self) -> Clip | None:
        """The limit of the norms of gradients; None for no limit."""
        norm = self.global_clipnorm if self.clipnorm is None else self.clipnorm
        return None if norm is None else Clip(norm, together=self.clipnorm is None)

    @property
    def decays(self) -> Decays:
        """Return the decays of both moments."""
        return Decays(self.beta_1, self.beta_2, corrected=True)


@constructor(**_OFF_ADAM)
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with a decay of weights."""

    _: KW_ONLY
    weight_decay: float | None = 0.004


@constructor(
    **_OFF_ADAPTIVE,
    momentum=Only((0.0,), "Adam is there"),
    centered=Only((False,), "moments are about zero"),
)
@dataclass(frozen=True)
class RMSprop(_Adaptive):
    """RMSprop: steps of the gradient over the root of the second moment of all gradients.

    Each number of a gradient is cut off at `clipvalue`, if there is one.
    """

    learning_rate: float | Schedule = 0.001
    rho: float = 0.9
    _: KW_ONLY
    weight_decay: float | None = None
    clipvalue: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", check_rate(self.learning_rate))
        _keep_weight_decay(self, self.weight_decay)
        _check_decay(self, "rho", _MOST_SECOND)
        object.__setattr__(self, "clipvalue", check_norm("clipvalue", self.clipvalue))

    @property
    def clip(self) -> None:
        """None, as RMSprop does not cut gradients off at a norm."""

    @property
    def decays(self) -> Decays:
        """Return the decay of the second moment."""
        return Decays(0.0, self.rho, corrected=False)


Optimizer = SGD | Adam | AdamW | RMSprop
NAMES: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "adam": Adam(),
    "adamw": AdamW(),
    "rmsprop": RMSprop(),
}
KINDS = {type(each).__name__: type(each) for each in NAMES.values()}
"""Classes of optimisers by their name in lower case."""


def optimizer(which: object) -> Optimizer:
    """Return the optimiser of a name, in any case; return an optimiser as it is.

    Raises TrainingError for anything else.
    """
    if isinstance(which, Optimizer):
        return which
    name = which.lower() if isinstance(which, str) else which
    return NAMES[choice("optimizer", name, NAMES, f", or one of {', '.join(KINDS)}")]
