# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of an LSTM for all turns (parts) of a batch.

Each turn goes through all steps in time before the next turn begins.
"""

from __future__ import annotations

from dataclasses import replace

from systola.training.branches.numbers import dense_of
from systola.training.passes import Pass, UnitScale
from systola.training.recurrent import Recurrent
from systola.training.recurrent_base import Sizes
from systola.training.task import Task
from systola.training.turns.embedding import Words
from systola.training.turns.results import leave_wide_ones
from systola.training.turns.walk import each_turn, result, spilled
from systola.training.writer import Writer


class LstmForward:
    """A writer of the forward pass of an LSTM. Units and masks go to host memory, and int16 ones
    for the next stage's bias.
    """

    def __init__(
        self, writer: Writer, task: Task, left: Pass, words: Words | None, *, train: bool
    ) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._words = words
        self._train = train

    def write(self, number: int) -> None:
        """Write the forward pass of an LSTM for all turns of the batch.

        The LSTM is the first stage, or takes all states of another LSTM.
        """
        writer, task, lstm = self._writer, self._task, self._task.stages[number].lstm
        assert lstm
        recurrent = [
            Recurrent(writer, replace(task, turn=turn), self._left, train=self._train)
            for turn in range(task.turns)
        ]
        scale = UnitScale(writer, task, self._left, number, train=self._train)
        if lstm.sequences:
            for of_turn in each_turn(writer, task):
                if self._words:
                    self._words.rows(of_turn)
                recurrent[of_turn.turn].all_steps(number, scale)
            scale.end()
            for of_turn in each_turn(writer, task):
                recurrent[of_turn.turn].all_units(scale)
            return
        recurrent[0].begin()
        for of_turn in each_turn(writer, task):
            if self._words:
                self._words.rows(of_turn)
            state = recurrent[of_turn.turn].turn(number)
            recurrent[of_turn.turn].measure(scale, state)
            writer.write(spilled(writer.layout).sums, state)
            writer.free(state)
        scale.end()
        for of_turn in each_turn(writer, task):
            layout = writer.layout
            state = writer.allocate(2 * Sizes(layout, lstm, number).rows)
            writer.read(spilled(layout).sums, state)
            units, mask = recurrent[of_turn.turn].units(scale, state)
            writer.write(result(layout, number + 1), units)
            if mask:
                writer.write(spilled(layout).masks[number], mask)
            writer.free(state, units, mask or range(0))
        recurrent[0].end()
        dense = dense_of(task.stages, number + 1)
        if dense is not None:
            leave_wide_ones(writer, task, dense, self._left.inputs[-1])
