# SPDX-License-Identifier: Apache-2.0
"""Finds the scales and shifts of all tensors for the next step of an optimiser with moments.

Some of these numbers need trial steps. A trial step is a training step that is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

from systola.training.loss import gradient_factor
from systola.training.moments import (
    FIRST_GRADIENT,
    FIRST_LOOKS,
    GRADIENT_BITS,
    LEAST_TOLD,
    MOST_TOLD,
    Moments,
    MomentStep,
    Scales,
)
from systola.training.task import Task

_LEAST_OF_NORM, _MOST_OF_NORM = GRADIENT_BITS - 4, GRADIENT_BITS + 1
"""Least and largest number of bits that the largest gradient of a tensor may have when the norm of
the tensor's gradients is computed. With other numbers of bits the norm is not exact enough."""


@dataclass(frozen=True)
class Looked:
    """The reports of a trial step for all tensors."""

    told: Sequence[int]
    """Reported bits of the largest gradient of each tensor."""
    squares: Sequence[int]
    """Sum of the squares of the codes of each tensor's first moments, which were zeros before the
    trial step. Empty if the norms of gradients have no limit."""


Look = Callable[[Sequence[MomentStep]], Looked]
"""A function that makes a trial step with given numbers, undoes it and returns its reports."""


def moment_steps(task: Task, before: Moments, look: Look) -> list[MomentStep]:
    """Return the numbers for the next step of each tensor. `before`: the moments before this step.

    The first step takes the exponents of its own gradients, so `look` makes a trial step before it.
    A report at an end of its range is not exact. So up to FIRST_LOOKS trial steps are made until no
    report is at an end.
    """
    factors = [gradient_factor(task) / task.count] * len(before.roots)
    if task.clip:
        clipped = task.clip.factors(_norms(task, before, look, factors))
        factors = [factor * less for factor, less in zip(factors, clipped, strict=True)]
    if before.scales:
        return _steps(task, before, before.scales, factors)
    gradients = [FIRST_GRADIENT] * len(before.roots)
    for _ in range(FIRST_LOOKS):
        steps = _at_first(task, before, gradients, factors)
        told = look(steps).told
        gradients = [step.wanted(bits) for step, bits in zip(steps, told, strict=True)]
        if all(LEAST_TOLD < bits < MOST_TOLD for bits in told):
            break
    return _at_first(task, before, gradients, factors)


def _norms(task: Task, before: Moments, look: Look, factors: Sequence[float]) -> list[float]:
    """Return the norm of the gradients of each tensor.

    A trial step begins with first moments of zeros, so it leaves the gradients in them. Trial steps
    are repeated while the largest gradient of a tensor has too few bits, or too many.
    """
    gradients = [each.gradient for each in before.scales] or [FIRST_GRADIENT] * len(factors)
    steps = _at_first(task, before, gradients, factors)
    found = look(steps)
    for _ in range(FIRST_LOOKS - 1):
        if all(_LEAST_OF_NORM <= bits <= _MOST_OF_NORM for bits in found.told):
            break
        gradients = [step.wanted(bits) for step, bits in zip(steps, found.told, strict=True)]
        steps = _at_first(task, before, gradients, factors)
        found = look(steps)
    units = [step.scales.first.unit * (1 - before.decays.first) for step in steps]
    return [sqrt(total) / unit for total, unit in zip(found.squares, units, strict=True)]


def _at_first(
    task: Task, before: Moments, gradients: Sequence[int], factors: Sequence[float]
) -> list[MomentStep]:
    scales = [Scales.at_first(before.decays, bits) for bits in gradients]
    return _steps(task, before, scales, factors)


def _steps(
    task: Task, before: Moments, scales: Sequence[Scales], factors: Sequence[float]
) -> list[MomentStep]:
    decays, number, rate = before.decays, before.updates + 1, task.learning_rate
    return [
        MomentStep(decays, number, each, factor, rate, task.clip_value)
        for each, factor in zip(scales, factors, strict=True)
    ]
