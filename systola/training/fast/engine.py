# SPDX-License-Identifier: Apache-2.0
"""An engine that trains in numpy, with the methods of the engine that runs programs on a
machine.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.golden.training import magnitude_bits
from systola.training.decay import decay_entry
from systola.training.engine import (
    Batch,
    Codes,
    Weights,
    survey_is_due,
    total_loss,
    weight_codes,
)
from systola.training.errors import TrainingError
from systola.training.fast.adaptive import surveyed
from systola.training.fast.arithmetic import Sums, Wide, scaled, wide
from systola.training.fast.loss import Loss, loss, probabilities, probability, weighted
from systola.training.fast.step import Step
from systola.training.loss import PROBABILITY_BITS
from systola.training.moments import SURVEY_STEPS
from systola.training.normalization import moved
from systola.training.numbers import FULL_BITS, LOGIT_BITS
from systola.training.passes import bits_without_dropout, most_unit_bits
from systola.training.stages import learns
from systola.training.state import State
from systola.training.task import Task
from systola.training.writer import Entry


class FastEngine:
    """An engine in numpy, which trains a network with batches of any size.

    It makes the same bytes as a machine of `config`, the columns of which choose the masks of
    Dropout. Raises TrainingError for updates that are rounded at random.
    """

    def __init__(self, config: Config, task: Task, batch: int) -> None:
        if task.stochastic:
            raise TrainingError("back end 'fast' rounds updates to nearest: take 'iss'")
        self.task = task
        self.batch = batch
        self.cycles: int | None = None
        """Number of cycles of the last step that was repeated on a machine; None before such a
        step."""
        self.step_cycles: int | None = None
        """Number of cycles of the last step with a whole batch that was repeated on a machine; None
        before such a step."""
        self._columns = config.cols
        self._state = State((), (), ())
        self._least_bits: list[int] = []

    def load(self, state: State) -> None:
        """Take over a state: masters (int16 weights), and velocities or moments."""
        self._state = state.for_optimizer(self.task.momentum, self.task.decays)
        self.task = replace(self.task, master_bits=state.bits, unit_bits=state.unit_bits)

    def state(self) -> State:
        """Return the state that `load` takes: masters (int16 weights), and velocities or
        moments.
        """
        return replace(self._state, bits=self.task.master_bits, unit_bits=self.task.unit_bits)

    def train(
        self, x: Codes, y: NDArray[np.int16], step: int, weights: Weights | None = None
    ) -> Batch:
        """Take a training step with a batch of samples; `weights`: weights of the samples,
        if any.
        """
        passing = self._step(x, step)
        logits = passing.forward()
        found = loss(passing.task, logits, y)
        if weights is not None:
            found = weighted(found, weight_codes(self.task, weights))
        self._note(passing.unit_bits())
        self._state = self._decayed(passing.learn(found), step + 1)
        statistics = moved(self.task.stages, self._state.statistics, passing.measured())
        self._state = replace(self._state, statistics=statistics)
        if survey_is_due(step + 1):
            self._make_room()
        moments = self._state.moments
        if moments and moments.updates % SURVEY_STEPS == 0:
            self._state = replace(self._state, moments=surveyed(moments))
        return self._batch(found, logits, weights)

    def learn_at(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.task = replace(self.task, learning_rate=rate)

    def end_epoch(self) -> None:
        """End an epoch: predictions use the least fraction bits that units had in its steps."""
        if self._least_bits:
            self.task = replace(self.task, unit_bits=tuple(self._least_bits))
        self._least_bits = []

    def evaluate(self, x: Codes, y: NDArray[np.int16], weights: Weights | None = None) -> Batch:
        """Compute loss and logits of a batch; nothing changes."""
        passing = self._step(x)
        logits = passing.forward()
        return self._batch(loss(passing.task, logits, y), logits, weights)

    def predict(self, x: Codes) -> NDArray[np.float64]:
        """Compute the outputs of the network for a batch."""
        logits, last = self._step(x).forward(), self.task.stages[-1]
        if last.softmax:
            return probabilities(logits) / 2.0**PROBABILITY_BITS
        if last.sigmoid:
            return probability(logits) / 2.0**PROBABILITY_BITS
        return _outputs(logits)

    def _step(self, x: Codes, number: int | None = None) -> Step:
        return Step(replace(self.task, count=len(x)), self._state, x, self._columns, number)

    def _batch(self, found: Loss, logits: Wide, weights: Weights | None) -> Batch:
        return Batch(total_loss(self.task, found.losses, weights), _outputs(logits))

    def _note(self, unit_bits: list[int]) -> None:
        """Note the least fraction bits that units had so far, in the range that a machine can
        report.
        """
        bits: list[int] = []
        for stage, each in zip(self.task.stages, unit_bits, strict=False):
            code = wide(scaled(np.array(2 << most_unit_bits(stage)), Entry(), each))
            bits.append(bits_without_dropout(stage, int(code)))
        self._least_bits = [min(pair) for pair in zip(bits, self._least_bits or bits, strict=True)]

    def _decayed(self, state: State, steps: int) -> State:
        """Return the state with the weight decay taken off the masters, if it is due after `steps`
        steps.
        """
        entry = decay_entry(self.task.weight_decay, self.task.learning_rate, steps)
        if not entry:
            return state
        masters = tuple(
            wide(_sums(each) - wide(scaled(each, entry)))
            if learns(self.task.stages, number)
            else each
            for number, each in enumerate(state.masters)
        )
        return replace(state, masters=masters)

    def _make_room(self) -> None:
        """Halve masters and velocities that have used up their room to grow."""
        masters, velocities = list(self._state.masters), list(self._state.velocities)
        bits = list(self.task.master_bits)
        for number, values in enumerate(masters):
            if magnitude_bits(values) < FULL_BITS:
                continue
            bits[number] -= 1
            for tensors in (masters, velocities):
                tensors[number : number + 1] = [_halved(v) for v in tensors[number : number + 1]]
        self._state = replace(self._state, masters=tuple(masters), velocities=tuple(velocities))
        self.task = replace(self.task, master_bits=tuple(bits))


def _sums(values: Wide) -> Sums:
    return values.astype(np.int32)


def _halved(values: Wide) -> Wide:
    return wide(scaled(values, Entry()))


def _outputs(logits: Wide) -> NDArray[np.float64]:
    return logits / 2.0**LOGIT_BITS
