# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of an Add or a Concatenate for all turns (parts) of a batch.

The results that are joined come from host memory one after the other. The sums of an Add are
written twice: first they are measured, then units are made of them. A Concatenate is written once,
as its fraction bits follow from the fraction bits of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from systola.training.branches.adding import LEAST, add_some
from systola.training.branches.joins import Added, SideBySide
from systola.training.branches.kept import Kept
from systola.training.branches.numbers import sum_left
from systola.training.maps import Maps
from systola.training.passes import Pass
from systola.training.task import INPUTS, SPARE, Task
from systola.training.turns.results import bring, leave
from systola.training.turns.walk import each_turn, spilled
from systola.training.writer import Writer


class TurnedJoins:
    """A writer of the forward pass of joins, Add and Concatenate."""

    def __init__(self, writer: Writer, task: Task, left: Pass, kept: Kept, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._kept = kept
        self._train = train

    def write(self, number: int) -> None:
        """Write an Add or Concatenate for all turns; its units and mask go to host memory."""
        if self._task.stages[number].join == "add":
            self._add(number)
        else:
            self._side_by_side(number)

    def _add(self, number: int) -> None:
        writer, task, kept = self._writer, self._task, self._kept
        sources = task.stages[number].sources
        kept.negative(sources, LEAST)
        writer.measure(INPUTS, third=LEAST, value=sum_left(len(sources)))
        added = Added(writer, task, self._left, number, train=self._train)
        for of_turn in () if added.scale.known else each_turn(writer, task):
            total = self._sum(number)
            added.measure(of_turn, total)
            writer.free(total)
        added.scale.end()
        for of_turn in each_turn(writer, task):
            total = self._sum(number)
            units, mask = self._room(number)
            added.units(total, units, mask)
            writer.free(total)
            self._leave(number, of_turn, units, mask)

    def _sum(self, number: int) -> range:
        """Return the int16 sum of the results that an Add takes, for the present turn."""
        total = self._writer.allocate(2 * self._rows(number))
        count = len(self._task.stages[number].sources)
        add_some(self._writer, self._kept, self._parts(number), count, total, SPARE)
        return total

    def _side_by_side(self, number: int) -> None:
        writer, task = self._writer, self._task
        about = writer, task, self._kept, number, task.stages[number].sources
        both = SideBySide(*about, train=self._train)
        both.end(self._left)
        for of_turn in each_turn(writer, task):
            units, mask = self._room(number)
            both.write(self._parts(number), units, mask)
            self._leave(number, of_turn, units, mask)

    def _rows(self, number: int) -> int:
        return self._writer.layout.result_lines(self._task.stages, number + 1)

    def _parts(self, number: int) -> Iterator[tuple[int, range]]:
        """Read each result that a join takes: yield the number of the result, and its lines."""
        stage = self._task.stages[number]
        for at in stage.sources:
            lines = bring(self._writer, self._task, at, rows=not stage.maps)
            yield at, lines
            self._writer.free(lines)

    def _room(self, number: int) -> tuple[range, range | None]:
        """Return buffer lines for the units of a join, and for its ReLU's mask (None for none)."""
        rows, relu = self._rows(number), self._task.stages[number].relu
        mask = self._writer.allocate(rows) if self._train and relu else None
        return self._writer.allocate(rows), mask

    def _leave(self, number: int, task: Task, units: range, mask: range | None) -> None:
        writer = self._writer
        if self._train and task.stages[number].rate:
            maps = Maps(writer, task, self._left, train=True)
            mask = maps.dropped(number, units, mask)
        if mask:
            writer.write(spilled(writer.layout).masks[number], mask)
            writer.free(mask)
        leave(writer, task, number, units, self._left.inputs[-1])
