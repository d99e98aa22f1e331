# SPDX-License-Identifier: Apache-2.0
"""Learning rates that change from step to step; names, arguments and values are Keras's."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import ceil, cos, floor, log, pi
from typing import get_args

from systola.training.arguments import constructor
from systola.training.checks import flag, items, real, shown
from systola.training.errors import TrainingError

LEAST_RATE, MOST_RATE = 2.0**-20, 8.0
"""Least and largest learning rate that the machine can take."""
_WHOLE = 1e-9
"""Amount by which a number of periods may be below a whole number and still count as whole."""


@dataclass(frozen=True)
class LearningRateSchedule:
    """The base of all schedules. A call with the number of a step, counted from 0, returns the
    learning rate of this step.
    """

    def __call__(self, step: int) -> float:
        """Return the learning rate of a step as Keras computes it, but in float64."""
        raise NotImplementedError

    def _check(self, *, rates: str = "", positive: str = "", flags: str = "") -> None:
        """Check fields of the schedule, given by their names, and convert numbers to float.

        `rates` must be 0 to MOST_RATE, `positive` above 0, `flags` True or False. Raises
        TrainingError for any other value.
        """
        for name in (*rates.split(), *positive.split()):
            where, value = f"{name} of {type(self).__name__}", getattr(self, name)
            number = real(where, value)
            least = name in positive.split() and number <= 0
            if least or not 0 <= number <= (MOST_RATE if name in rates.split() else 1e12):
                raise TrainingError(f"{where} is out of range: {shown(value)}")
            object.__setattr__(self, name, number)
        for name in flags.split():
            flag(f"{name} of {type(self).__name__}", getattr(self, name))


@dataclass(frozen=True)
class _Decay(LearningRateSchedule):
    """A learning rate that depends on a count: the number of steps divided by `decay_steps`.

    With `staircase` the count is rounded down to a whole number.
    """

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __post_init__(self) -> None:
        self._check(
            rates="initial_learning_rate", positive="decay_steps decay_rate", flags="staircase"
        )

    def _count(self, step: int) -> float:
        count = step / self.decay_steps
        return floor(count) if self.staircase else count


@constructor()
@dataclass(frozen=True)
class ExponentialDecay(_Decay):
    """A learning rate that is multiplied by `decay_rate` in every `decay_steps` steps.

    The rate changes a little at each step, or with `staircase` at once at the end of these steps.
    """

    def __call__(self, step: int) -> float:
        return self.initial_learning_rate * self.decay_rate ** self._count(step)


@constructor()
@dataclass(frozen=True)
class InverseTimeDecay(_Decay):
    """A learning rate that is the initial rate divided by 1 + `decay_rate` * n, where n is the
    number of steps divided by `decay_steps`.

    With `staircase` n is rounded down to a whole number.
    """

    def __call__(self, step: int) -> float:
        return self.initial_learning_rate / (1 + self.decay_rate * self._count(step))


@constructor()
@dataclass(frozen=True)
class PolynomialDecay(LearningRateSchedule):
    """A learning rate that goes to `end_learning_rate` in `decay_steps` steps, as a polynomial.

    With `cycle` the decay is stretched to the next multiple of `decay_steps` whenever it has ended.
    So the rate jumps up, and falls to `end_learning_rate` again. Without `cycle` the rate stays at
    `end_learning_rate`.
    """

    initial_learning_rate: float
    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False

    def __post_init__(self) -> None:
        rates = "initial_learning_rate end_learning_rate"
        self._check(rates=rates, positive="decay_steps power", flags="cycle")

    def __call__(self, step: int) -> float:
        most, at = self.decay_steps, float(step)
        if self.cycle:
            most *= ceil(step / most) if step else 1
        else:
            at = min(at, most)
        change = self.initial_learning_rate - self.end_learning_rate
        return change * (1 - at / most) ** self.power + self.end_learning_rate


@constructor()
@dataclass(frozen=True)
class PiecewiseConstantDecay(LearningRateSchedule):
    """A learning rate that is the first of `values` up to step `boundaries`[0], then the next
    value, and so on.
    """

    boundaries: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        steps = items("boundaries", self.boundaries, "steps")
        boundaries = [real("a boundary", each) for each in steps]
        values = [real("a value", each) for each in items("values", self.values, "rates")]
        if len(values) != len(boundaries) + 1 or not boundaries:
            raise TrainingError("PiecewiseConstantDecay has one value more than boundaries")
        if boundaries != sorted(boundaries):
            raise TrainingError(f"boundaries must rise, unlike {shown(boundaries)}")
        if not all(0 <= value <= MOST_RATE for value in values):
            raise TrainingError(f"values must be rates of 0 to {MOST_RATE:g}")
        object.__setattr__(self, "boundaries", tuple(boundaries))
        object.__setattr__(self, "values", tuple(values))

    def __call__(self, step: int) -> float:
        return self.values[sum(step > each for each in self.boundaries)]


@constructor()
@dataclass(frozen=True)
class CosineDecay(LearningRateSchedule):
    """A learning rate that falls along a cosine to `alpha` times its first value.

    The rate falls in `decay_steps` steps. With `warmup_target` the rate first rises to this target,
    in `warmup_steps` steps.
    """

    initial_learning_rate: float
    decay_steps: float
    alpha: float = 0.0
    _: KW_ONLY
    warmup_target: float | None = None
    warmup_steps: float = 0.0

    def __post_init__(self) -> None:
        target = "" if self.warmup_target is None else " warmup_target"
        self._check(rates=f"initial_learning_rate alpha{target}", positive="decay_steps")
        steps = real("warmup_steps", self.warmup_steps)
        if steps < 0:
            raise TrainingError(f"warmup_steps must not be negative, as {shown(steps)} is")
        object.__setattr__(self, "warmup_steps", steps)

    def __call__(self, step: int) -> float:
        start, at = self.initial_learning_rate, float(step)
        if self.warmup_target is not None:
            if at < self.warmup_steps:
                return start + (self.warmup_target - start) * at / self.warmup_steps
            start, at = self.warmup_target, at - self.warmup_steps
        return start * _cosine(min(at, self.decay_steps) / self.decay_steps, 1.0, self.alpha)


@constructor()
@dataclass(frozen=True)
class CosineDecayRestarts(LearningRateSchedule):
    """A CosineDecay that begins again and again. Each period has `t_mul` times as many steps as the
    period before, and its first rate is `m_mul` times as high.
    """

    initial_learning_rate: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        rates = "initial_learning_rate alpha"
        self._check(rates=rates, positive="first_decay_steps t_mul m_mul")
        if self.t_mul < 1:
            raise TrainingError(f"t_mul must be 1 or more, not {self.t_mul}")

    def __call__(self, step: int) -> float:
        part = step / self.first_decay_steps
        if self.t_mul == 1:
            count = floor(part)
            part -= count
        else:
            count = floor(log(1 - part * (1 - self.t_mul)) / log(self.t_mul) + _WHOLE)
            part -= (1 - self.t_mul**count) / (1 - self.t_mul)
            part /= self.t_mul**count
        return self.initial_learning_rate * _cosine(part, self.m_mul**count, self.alpha)


Schedule = (
    ExponentialDecay
    | InverseTimeDecay
    | PolynomialDecay
    | PiecewiseConstantDecay
    | CosineDecay
    | CosineDecayRestarts
)
SCHEDULES = {kind.__name__: kind for kind in get_args(Schedule)}


def check_rate(given: object) -> float | Schedule:
    """Return a learning rate, or a schedule; raise TrainingError for anything else."""
    if isinstance(given, Schedule):
        return given
    rate = real("learning_rate", given)
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise TrainingError(f"learning_rate must be 2^-20 to {MOST_RATE:g}, not {rate}")
    return rate


def rate_at(rate: float | Schedule, step: int) -> float:
    """Return the learning rate of a step; a schedule's rates are limited to LEAST_RATE to
    MOST_RATE.
    """
    if isinstance(rate, (int, float)):
        return rate
    return min(max(rate(step), LEAST_RATE), MOST_RATE)


def _cosine(part: float, most: float, alpha: float) -> float:
    """Return the factor of the initial learning rate in a cosine decay.

    The factor falls from (1 - alpha) * most + alpha to `alpha`.

    `part` is the fraction of the decay that has passed, 0 to 1.
    """
    return (1 - alpha) * 0.5 * most * (1 + cos(pi * part)) + alpha
