# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of a batch that is taken in turns: forward, loss and back, layer by layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Source
from systola.training.branches.adding import LEAST
from systola.training.branches.forward import MADE, STATES
from systola.training.branches.kept import Kept
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import Pass, gradient_scale, mask_entry
from systola.training.stages import branched
from systola.training.task import GRADIENT, INPUTS, SHIFT, STATE, Exponent, Task
from systola.training.turns.embedding import Words
from systola.training.turns.hidden import Hidden
from systola.training.turns.lstm import LstmForward
from systola.training.turns.lstm_update import LstmBack
from systola.training.turns.maps import TurnedMaps
from systola.training.turns.outputs import Outputs
from systola.training.turns.products import Products
from systola.training.turns.sums import Accumulated
from systola.training.turns.tiles import Rows
from systola.training.turns.update import Update
from systola.training.turns.walk import spilled
from systola.training.update import update_shift
from systola.training.writer import Entry, Writer

GRADIENTS = "gradients"
"""Key of the fraction bits of the present gradient."""


def goes_in_turns(task: Task) -> bool:
    """Return whether all layers of a network can take their samples in turns."""
    return not any(stage.sources for stage in task.stages)


class Step:
    """A writer of all of a program but its end."""

    def __init__(
        self, writer: Writer, task: Task, words: NDArray[np.intp] | None, *, train: bool
    ) -> None:
        """Take the `words` of the whole batch, where there is an Embedding."""
        self._writer = writer
        self._task = task
        self._train = train
        self._left = Pass()
        self._maps = TurnedMaps(writer, task, self._left, train=train)
        self._words = None if words is None else Words(writer, task, words)
        self.kept = Kept(writer) if branched(task.stages) else None
        """Fraction bits of all results, where there are more results than registers."""

    def forward(self) -> Outputs:
        """Write the way forward up to the units that the last stage takes."""
        self._left.inputs.append(Exponent(0, self._task.input_bits))
        hidden = Hidden(self._writer, self._task, self._left, train=self._train)
        if self.kept:
            self._writer.measure(INPUTS, value=self._task.input_bits)
            self.kept.keep(0, INPUTS)
        for number in range(len(self._task.stages) - 1):
            lstm = self._task.stages[number].lstm
            self._begin(number)
            if lstm:
                about = self._writer, self._task, self._left, None if number else self._words
                LstmForward(*about, train=self._train).write(number)
            elif self._task.stages[number].window:
                self._maps.forward(number)
            else:
                hidden.write(number)
            if self.kept and lstm and not lstm.sequences and self._train:
                self.kept.keep(STATES, STATE)
            if self.kept:
                self.kept.keep(number + 1, MADE)
        self._begin(len(self._task.stages) - 1)
        return Outputs(self._writer, self._task, self._left)

    def back(self, kept: set[int]) -> None:
        """Write the way back, from the gradient of the last stage.

        `kept`: the transposed inputs of the last stage, see Turned.
        """
        writer, task, left = self._writer, self._task, self._left
        for number in reversed(range(len(task.stages))):
            self._begin(number)
            if lstm := task.stages[number].lstm:
                if self.kept and lstm.sequences:
                    self.kept.bring(number + 1, MADE)
                elif self.kept:
                    self.kept.bring(STATES, LEAST)
                    writer.measure(STATE, first=LEAST)
                LstmBack(writer, task, None if number else self._words, number).write()
                continue
            # The gradient below needs the weights before their update, so it is written first. That
            # gradient changes the exponent in GRADIENT.
            entry = update_shift(
                writer, task, number, task.master_bits[number], left.inputs[number]
            )
            if number and task.stages[number].window:
                self._maps.below(number, MADE if self.kept else left.inputs[number + 1].register)
            elif number:
                self._below(number)
            if number and self.kept:
                # The exponent is kept within the ends that gradients of branches have.
                self.kept.keep(GRADIENTS, GRADIENT)
                self.kept.bring(GRADIENTS, GRADIENT)
                self.kept.free(GRADIENTS)
            if task.stages[number].window:
                self._maps.update(number, entry)
                continue
            last = number == len(task.stages) - 1
            Update(writer, task, number, entry, kept if last else None).write()

    def _begin(self, number: int) -> None:
        """Bring the fraction bits of the inputs of a stage, where they are kept."""
        if self.kept:
            self.kept.bring(number, INPUTS)
            self._left.inputs[:] = [Exponent(INPUTS, 0)] * (number + 1)

    def selected(self) -> NDArray[np.int8]:
        """Return the lines that select the gradients of words, (lines, C)."""
        return (
            self._words.selected()
            if self._words
            else np.zeros((0, self._writer.layout.size), np.int8)
        )

    def _below(self, number: int) -> None:
        """Write the gradient of the sums of the stage before a Dense.

        It is int8, [block][sample], or maps where the stage before is a Conv2D.
        """
        writer, task, left = self._writer, self._task, self._left
        layout, before = writer.layout, task.stages[number - 1]
        shape, samples = layout.shapes[number], layout.samples

        def gradients(layout: Layout) -> int:
            return spilled(layout).gradients[number]

        sizes = shape.units, shape.inputs - 1
        products = Products(writer, task, gradients, sizes, Rows(writer, number))
        q, lost = gradient_scale(before)
        writer.measure(SHIFT, value=-8)

        def measure(_task: Task, _block: int, sums: Accumulated) -> range:
            at = {"accumulator": sums.row, "rows": samples, "bits": 8}
            writer.measure(SHIFT, Source.ACCUMULATORS, **at, first=SHIFT)
            return range(0)

        def end() -> None:
            agree(writer, task, left.inputs[number].register)
            bits = task.master_bits[number] - MASTER_SHIFT - lost
            writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=bits)

        rooms = [(writer.allocate(samples), writer.allocate(samples)) for _ in range(2)]
        for _, block, sums in products.twice(measure, end):
            below, mask = rooms[block % 2]
            offset = block * samples * layout.pitch
            sums.to(below.start, Entry(q), exponent=SHIFT)
            if not before.window and (before.relu or before.rate or before.curve):
                writer.read(spilled(writer.layout).masks[number - 1] + offset, mask)
                writer.times(below.start, mask.start, samples, entry=mask_entry(before))
            writer.write(spilled(writer.layout).gradients[number - 1] + offset, below)
        products.free()
        writer.free(*(lines for room in rooms for lines in room))
        if before.window:
            self._maps.below_rows(number - 1)
