# SPDX-License-Identifier: Apache-2.0
"""The last stage for all turns: logits, losses, and the gradient of the logits."""

from __future__ import annotations

from systola.training.errors import NoRoomError
from systola.training.loss import Loss
from systola.training.numbers import LOGIT_BITS
from systola.training.passes import Pass, sum_bits
from systola.training.task import GRADIENT, SHIFT, Task
from systola.training.turns.chunks import Turned, chunks_of
from systola.training.turns.walk import each_turn, spilled
from systola.training.weights import all_turned
from systola.training.writer import Entry, Writer


class Outputs:
    """Writes it."""

    def __init__(self, writer: Writer, task: Task, left: Pass) -> None:
        self._writer = writer
        self._task = task
        self._number = len(task.stages) - 1
        self._rows = writer.layout.groups * writer.layout.classes
        if self._rows > writer.config.accumulator_rows:
            raise NoRoomError(
                f"the accumulators of '{writer.config.name}' have no room for {self._rows} logits"
            )
        self._weights = all_turned(writer, self._number)
        self._turned = Turned(writer, task, self._number)
        self._sums = sum_bits(task, left, self._number)

    def logits(self) -> range:
        """Write the logits of the turn that is written, int16, [group][class], as `_logits` of
        Forward does."""
        writer, layout, sums = self._writer, self._writer.layout, self._sums
        for chunk in chunks_of(writer, self._task, self._number):
            tiles, first = self._turned.read(chunk), chunk.blocks.start
            vectors = self._weights.start + first * layout.classes
            how = {"accumulate": int(first > 0), "wide_weights": int(chunk.wide)}
            sizes = layout.classes, len(chunk.blocks), layout.groups
            writer.multiply(vectors, tiles, 0, *sizes, **how)
        logits = writer.allocate(2 * self._rows)
        writer.measure(SHIFT, first=sums.register, value=sums.value - LOGIT_BITS - 1)
        writer.activate(0, logits.start, self._rows, Entry(), wide=1, exponent=SHIFT)
        return logits

    def predict(self) -> None:
        """Write the outputs of the network."""
        writer, last = self._writer, self._task.stages[-1]
        loss = Loss(writer, self._task)
        for _ in each_turn(writer, self._task):
            logits = self.logits()
            if last.softmax:
                loss.probabilities(logits)
            elif last.sigmoid:
                loss.logistic(logits)
            writer.write(writer.layout.logits, logits)
            writer.free(logits)

    def write(self, *, train: bool) -> None:
        """Write logits and losses, and the gradient where one is asked for."""
        writer, task = self._writer, self._task
        loss = Loss(writer, task)
        writer.measure(GRADIENT, value=-8)
        for _ in each_turn(writer, task):
            logits = self.logits()
            writer.write(writer.layout.logits, logits)
            error = loss.error(logits)
            if train:
                loss.measure(error)
                writer.write(spilled(writer.layout).error, error)
            writer.free(logits, error)
        if not train:
            return
        loss.agree()
        error = writer.allocate(2 * self._rows)
        for _ in each_turn(writer, task):
            writer.read(spilled(writer.layout).error, error)
            gradient = loss.gradient(error)
            writer.write(spilled(writer.layout).gradients[self._number], gradient)
            writer.free(gradient)
        writer.free(error)

    def free(self) -> None:
        """Give the lines back."""
        self._turned.free()
        self._writer.free(self._weights)
