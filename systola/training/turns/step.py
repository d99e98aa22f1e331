# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of a batch that is taken in turns: forward pass, loss and backward pass.

All turns go through one layer before the next layer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Source
from systola.training.branches.adding import LEAST
from systola.training.branches.forward import STATES
from systola.training.branches.joins import MADE
from systola.training.branches.kept import Kept
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import Pass, mask_entry
from systola.training.stages import branched, takes
from systola.training.task import GRADIENT, INPUTS, SHIFT, STATE, Exponent, Task
from systola.training.turns.embedding import Words
from systola.training.turns.gradients import Gradients
from systola.training.turns.hidden import Hidden
from systola.training.turns.joins import TurnedJoins
from systola.training.turns.lstm import LstmForward
from systola.training.turns.lstm_update import LstmBack
from systola.training.turns.maps import TurnedMaps
from systola.training.turns.normalizing import TurnedNormalizing
from systola.training.turns.outputs import Outputs
from systola.training.turns.products import Products
from systola.training.turns.results import copy_for
from systola.training.turns.sums import Accumulated
from systola.training.turns.tiles import Rows
from systola.training.turns.update import Update
from systola.training.turns.walk import spilled
from systola.training.update import begin_telling, tell, update_shift
from systola.training.writer import Entry, Writer


