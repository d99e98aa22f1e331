# SPDX-License-Identifier: Apache-2.0
"""The numbers of the next step of all tensors, where the optimiser has moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systola.training.loss import gradient_factor
from systola.training.moments import (
    FIRST_GRADIENT,
    FIRST_LOOKS,
    LEAST_TOLD,
    MOST_TOLD,
    Moments,
    MomentStep,
    Scales,
)
from systola.training.task import Task

Look = Callable[[Sequence[MomentStep]], Sequence[int]]
"""A function from the numbers of a step to the reported bits of each tensor's largest gradient."""


def moment_steps(task: Task, before: Moments, look: Look) -> list[MomentStep]:
    """Return the numbers of the step of a task after some updates.

    The first step takes the exponents of its own gradients, so there is a `look` at them before.
    Another one follows while a tensor reports an end of the range.
    """
    if before.scales:
        return _steps(task, before, before.scales)
    gradients = [FIRST_GRADIENT] * len(before.roots)
    for _ in range(FIRST_LOOKS):
        steps = _at_first(task, before, gradients)
        told = look(steps)
        gradients = [step.wanted(bits) for step, bits in zip(steps, told, strict=True)]
        if all(LEAST_TOLD < bits < MOST_TOLD for bits in told):
            break
    return _at_first(task, before, gradients)


def _at_first(task: Task, before: Moments, gradients: Sequence[int]) -> list[MomentStep]:
    scales = [Scales.at_first(before.decays, bits) for bits in gradients]
    return _steps(task, before, scales)


def _steps(task: Task, before: Moments, scales: Sequence[Scales]) -> list[MomentStep]:
    factor, number = gradient_factor(task) / task.count, before.updates + 1
    return [MomentStep(before.decays, number, each, factor, task.learning_rate) for each in scales]
