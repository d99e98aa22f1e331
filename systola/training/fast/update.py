# SPDX-License-Identifier: Apache-2.0
"""Computes the update of masters (int16 weights) by the sums of their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from systola.golden.training import held
from systola.training.clip import largest_step
from systola.training.fast.arithmetic import Sums, Wide, scaled, wide
from systola.training.loss import gradient_factor
from systola.training.numbers import multiplier, velocity_bits
from systola.training.state import State
from systola.training.task import Task
from systola.training.writer import Entry, shifted


class Update(Protocol):
    """An interface of the objects that update all masters in one step, by the sums of the
    gradients.
    """

    def add(
        self, tensor: int, sums: Sums, bits: int, sum_bits: int, rows: slice = slice(None)
    ) -> None:
        """Take in the sums of the negative gradient for some rows of one tensor of masters.

        `bits`: fraction bits of these masters. `sum_bits`: fraction bits of the sums.
        """
        ...

    def state(self) -> State:
        """Return the state after the update, when the sums of all tensors have been added."""
        ...


class PlainUpdate:
    """An update by SGD, which keeps velocities if there is momentum."""

    def __init__(self, task: Task, state: State) -> None:
        self._task = task
        self._state = state
        self._masters = [each.copy() for each in state.masters]
        self._velocities = [each.copy() for each in state.velocities]

    def add(
        self, tensor: int, sums: Sums, bits: int, sum_bits: int, rows: slice = slice(None)
    ) -> None:
        """Add the sums of the negative gradient to some rows of the masters of a tensor."""
        task, masters = self._task, self._masters[tensor]
        q, right = multiplier(task.learning_rate * gradient_factor(task) / task.count)
        more = velocity_bits(task.momentum) if task.momentum else 0
        moved = scaled(sums, Entry(q), held(sum_bits - bits - more + right))
        if most := largest_step(task.clip_value, task.learning_rate, bits + more):
            moved = moved.clip(-most, most)
        if not task.momentum:
            masters[rows] = wide(moved + masters[rows])
            return
        velocities = self._velocities[tensor]
        q, right = multiplier(task.momentum)
        decayed = wide(scaled(velocities[rows], shifted(right, multiplier=q)))
        velocities[rows] = wide(moved + decayed)
        masters[rows] = wide(masters[rows] + _rounded(velocities[rows], more))

    def state(self) -> State:
        """Return the state after the update, when the sums of all tensors have been added."""
        masters, velocities = tuple(self._masters), tuple(self._velocities)
        return replace(self._state, masters=masters, velocities=velocities)


def _rounded(velocities: Wide, bits: int) -> Sums:
    """Return velocities rounded to the fraction bits of masters, which are `bits` fewer."""
    return (velocities.astype(np.int32) + (1 << bits >> 1)) >> bits