class Step:
    """A writer of a whole program except for its end, for a batch that is taken in turns."""

    def __init__(
        self, writer: Writer, task: Task, words: NDArray[np.intp] | None, *, train: bool
    ) -> None:
        """Prepare to write the program.

        `words`: the words of the whole batch, if there is an Embedding.
        """
        self._writer = writer
        self._task = task
        self._train = train
        self._left = Pass()
        self._maps = TurnedMaps(writer, task, self._left, train=train)
        self._words = None if words is None else Words(writer, task, words)
        self.kept = Kept(writer) if branched(task.stages) else None
        """Store of the fraction bits of all results, for branches or more results than registers.
        None if exponent registers have the fraction bits."""
        self._normalizing: dict[int, TurnedNormalizing] = {}
        """Writers of the stages that normalise, by number of the stage."""
        self._gradients = Gradients(writer, task, self.kept, self._maps)

    def forward(self) -> Outputs:
        """Write the forward pass up to the inputs of the last stage; return the writer of this
        stage.
        """
        writer, task, last = self._writer, self._task, len(self._task.stages) - 1
        self._left.inputs.append(Exponent(0, task.input_bits))
        if self.kept:
            writer.measure(INPUTS, value=task.input_bits)
            self.kept.keep(0, INPUTS)
        for number in range(last):
            self._made(number)
            if self.kept:
                self.kept.keep(number + 1, MADE)
        self._begin(last)
        copy_for(writer, task, last, self._left.inputs[-1])
        return Outputs(writer, task, self._left)

    def _made(self, number: int) -> None:
        """Write the forward pass of a stage that is not the last one."""
        writer, task, left, train = self._writer, self._task, self._left, self._train
        stage = task.stages[number]
        if self.kept and stage.join and not stage.normalized:
            TurnedJoins(writer, task, left, self.kept, train=train).write(number)
            return
        self._begin(number)
        if self.kept and stage.normalized:
            found = TurnedNormalizing(writer, task, number, self.kept)
            found.write(left, train=train)
            self._normalizing[number] = found
        elif stage.lstm:
            words = None if number else self._words
            LstmForward(writer, task, left, words, train=train).write(number)
            if self.kept and train and not stage.lstm.sequences:
                self.kept.keep(STATES, STATE)
        elif stage.window:
            self._maps.forward(number)
        else:
            copy_for(writer, task, number, left.inputs[-1])
            Hidden(writer, task, left, train=train).write(number)

    def back(self, kept: set[int]) -> None:
        """Write the backward pass, from the gradient of the last stage.

        `kept`: places of the transposed inputs of the last stage, see chunks.Turned.
        """
        last = len(self._task.stages) - 1
        for number in reversed(range(last + 1)):
            stage = self._task.stages[number]
            if number < last and not (stage.lstm and stage.lstm.sequences):
                self._gradients.gather(number)
            if stage.join:
                self._tell_nothing(number)
                if stage.normalized:
                    self._normalizing[number].write_back()
                self._gradients.split(number)
            elif stage.lstm:
                self._lstm_back(number, sequences=stage.lstm.sequences)
            else:
                self._stage_back(number, kept if number == last else None)

    def _stage_back(self, number: int, kept: set[int] | None) -> None:
        """Write the gradient of a stage's inputs, then the update of its masters.

        The gradient is written first, because it needs the old weights. Its fraction bits overwrite
        exponent register GRADIENT, so the shift of the update is computed even earlier.
        """
        writer, task, left, stage = (
            self._writer,
            self._task,
            self._left,
            self._task.stages[number],
        )
        self._begin(number)
        entry = update_shift(writer, task, number, task.master_bits[number], left.inputs[number])
        if takes(task.stages, number)[0]:
            if stage.window:
                self._below_maps(number)
            else:
                self._below(number)
            self._gradients.add(number)
        if stage.frozen:
            self._tell_nothing(number)
        elif stage.window:
            self._maps.update(number, entry)
        else:
            Update(writer, task, number, entry, kept).write()

    def _lstm_back(self, number: int, *, sequences: bool) -> None:
        self._begin(number)
        if self.kept and sequences:
            self.kept.bring(number + 1, MADE)
        elif self.kept:
            self.kept.bring(STATES, LEAST)
            self._writer.measure(STATE, first=LEAST)
        words = None if number else self._words
        LstmBack(self._writer, self._task, words, number).write()

    def _tell_nothing(self, number: int) -> None:
        """Report to the host, for a tensor that learns nothing, a largest gradient that changes no
        scale.
        """
        begin_telling(self._writer, self._task, number)
        tell(self._writer, self._task, number)

    def _begin(self, number: int) -> None:
        """Put the fraction bits of a stage's inputs into exponent register INPUTS, if the buffer
        keeps these fraction bits.
        """
        if self.kept:
            self.kept.bring(takes(self._task.stages, number)[0], INPUTS)
            self._left.inputs[:] = [Exponent(INPUTS, 0)] * (number + 1)

    def selected(self) -> NDArray[np.int8]:
        """Return the lines that select the gradients of an Embedding's words, (lines, C)."""
        return (
            self._words.selected()
            if self._words
            else np.zeros((0, self._writer.layout.size), np.int8)
        )

    def _below_maps(self, number: int) -> None:
        """Write the gradient of the inputs of a Conv2D for all turns of the batch."""
        writer, gradients = self._writer, self._gradients
        (at,) = takes(self._task.stages, number)
        # A free register serves as scratch. Register INPUTS is not free, as the bias needs it.
        scratch = MADE if self.kept else self._left.inputs[number + 1].register

        def leave(below: range) -> None:
            if gradients.alone(number):
                self._maps.through(at - 1, below)
                return
            writer.write(gradients.place(number)(writer.layout), below)
            writer.free(below)

        self._maps.below(number, scratch, gradients.scale(number), leave)

    def _below(self, number: int) -> None:
        """Write the gradient of the inputs of a Dense for all turns, int8, [block][sample].

        If no other stage takes these inputs, their gradient is also multiplied by the mask of the
        stage before. The result is the gradient of the sums of that stage.
        """
        writer, task, left = self._writer, self._task, self._left
        layout, alone = writer.layout, self._gradients.alone(number)
        (at,), to = takes(task.stages, number), self._gradients.place(number)
        before = task.stages[at - 1]
        shape, samples = layout.shapes[number], layout.samples

        def gradients(layout: Layout) -> int:
            return spilled(layout).gradients[number]

        sizes = shape.units, shape.inputs - 1
        products = Products(writer, task, gradients, sizes, Rows(writer, number))
        q, lost = self._gradients.scale(number)
        writer.measure(SHIFT, value=-8)

        def measure(_task: Task, _block: int, sums: Accumulated) -> range:
            at = {"accumulator": sums.row, "rows": samples, "bits": 8}
            writer.measure(SHIFT, Source.ACCUMULATORS, **at, first=SHIFT)
            return range(0)

        def end() -> None:
            agree(writer, task, left.inputs[number].register)
            bits = task.master_bits[number] - MASTER_SHIFT - lost
            writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=bits)

        masked = alone and not before.maps and before.masked
        rooms = [(writer.allocate(samples), writer.allocate(samples)) for _ in range(2)]
        for _, block, sums in products.twice(measure, end):
            below, mask = rooms[block % 2]
            offset = block * samples * layout.pitch
            sums.to(below.start, Entry(q), exponent=SHIFT)
            if masked:
                writer.read(spilled(writer.layout).masks[at - 1] + offset, mask)
                writer.times(below.start, mask.start, samples, entry=mask_entry(before))
            writer.write(to(writer.layout) + offset, below)
        products.free()
        writer.free(*(lines for room in rooms for lines in room))
        if alone and before.maps:
            self._maps.below_rows(at - 1)
