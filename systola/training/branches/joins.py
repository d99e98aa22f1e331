# SPDX-License-Identifier: Apache-2.0
"""Writes Add and Concatenate, both for a batch that is taken at once and for a batch in turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from systola.arch.isa import Function, Operation, Rounding
from systola.training.branches.adding import LEAST
from systola.training.branches.kept import Kept
from systola.training.masks import positive_table
from systola.training.numbers import MOST_INPUT_BITS
from systola.training.passes import Pass, UnitScale, hidden_scale, of_samples
from systola.training.task import INPUTS, SHIFT, SPARE, Exponent, Task
from systola.training.writer import NARROW, NARROWING, ONE, Entry, Writer

MADE = INPUTS + 1
"""Number of the exponent register with the fraction bits of the units that a stage makes."""
_MOST = "most"
"""Key, in the store `Kept`, of the most fraction bits that the units of a Concatenate may have."""


class Added:
    """A writer of an Add, which makes int8 units of int16 sums."""

    def __init__(self, writer: Writer, task: Task, left: Pass, number: int, *, train: bool) -> None:
        """Begin to measure the int16 sums. Exponent register INPUTS has the fraction bits of the
        sums.
        """
        left.inputs[:] = [Exponent(INPUTS, 0)] * (number + 1)
        self.scale = UnitScale(writer, task, left, number, train=train)
        self._writer = writer
        self._stage = task.stages[number]
        self._number = number

    def measure(self, task: Task, total: range) -> None:
        """Measure the largest magnitude of the int16 sums `total`, only in rows of the samples of a
        task.
        """
        layout = self._writer.layout
        shape, there = layout.shapes[self._number], len(task.share(layout.size))
        for rows in of_samples(shape.units, layout.samples * shape.left, there * shape.left):
            self.scale.measure_lines(total.start + 2 * rows.start, len(rows))

    def units(self, total: range, units: range, mask: range | None) -> None:
        """Write the int8 units of the int16 sums `total`. If the Add has a ReLU, the lines `mask`
        get the ReLU's mask.
        """
        writer, relu = self._writer, self._stage.relu
        if relu and mask:
            _passing(writer, total, mask, NARROWING)
        function = Function.RELU if relu else Function.NONE
        entry = Entry(self.scale.multiplier)
        at = (total.start, 0, units.start, len(units), entry, NARROWING)
        away = Rounding.DOUBLE
        writer.vector(Operation.COPY, *at, function=function, rounding=away, exponent=SHIFT)


class SideBySide:
    """A writer of a Concatenate, which puts results side by side. `given`: the results' numbers."""

    def __init__(
        self, writer: Writer, task: Task, kept: Kept, number: int, given: Sequence[int], train: bool
    ) -> None:
        """Put the least fraction bits of all results that are put side by side, negated, into
        exponent register LEAST.
        """
        self._writer = writer
        self._kept = kept
        self._number = number
        stage = self._stage = task.stages[number]
        self._multiplier, self._lost = hidden_scale(stage.rate, train)
        self._known = task.unit_bits[number] if task.unit_bits and not train else None
        keys: list[object] = [*given]
        if any(at and task.stages[at - 1].lstm for at in given):
            # The state of an LSTM may have more fraction bits than the units of a Concatenate can
            # have. So this limit is one of the numbers from which the least is taken.
            writer.measure(SPARE, value=MOST_INPUT_BITS + self._lost - 1)
            kept.keep(_MOST, SPARE)
            keys.append(_MOST)
        kept.negative(keys, LEAST)
        if _MOST in keys:
            kept.free(_MOST)

    def write(self, given: Iterable[tuple[int, range]], units: range, mask: range | None) -> None:
        """Write the units of all results that are put side by side.

        `given`: number and lines of each result. If the Concatenate has a ReLU, the lines `mask`
        get the ReLU's mask.
        """
        writer, relu, first = self._writer, self._stage.relu, 0
        function = Function.RELU if relu else Function.NONE
        for at, lines in given:
            self._kept.negative([at], SHIFT)
            if self._known is None:
                writer.measure(SHIFT, first=LEAST, third=SHIFT, value=-1)
            else:
                writer.measure(SHIFT, third=SHIFT, value=-self._known - self._lost)
            to = units.start + first
            place = (lines.start, 0, to, len(lines), Entry(self._multiplier), NARROW)
            writer.vector(Operation.COPY, *place, function=function, exponent=SHIFT)
            if relu and mask:
                _passing(writer, lines, mask[first : first + len(lines)], NARROW)
            first += len(lines)

    def end(self, left: Pass) -> None:
        """Put the fraction bits of the units of the Concatenate into exponent register MADE."""
        left.inputs[:] = [Exponent(INPUTS, 0)] * (self._number + 1) + [Exponent(MADE, 0)]
        if self._known is None:
            self._writer.measure(MADE, third=LEAST, value=1 - self._lost)
        else:
            self._writer.measure(MADE, value=self._known)


def _passing(writer: Writer, sums: range, mask: range, sizes: tuple[int, int]) -> None:
    """Write the mask of a ReLU, which is 1 for sums above zero, else 0."""
    table = writer.table(positive_table())
    at = (sums.start, mask.start, len(mask), ONE, sizes)
    writer.copy(*at, Function.TABLE, table=table)
