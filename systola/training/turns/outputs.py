# SPDX-License-Identifier: Apache-2.0
"""Writes the last stage for all turns (parts) of a batch: logits, losses, and their gradient."""

from __future__ import annotations

from systola.training.loss import Loss
from systola.training.numbers import LOGIT_BITS
from systola.training.passes import Pass, sum_bits
from systola.training.task import GRADIENT, SHIFT, Task
from systola.training.turns.chunks import Turned, chunks_of, even_parts
from systola.training.turns.walk import each_turn, spilled
from systola.training.weights import all_turned
from systola.training.writer import Entry, Writer

_LINES = 24
"""Largest number of buffer lines that losses take for each row of C logits, a class of C
samples."""


class Outputs:
    """A writer of the last stage of a network, for all turns of a batch."""

    def __init__(self, writer: Writer, task: Task, left: Pass) -> None:
        self._writer = writer
        self._task = task
        self._number = len(task.stages) - 1
        self._rows = writer.layout.groups * writer.layout.classes
        self._weights = all_turned(writer, self._number)
        self._turned = Turned(writer, task, self._number)
        self._sums = sum_bits(task, left, self._number)

    def logits(self, logits: range, row: int = 0) -> None:
        """Write the logits of the present turn, int16, [group of samples][class].

        `Forward._logits` writes the same logits for a batch without turns. The sums of the logits
        are in accumulator rows from `row` on.
        """
        writer, layout, sums = self._writer, self._writer.layout, self._sums
        for chunk in chunks_of(writer, self._task, self._number):
            tiles, first = self._turned.read(chunk), chunk.blocks.start
            vectors = self._weights.start + first * layout.classes
            how = {"accumulate": int(first > 0), "wide_weights": int(chunk.wide)}
            sizes = layout.classes, len(chunk.blocks), layout.groups
            writer.multiply(vectors, tiles, row, *sizes, **how)
        writer.measure(SHIFT, first=sums.register, value=sums.value - LOGIT_BITS - 1)
        writer.activate(row, logits.start, self._rows, Entry(), wide=1, exponent=SHIFT)

    def predict(self) -> None:
        """Write the outputs of the network for all turns of a batch to host memory."""
        writer, last = self._writer, self._task.stages[-1]
        loss = Loss(writer, self._task)
        for _ in each_turn(writer, self._task):
            logits = writer.allocate(2 * self._rows)
            self.logits(logits)
            if last.softmax:
                loss.probabilities(logits)
            elif last.sigmoid:
                loss.logistic(logits)
            writer.write(writer.layout.logits, logits)
            writer.free(logits)

    def write(self, *, train: bool) -> None:
        """Write logits and losses of all turns, and in training their gradient, to host memory."""
        writer, task = self._writer, self._task
        writer.measure(GRADIENT, value=-8)
        for turns in even_parts(task.turns, self._together()):
            self._losses(turns, train=train)
        if not train:
            return
        writer.take_turn(0)
        loss = Loss(writer, task)
        loss.agree()
        error = writer.allocate(2 * self._rows)
        for _ in each_turn(writer, task):
            writer.read(spilled(writer.layout).error, error)
            gradient = loss.gradient(error)
            writer.write(spilled(writer.layout).gradients[self._number], gradient)
            writer.free(gradient)
        writer.free(error)

    def _losses(self, turns: range, *, train: bool) -> None:
        """Write logits and losses of several turns of a batch together, and in training the
        errors.
        """
        writer, each = self._writer, 2 * self._rows
        logits = writer.allocate(each * len(turns))
        parts = [logits[n * each : (n + 1) * each] for n in range(len(turns))]
        for n, (turn, part) in enumerate(zip(turns, parts, strict=True)):
            writer.take_turn(turn)
            self.logits(part, n * self._rows)
            writer.write(writer.layout.logits, part)
        writer.take_turn(turns.start)
        loss = Loss(writer, self._task, len(turns))
        error = loss.error(logits)
        if train:
            loss.measure(error)
            for n, turn in enumerate(turns):
                place = spilled(writer.of_turn(turn)).error
                writer.write(place, error[n * each : (n + 1) * each])
        loss.free()
        writer.free(logits, error)

    def _together(self) -> int:
        """Return the largest number of turns for which losses are written together.

        Most of a loss is short instructions that wait for each other, so more turns together take
        less time. A product has room for at most C groups of samples.
        """
        writer, layout = self._writer, self._writer.layout
        most = min(layout.size // layout.groups, writer.config.accumulator_rows // self._rows)
        return next((n for n in range(most, 1, -1) if writer.fits(_LINES * n * self._rows)), 1)

    @property
    def kept(self) -> set[int]:
        """Places in host memory of the transposed inputs of the stage, see chunks.Turned."""
        return self._turned.kept

    def free(self) -> None:
        """Give the lines of inputs and weights back to the buffer."""
        self._turned.free()
        self._writer.free(self._weights)
