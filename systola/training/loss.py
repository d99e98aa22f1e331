# SPDX-License-Identifier: Apache-2.0
"""Writes the losses: from logits to the loss of each sample and the gradient.

The logits are transposed: classes are lines, samples are columns. The softmax needs no division.
Let z be a logit, m the largest logit, rounded up to quarters, d = z - m, and S the sum of exp(d)
over the classes. Then log p = d - log S. Newton's method finds Y = log S + 1/4, the root of exp(Y)
= S exp(1/4). A step is Y += S exp(1/4) exp(-Y) - 1. After its first step Y comes to the root from
above, and Y is never below zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, exp, log

import numpy as np

from systola.arch.isa import Function, Operation, Source
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.moves import largest
from systola.training.numbers import LOGIT_BITS, multiplier
from systola.training.task import GRADIENT, SHIFT, Task
from systola.training.windows import Window
from systola.training.writer import NARROWING, ONE, UNIT, WIDE, Entry, Writer, shifted

BINARY = "binary_crossentropy"
LOSSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", BINARY, "mse")
LOSS_BITS = 11
"""Fraction bits of losses and logarithms. With these, an int16 stands for numbers below 16."""
PROBABILITY_BITS = 15
"""Fraction bits of probabilities and of their errors."""
WEIGHT_BITS = 14
"""Fraction bits of the weight of a sample. The weight is relative to the largest weight of all
samples."""
MARGIN = 0.25
"""Bound of the amount by which the largest logit is rounded up to a multiple of a quarter."""
LINE_ABOVE = 0.03
"""Number added to the line x log 2, with which the line is closest to log(1 + x) for x from 0 to 1.
"""
LARGEST = (1 << 15) - 1
"""Largest code of int16."""
_SELECT = 1 << 6
"""The nonzero number of a selection vector. It stands at the place of a group of samples, so that a
product with the vector copies the line of this group."""


def gradient_factor(task: Task) -> float:
    """Return the factor from a sample's error to the negative gradient of its loss.

    The factor contains the largest weight of a sample, as the errors have relative weights.
    """
    units = task.stages[-1].units
    factor = {"mse": 2 / units, BINARY: 1 / units}.get(task.loss, 1.0)
    return factor * (task.largest_weight or 1.0)


class Loss:
    """A writer of the losses of logits, and of the gradient in training.

    `turns`: number of turns with logits in the buffer, one turn after the other. The gradient is
    written for one turn at a time.
    """

    def __init__(self, writer: Writer, task: Task, turns: int = 1) -> None:
        self._writer = writer
        self._task = task
        self._turns = turns
        layout = writer.layout
        self._groups = turns * layout.groups
        """Number of groups of C samples in all `turns` turns."""
        self._selected = layout.selected_of(self._groups)
        self._rows = self._groups * layout.classes
        """Number of rows of the transposed logits: one for each class of each group of samples. An
        int16 row takes two lines."""
        self._ones = self._class_lines()

    @property
    def _layout(self) -> Layout:
        return self._writer.layout

    def probabilities(self, logits: range) -> range:
        """Write the softmax of the logits, int16 of PROBABILITY_BITS, in the place of the
        logits.
        """
        logs = self._log_softmax(logits)
        self._exponentials(logs.start, logits.start)
        self._writer.free(logs)
        return logits

    def logistic(self, logits: range) -> range:
        """Write the sigmoid of each logit, int16 of PROBABILITY_BITS, in the place of the logit."""
        self._logistic(logits.start, logits.start)
        return logits

    def write(self, logits: range, *, train: bool) -> range:
        """Write the losses; return the negative gradient, int8 lines, [block of units][sample].

        Without `train` there is no gradient, and the result is an empty range.
        """
        writer, gradient = self._writer, range(0)
        error = self.error(logits)
        if train:
            writer.measure(GRADIENT, value=-8)
            self.measure(error)
            self.agree()
            gradient = self.gradient(error)
        writer.free(error)
        return gradient

    def free(self) -> None:
        """Free the lines of the buffer that hold constants."""
        self._writer.free(self._ones)

    def error(self, logits: range) -> range:
        """Write the losses; return the error of the outputs, int16, [group of samples][class]."""
        writer, rows = self._writer, self._rows
        labels, valid = (writer.allocate(2 * rows) for _ in range(2))
        for layout, part in self._parts(labels):
            writer.read(layout.labels, part)
        for layout, part in self._parts(valid):
            writer.read(layout.valid, part)
        if self._task.loss == "mse":
            error, losses = self._squares(logits, labels, valid)
        elif self._task.loss == BINARY:
            error, losses = self._binary(logits, labels, valid)
        else:
            error, losses = self._crossentropy(logits, labels, valid)
        self._sum_classes(losses.start)
        result = writer.allocate(2 * self._groups)
        writer.activate(0, result.start, self._groups, ONE, wide=1)
        for layout, part in self._parts(result):
            writer.write(layout.losses, part)
        writer.free(result, losses, labels, valid)
        return error

    def _parts(self, lines: range) -> Iterator[tuple[Layout, range]]:
        """Yield, for each turn, its layout and its part of `lines`.

        The first turn is the turn that the writer is at.
        """
        count, first = len(lines) // self._turns, self._writer.turn
        for n in range(self._turns):
            layout = self._writer.of_turn(first + n) if self._turns > 1 else self._layout
            yield layout, lines[n * count : (n + 1) * count]

    def _crossentropy(self, logits: range, labels: range, valid: range) -> tuple[range, range]:
        """Write the error label - p, and label times log p of each class.

        Returns the lines of the errors and of the products.
        """
        writer, rows = self._writer, self._rows
        logs = self._log_softmax(logits)
        error = writer.allocate(2 * rows)
        self._exponentials(logs.start, error.start)
        self._missed(labels, error, error, valid)
        entry = shifted(PROBABILITY_BITS - 1)
        writer.vector(Operation.MULTIPLY, labels.start, logs.start, logs.start, rows, entry, WIDE)
        return error, logs

    def _squares(self, outputs: range, targets: range, valid: range) -> tuple[range, range]:
        """Write the error target - output, and the square of the error, divided by the number of
        units.

        Returns the lines of the errors and of the squares.
        """
        writer, rows = self._writer, self._rows
        error, squares = (writer.allocate(2 * rows) for _ in range(2))
        self._missed(targets, outputs, error, valid)
        q, right = multiplier(1 / self._task.stages[-1].units)
        entry = shifted(right + 2 * LOGIT_BITS - LOSS_BITS, multiplier=q)
        writer.vector(
            Operation.MULTIPLY, error.start, error.start, squares.start, rows, entry, WIDE
        )
        return error, squares

    def _binary(self, logits: range, labels: range, valid: range) -> tuple[range, range]:
        """Write the error label - p, and the loss of each unit, divided by the number of units.

        Returns the lines of the errors and of the losses. A loss is max(z, 0) - z * label + log(1 +
        exp(-|z|)), where z is a logit.
        """
        writer, rows, units = self._writer, self._rows, self._task.stages[-1].units
        error, z, power, sums, losses = (writer.allocate(2 * rows) for _ in range(5))
        self._logistic(logits.start, error.start)
        self._missed(labels, error, error, valid)
        writer.copy(logits.start, z.start, rows, Entry(left=2), WIDE)
        self._exponentials(z.start, power.start)
        writer.copy(power.start, sums.start, rows, Entry(bias=1 << PROBABILITY_BITS), WIDE)
        # Newton's method starts on a line that is close to log(1 + x).
        q, right = multiplier(log(2) / 2 ** (PROBABILITY_BITS - LOSS_BITS))
        bias = round(LINE_ABOVE / log(2) * 2**PROBABILITY_BITS)
        writer.copy(power.start, losses.start, rows, shifted(right, multiplier=q, bias=bias), WIDE)
        for at in self._starts():
            s, e, y = (each[at : at + 2 * units] for each in (sums, power, losses))
            self._newton(s, e, y, PROBABILITY_BITS - 1, 0.0, 2)
        # For z above zero, z + LARGEST saturates at LARGEST, the end of int16. So the result is
        # min(z, 0) + LARGEST.
        least = power
        writer.copy(z.start, least.start, rows, Entry(left=1, bias=LARGEST), WIDE)
        self._combine(Operation.SUBTRACT, z, least, least, Entry(left=1, bias=LARGEST))
        self._combine(Operation.ADD, losses, least, losses, ONE)
        entry = shifted(PROBABILITY_BITS - 1)
        writer.vector(Operation.MULTIPLY, z.start, labels.start, z.start, rows, entry, WIDE)
        self._combine(Operation.SUBTRACT, losses, z, losses, ONE)
        q, right = multiplier(1 / units)
        entry = shifted(right, multiplier=q)
        writer.vector(
            Operation.MULTIPLY, losses.start, valid.start, losses.start, rows, entry, WIDE
        )
        writer.free(z, power, sums)
        return error, losses

    def _combine(
        self, operation: Operation, a: range, b: range, result: range, entry: Entry
    ) -> None:
        """Write the sum (ADD) or difference (SUBTRACT) of int16 numbers with equal fraction
        bits.
        """
        writer, rows = self._writer, self._rows
        at = (a.start, b.start, result.start, rows, entry, WIDE)
        writer.vector(operation, *at, scales=(UNIT, UNIT))

    def _logistic(self, source: int, destination: int) -> None:
        """Write the sigmoid of logits, int16 of PROBABILITY_BITS, except for padding."""
        left = 12 - LOGIT_BITS + 1
        units, entry = self._task.stages[-1].units, Entry(left=left)
        for at in self._starts():
            self._writer.copy(source + at, destination + at, units, entry, WIDE, Function.SIGMOID)

    def _starts(self) -> range:
        """Return the offsets of the first lines of all groups of samples among int16 logits."""
        step = 2 * self._layout.classes
        return range(0, step * self._groups, step)

    def _missed(self, wanted: range, found: range, error: range, valid: range) -> None:
        """Write the error `wanted` - `found`, with 0 for padding."""
        self._combine(Operation.SUBTRACT, wanted, found, error, ONE)
        at = (error.start, valid.start, error.start, self._rows, ONE, WIDE)
        self._writer.vector(Operation.MULTIPLY, *at)

    def measure(self, error: range) -> None:
        """Multiply the errors with the weights of the samples, and measure the shift that makes the
        errors int8.

        Exponent register GRADIENT keeps the largest shift of all calls.
        """
        if self._task.largest_weight:
            self._weigh(error)
        at = {"buffer": error.start, "rows": self._rows, "bits": 8}
        self._writer.measure(GRADIENT, Source.LINES, **at, first=GRADIENT)

    def agree(self) -> None:
        """Put the fraction bits of the gradient into register GRADIENT, and the shift into SHIFT.

        The shift is the largest shift of all errors, on all cores.
        """
        writer, bits = self._writer, PROBABILITY_BITS
        if self._task.loss == "mse":
            bits = LOGIT_BITS
        writer.measure(SHIFT, first=GRADIENT)
        agree(writer, self._task, GRADIENT)
        writer.measure(GRADIENT, third=SHIFT, value=bits - 1)

    def gradient(self, error: range) -> range:
        """Write and return the gradient, int8, with samples as lines, [block of units][sample].

        It is the error, shifted to int8 and transposed.
        """
        writer, layout, rows = self._writer, self._layout, self._rows
        size, samples = layout.size, layout.samples
        narrow = writer.allocate(rows)
        writer.copy(error.start, narrow.start, rows, Entry(), NARROWING, exponent=SHIFT)
        blocks = layout.classes // size
        gradient = writer.allocate(blocks * samples)
        for block in range(blocks):
            writer.transpose(
                narrow.start + block * size,
                gradient.start + block * samples,
                layout.groups,
                layout.classes,
            )
        writer.free(narrow)
        return gradient

    def _weigh(self, error: range) -> None:
        """Multiply the errors with the weights of their samples."""
        writer, rows = self._writer, self._rows
        weights = writer.allocate(2 * rows)
        for layout, part in self._parts(weights):
            writer.read(layout.weights, part)
        at = (error.start, weights.start, error.start, rows)
        writer.vector(Operation.MULTIPLY, *at, shifted(WEIGHT_BITS - 1), WIDE)
        writer.free(weights)

    def _log_softmax(self, logits: range) -> range:
        """Write log p of each class, int16 of LOSS_BITS; the logits stay as they are."""
        writer, rows, groups = self._writer, self._rows, self._groups
        difference = self._below_largest(logits)
        exponentials = writer.allocate(2 * rows)
        entry = Entry(left=1, bias=-LARGEST)
        self._exponentials(difference.start, exponentials.start, entry)
        self._sum_classes(exponentials.start)
        writer.free(exponentials)
        bits = 15 - self._task.stages[-1].units.bit_length()
        sums, power = (writer.allocate(2 * groups) for _ in range(2))
        entry = shifted(PROBABILITY_BITS - bits - 1)
        writer.activate(0, sums.start, groups, entry, wide=1)

        logarithm = self._logarithm(sums, power, bits)
        self._spread(logarithm, wide=True)
        spread = writer.allocate(2 * rows)
        writer.activate(0, spread.start, rows, shifted(5), wide=1)
        back = Entry(left=1, bias=round(MARGIN * 2**LOSS_BITS) - LARGEST)
        self._combine(Operation.SUBTRACT, difference, spread, difference, back)
        writer.free(sums, power, logarithm, spread)
        return difference

    def _below_largest(self, logits: range) -> range:
        """Write min(d, 0) + LARGEST, int16 of LOSS_BITS; d is a logit less the largest logit m.

        m is at most 31.75, so d is above zero for logits beyond this. The saturation of int16 makes
        such a d zero, so these logits count as 31.75.
        """
        writer, layout, rows = self._writer, self._layout, self._rows
        narrow = writer.allocate(rows)
        # All logits are rounded up to quarters first. The largest result is the largest logit,
        # rounded up.
        writer.copy(logits.start, narrow.start, rows, shifted(7, bias=127), NARROWING)
        most = writer.allocate(self._selected)
        units = self._task.stages[-1].units
        window = Window((layout.classes, 1), (units, 1), (1, 1), (0, 0), (1, 1))
        largest(writer, narrow.start, most.start, self._groups, window)
        self._spread(most, wide=False)
        difference = writer.allocate(2 * rows)
        writer.activate(0, difference.start, rows, Entry(left=3), wide=1)
        twice = UNIT << LOSS_BITS - LOGIT_BITS
        writer.vector(
            Operation.SUBTRACT,
            *(logits.start, difference.start, difference.start, rows),
            *(Entry(left=1, bias=LARGEST), WIDE),
            scales=(twice, twice),
        )
        writer.free(narrow, most)
        return difference

    def _logarithm(self, sums: range, power: range, bits: int) -> range:
        """Return the int16 lines of Y = log S + MARGIN for each group of samples.

        `sums`: the lines of S, which has `bits` fraction bits.
        """
        writer = self._writer
        most = log(self._task.stages[-1].units) + MARGIN
        start = max(most / 2, most - 1.2)
        lines = np.empty((self._selected, 2, self._layout.size), np.int8)
        code = round(start * 2**LOSS_BITS)
        lines[:, 0], lines[:, 1] = (code & 255) - ((code & 128) << 1), code >> 8
        logarithm = writer.constant(lines.reshape(2 * self._selected, -1))
        steps = 5 + ceil(max(0.0, start - 1.2))
        self._newton(sums, power, logarithm, bits, MARGIN, steps)
        return logarithm

    def _newton(
        self, sums: range, power: range, logarithm: range, bits: int, margin: float, steps: int
    ) -> None:
        """Write `steps` steps of Newton's method, Y += S exp(margin - Y) - 1.

        `sums`: lines of S, int16 of `bits` fraction bits. `logarithm`: lines of Y. `power`: free
        lines.
        """
        writer, rows, factor = self._writer, len(sums) // 2, exp(margin)
        product_bits = bits + PROBABILITY_BITS
        q, right = multiplier(factor)
        entry = Entry(q, right + product_bits - LOSS_BITS, bias=-round(2**product_bits / factor))
        for _ in range(steps):
            self._exponential(logarithm.start, power.start, rows)
            writer.vector(
                Operation.MULTIPLY,
                *(sums.start, power.start, logarithm.start, rows, entry, WIDE),
                accumulate=1,
            )

    def _exponentials(self, source: int, destination: int, entry: Entry = ONE) -> None:
        """Write exp(-|y|) of all numbers that are no padding.

        y is a number of `source` after requantisation by `entry`, int16 of LOSS_BITS. Padding is
        left out to save time, as the gate unit takes some 60 cycles for a vector.
        """
        for at in self._starts():
            units = self._task.stages[-1].units
            self._exponential(source + at, destination + at, units, entry)

    def _exponential(self, source: int, destination: int, rows: int, entry: Entry = ONE) -> None:
        """Write exp(-|y|) of some lines.

        y is a number of `source` after requantisation by `entry`, int16 of LOSS_BITS.
        """
        bits = 15 - LOSS_BITS
        self._writer.copy(source, destination, rows, entry, WIDE, Function.EXP, table=bits)

    def _spread(self, lines: range, *, wide: bool) -> None:
        """Write the line of each group of samples, times _SELECT, into accumulator rows.

        A group has one accumulator row for each class, and all of these rows get the group's line.
        """
        layout = self._layout
        group = np.repeat(np.arange(self._groups), layout.classes)
        select = (group == np.arange(self._selected)[:, None]) * _SELECT
        blocks = select.reshape(-1, layout.size, self._rows).transpose(0, 2, 1)
        vectors = self._writer.constant(blocks.reshape(-1, layout.size).astype(np.int8))
        self._writer.multiply(
            vectors.start, lines.start, 0, self._rows, len(blocks), 1, wide_weights=int(wide)
        )
        self._writer.free(vectors)

    def _class_lines(self) -> range:
        """Return one line for each block of classes: 1 for a class, 0 for padding."""
        layout = self._layout
        there = np.arange(layout.classes) < self._task.stages[-1].units
        return self._writer.constant(there.astype(np.int8).reshape(-1, layout.size))

    def _sum_classes(self, lines: int) -> None:
        """Write the sums of int16 numbers over all classes into the accumulators, from row 0 on.

        There is one row for each group of samples.
        """
        layout = self._layout
        groups, blocks = self._groups, layout.classes // layout.size
        self._writer.multiply(self._ones.start, lines, 0, 1, blocks, groups, wide_weights=1)
