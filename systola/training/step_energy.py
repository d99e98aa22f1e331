# SPDX-License-Identifier: Apache-2.0
"""Counts energy and operations of a training step, from its compiled program."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.timing.activity import Activity, activity
from systola.timing.energy import Energy, energies
from systola.training.errors import TrainingError
from systola.training.fit import fitted, some_words
from systola.training.programs import train_program
from systola.training.stages import Stage
from systola.training.task import Task


@dataclass(frozen=True)
class StepEnergy:
    """The energy of a training step with a whole batch, of all cores together."""

    samples: int
    """Number of samples of the batch."""
    operations: int
    """Number of useful operations, two for each multiply-accumulate. They are in the forward pass,
    the backward pass and the update of the weights."""
    cycles: int | None
    """Number of cycles of the last step; None on a machine without a clock."""
    activity: Activity
    energy: tuple[Energy, ...]
    """The energy of the step in each technology of systola.timing.technology."""

    @property
    def joules(self) -> dict[str, float]:
        """Energy of the step in joules, by the technology's name."""
        return {each.technology: each.joules for each in self.energy}

    def operations_per_second(self, mhz: float) -> float | None:
        """Return the operations in a second at a clock of `mhz` MHz; None if cycles are not
        known.
        """
        return self.operations * mhz * 1e6 / self.cycles if self.cycles else None

    def figures(self) -> dict[str, object]:
        """Return the numbers of the step as plain values for JSON."""
        return {
            "samples": self.samples,
            "operations": self.operations,
            "cycles": self.cycles,
            "activity": asdict(self.activity),
            "energy": {each.technology: each.figures() for each in self.energy},
        }


def step_energy(config: Config, task: Task, cycles: int | None) -> StepEnergy | None:
    """Return the energy of a step of `task` with all its samples, on cores of `config`.

    A batch that has no room is taken in turns. The words for an Embedding are assumed to be spread
    over the vocabulary. Returns None if the machine has no program even with one block of samples a
    turn.
    """
    done = Activity()
    try:
        task, layout = fitted(config, task, task.count)
        words = _words(task)
        for core in range(task.cores):
            program = train_program(config, layout, replace(task, core=core), words)
            done += activity(config, program.code)
    except TrainingError:
        return None
    macs = task.count * step_macs(task.stages)
    return StepEnergy(task.count, 2 * macs, cycles, done, energies(config, done, macs))


def _words(task: Task) -> NDArray[np.intp] | None:
    """Return words, (samples, steps), in which all words of the vocabulary are equally frequent."""
    lstm, words = task.stages[0].lstm, some_words(task)
    if lstm is None or words is None:
        return None
    return np.arange(words.size).reshape(words.shape) % lstm.vocabulary


def step_macs(stages: tuple[Stage, ...]) -> int:
    """Return the multiply-accumulates that a step needs for one sample, without biases.

    The sums of a stage and the gradient of its weights need the same number each. So does the
    gradient of its inputs, if an earlier stage learns. An Embedding needs no multiply-accumulate.
    """
    total = 0
    for number, stage in enumerate(stages):
        uses = prod(stage.window.out) if stage.window else 1
        learnt_before = number > 0
        if stage.lstm:
            uses = stage.lstm.steps
            learnt_before = number > 0 or stage.lstm.vocabulary > 0
            total += 3 * uses * stage.lstm.units * stage.units
        total += (3 if learnt_before else 2) * uses * stage.inputs * stage.units
    return total
