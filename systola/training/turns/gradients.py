# SPDX-License-Identifier: Apache-2.0
"""Adds up the gradients of a result that several stages take, turn by turn.

Each stage that takes a result writes a gradient of this result to host memory. When all these
stages have done so, their gradients are added. The fraction bits of each gradient are kept in the
buffer, see `systola.training.branches.kept`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from systola.arch.isa import Operation, Rounding, Source
from systola.training.branches.adding import LEAST, add_some
from systola.training.branches.joins import MADE
from systola.training.branches.kept import Kept
from systola.training.branches.numbers import alone, sum_left
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.moves import unflattened
from systola.training.passes import PLAIN, gradient_scale, mask_entry
from systola.training.stages import takes
from systola.training.task import GRADIENT, SHIFT, SPARE, Task
from systola.training.turns.maps import TurnedMaps
from systola.training.turns.walk import each_turn, spilled
from systola.training.writer import NARROWING, Entry, Writer


@dataclass(frozen=True)
class _Part:
    """A gradient of a result that waits in host memory to be added."""

    key: object
    """Key of the gradient's fraction bits in the store `Kept`."""
    place: Callable[[Layout], int]
    rows: bool
    """Whether the gradient is stored as rows, not as maps."""


class Gradients:
    """A store of the gradients of the results of all stages, until they are added."""

    def __init__(self, writer: Writer, task: Task, kept: Kept | None, maps: TurnedMaps) -> None:
        self._writer = writer
        self._task = task
        self._kept = kept
        self._maps = maps
        self._parts: dict[int, list[_Part]] = {}

    def alone(self, number: int) -> bool:
        """Return whether no stage but this stage takes its inputs.

        If so, the gradient of the inputs is multiplied by the mask of the stage before at once.
        Otherwise the gradients of the other stages are added first.
        """
        return alone(self._task.stages, takes(self._task.stages, number)[0])

    def scale(self, number: int) -> tuple[int, int]:
        """Return the scale for the gradient of a stage's inputs, see `passes.gradient_scale`."""
        stages = self._task.stages
        source = stages[takes(stages, number)[0] - 1]
        return gradient_scale(source) if self.alone(number) else PLAIN

    def place(self, number: int) -> Callable[[Layout], int]:
        """Return a function that gives the place in host memory of the gradient of a stage's
        inputs.

        The function takes the layout of a turn (part of the batch).
        """
        at = takes(self._task.stages, number)[0]
        if self.alone(number):
            return lambda layout: spilled(layout).gradients[at - 1]
        return lambda layout: spilled(layout).below[number]

    def add(self, number: int) -> None:
        """Record that the gradient of a stage's inputs is in host memory, and keep its fraction
        bits, which are in exponent register GRADIENT.
        """
        if self._kept:
            at, rows = takes(self._task.stages, number)[0], not self._task.stages[number].window
            self._add(at, _Part((number, at), self.place(number), rows))

    def split(self, number: int) -> None:
        """Record the gradient of an Add or Concatenate as a gradient of each result that was
        joined.
        """
        stages = self._task.stages
        stage, first = stages[number], 0
        for part, at in enumerate(stage.sources):
            lines = first
            if stage.join == "concatenate":
                first += self._writer.layout.result_lines(stages, at)
            if at:

                def place(layout: Layout, lines: int = lines) -> int:
                    return spilled(layout).gradients[number] + lines * layout.pitch

                self._add(at, _Part((number, part), place, not stage.maps))

    def _add(self, at: int, part: _Part) -> None:
        assert self._kept
        self._kept.keep(part.key, GRADIENT)
        self._parts.setdefault(at, []).append(part)

    def gather(self, number: int) -> None:
        """Write the gradient of a stage's sums to host memory; register GRADIENT gets its fraction
        bits.

        This gradient is made of all gradients of the stage's result. If a single stage takes the
        result, that stage has written the gradient already.
        """
        if not self._kept:
            return
        parts = self._parts.pop(number + 1)
        if alone(self._task.stages, number + 1):
            self._kept.bring(parts[0].key, GRADIENT)
        else:
            self._sum_up(number, parts)
        for part in parts:
            self._kept.free(part.key)

    def _sum_up(self, number: int, parts: list[_Part]) -> None:
        """Add up the gradients of a stage's result, and write the gradient of the sums for all
        turns.

        If a join takes the result, there may be a single gradient, which goes the same way.
        """
        writer, task, kept = self._writer, self._task, self._kept
        assert kept
        q, lost = gradient_scale(task.stages[number])
        kept.negative([part.key for part in parts], LEAST)
        writer.measure(GRADIENT, third=LEAST, value=sum_left(len(parts)))
        writer.measure(SHIFT, value=-8)
        for _ in each_turn(writer, task):
            total = self._sum(number, parts)
            at = {"buffer": total.start, "rows": len(total) // 2, "bits": 8}
            writer.measure(SHIFT, Source.LINES, **at, first=SHIFT)
            writer.free(total)
        agree(writer, task, MADE)
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=-lost)
        for _ in each_turn(writer, task):
            total = self._sum(number, parts)
            gradient = writer.allocate(len(total) // 2)
            at = (total.start, 0, gradient.start, len(gradient), Entry(q), NARROWING)
            writer.vector(Operation.COPY, *at, rounding=Rounding.DOUBLE, exponent=SHIFT)
            writer.free(total)
            self._through(number, gradient)

    def _sum(self, number: int, parts: list[_Part]) -> range:
        writer, kept = self._writer, self._kept
        assert kept
        total = writer.allocate(2 * writer.layout.result_lines(self._task.stages, number + 1))
        brought = self._brought(number, parts)
        add_some(writer, kept, brought, len(parts), total, SPARE)
        return total

    def _brought(self, number: int, parts: list[_Part]) -> Iterator[tuple[object, range]]:
        """Read each gradient of a result for the present turn: yield its key and its lines.

        Gradients of maps that are stored as rows are yielded as maps.
        """
        writer, stages = self._writer, self._task.stages
        shape = writer.layout.shapes[number]
        count = writer.layout.result_lines(stages, number + 1)
        for part in parts:
            lines = writer.allocate(count)
            writer.read(part.place(writer.layout), lines)
            if part.rows and shape.left > 1:
                rows, lines = lines, writer.allocate(count)
                unflattened(writer, rows.start, lines, shape.units, shape.left)
                writer.free(rows)
            yield part.key, lines
            writer.free(lines)

    def _through(self, number: int, gradient: range) -> None:
        """Write the gradient of a stage's sums for a turn to host memory, from the gradient of its
        units.
        """
        writer, stage = self._writer, self._task.stages[number]
        if stage.maps:
            self._maps.through(number, gradient)
            return
        places = spilled(writer.layout)
        if stage.masked:
            mask = writer.allocate(len(gradient))
            writer.read(places.masks[number], mask)
            entry = mask_entry(stage)
            writer.times(gradient.start, mask.start, len(gradient), entry=entry)
            writer.free(mask)
        writer.write(places.gradients[number], gradient)
        writer.free(gradient)
