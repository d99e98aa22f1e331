# SPDX-License-Identifier: Apache-2.0
"""Back end "fast", with some of its steps repeated on a machine and compared byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.runtime.pod.linked import Linked
from systola.training.engine import Batch, Codes, Engine, Weights
from systola.training.errors import TrainingError
from systola.training.fast.engine import FastEngine
from systola.training.state import State
from systola.training.task import Task


class CheckedEngine(FastEngine):
    """An engine in numpy that takes each `every`-th step on `machine`, too, and compares every
    byte.

    Raises TrainingError for a batch that the machine has no room for.
    """

    def __init__(self, machine: Linked, task: Task, batch: int, every: int) -> None:
        super().__init__(machine.config, task, batch)
        self._engine = Engine(machine, task, batch)
        self._every = every

    def learn_at(self, rate: float) -> None:
        """Set the learning rate of the next steps, in numpy and on the machine."""
        super().learn_at(rate)
        self._engine.learn_at(rate)

    def train(
        self, x: Codes, y: NDArray[np.int16], step: int, weights: Weights | None = None
    ) -> Batch:
        """Take a training step, each `every`-th one also on the machine.

        Raises TrainingError if the machine's bytes differ.
        """
        if step % self._every:
            return super().train(x, y, step, weights)
        self._engine.load(self.state())
        again = self._engine.train(x, y, step, weights)
        batch = super().train(x, y, step, weights)
        self.cycles, self.step_cycles = self._engine.cycles, self._engine.step_cycles
        here, there = self.state(), self._engine.state()
        found = {
            "logits": ([batch.outputs], [again.outputs]),
            "loss": ([batch.loss], [again.loss]),
            "masters": (here.masters, there.masters),
            "velocities or moments": (_flat(here.beside), _flat(there.beside)),
            "fraction bits": (_bits(here), _bits(there)),
        }
        wrong = [name for name, both in found.items() if not _equal(*both)]
        if wrong:
            raise TrainingError(f"step {step}: the machine has other {' and '.join(wrong)}")
        return batch


def _equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip_longest(first, second))


def _bits(state: State) -> list[Any]:
    """Return the fraction bits of all masters, and the scales of their moments."""
    return [*state.bits, *(state.moments.scales if state.moments else ())]


def _flat(tensors: Sequence[Sequence[Any]]) -> list[Any]:
    return [each for kind in tensors for each in kind]
