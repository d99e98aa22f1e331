# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of a network with branches, stage by stage.

Each stage takes one or several results of earlier stages.
"""

from __future__ import annotations

from systola.training.branches.adding import add_all
from systola.training.branches.joins import MADE, Added, SideBySide
from systola.training.branches.kept import Kept
from systola.training.branches.normalizing import Normalizing
from systola.training.branches.numbers import width_of
from systola.training.forward import Forward
from systola.training.moves import flattened, ones
from systola.training.stages import takes, takes_state
from systola.training.task import INPUTS, STATE, Exponent, Task
from systola.training.writer import Writer

STATES = "states"
"""Key, in the store `Kept`, of the fraction bits that the states of the last LSTM have in all
steps."""


class BranchedForward(Forward):
    """A writer of the forward pass of a network with branches.

    Exponent register INPUTS has the fraction bits of the result that the present stage takes.
    """

    def __init__(self, writer: Writer, task: Task, *, train: bool) -> None:
        super().__init__(writer, task, train=train)
        self.kept = Kept(writer)
        """Store of the fraction bits of all results; the keys are the numbers of the results."""
        self._results: dict[int, range] = {}
        self._left_to_do = [
            at for number in range(len(task.stages)) for at in takes(task.stages, number)
        ]
        """Numbers of results that stages still have to take. A number is listed once for each stage
        that takes the result."""
        self.maps: dict[int, range] = {}
        """Lines of results that Conv2D stages take again in the backward pass, by number of the
        result."""
        self.normalizing: dict[int, Normalizing] = {}
        """Writers of the stages that normalise, by number of the stage."""

    def write(self) -> range:
        """Write the forward pass; return the logits, int16 lines, [group of samples][class]."""
        writer, task, layout = self._writer, self._task, self._layout
        words = task.stages[0].lstm is not None
        x = writer.allocate(0 if words else layout.samples * layout.shapes[0].given)
        if x:
            writer.read(layout.x, x)
        writer.measure(INPUTS, value=task.input_bits)
        self._note(0, x, INPUTS)
        last = len(task.stages) - 1
        for number in range(last):
            stage = task.stages[number]
            if stage.normalized:
                self._normalize(number)
                continue
            if stage.join:
                self._note(number + 1, self._join(number), MADE)
                continue
            (at,) = takes(task.stages, number)
            self._begin(number, at)
            if stage.lstm:
                self._lstm(number, at, sequences=stage.lstm.sequences)
                continue
            if stage.window:
                lines = self._maps.write(number, self._results[at])
                if self._train:
                    self.maps[at] = self._results[at]
                self._note(number + 1, lines, MADE)
                self._taken(at)
                continue
            given = self._rows(number, at)
            self._note(number + 1, self._hidden(number, given), MADE)
            self._used(at, given)
        (at,) = takes(task.stages, last)
        self._begin(last, at)
        given = self._rows(last, at)
        for _ in self._transpose(last, given):
            pass
        self._used(at, given)
        return self._logits(last)

    def _note(self, at: int, lines: range, register: int) -> None:
        """Keep the lines of a result, and its fraction bits from an exponent register."""
        self._results[at] = lines
        self.kept.keep(at, register)

    def _begin(self, number: int, at: int) -> None:
        """Put the fraction bits of the result that a stage takes into exponent register INPUTS."""
        self.kept.bring(at, INPUTS)
        self.left.inputs[:] = [Exponent(INPUTS, 0)] * (number + 1)

    def _rows(self, number: int, at: int) -> range:
        """Return a result as the rows that a Dense takes, with lines of ones for the bias."""
        given = self._as_row(at, extra=self._layout.samples)
        zero, wide = not self._task.stages[number].use_bias, takes_state(self._task.stages, number)
        lines = given[-(self._layout.samples << wide) :]
        ones(self._writer, lines, self.left.inputs[-1], wide=wide, zero=zero)
        return given

    def _normalize(self, number: int) -> None:
        """Write a stage that normalises a batch, and keep its result for later stages."""
        (at,), left = self._task.stages[number].sources, self.left
        stage = Normalizing(self._writer, self._task, number, self.kept)
        self._begin(number, at)
        if self._train:
            self.normalizing[number] = stage
            lines = stage.forward(self._results[at], at, left)
        else:
            lines = stage.at_rest(self._results[at], left, train=False)
        left.masks.append(None)
        left.routes.append([])
        left.transposed.append(range(0))
        self._note(number + 1, lines, MADE)
        self._taken(at)

    def _lstm(self, number: int, at: int, *, sequences: bool) -> None:
        """Write an LSTM stage, with inputs and the states of all steps in host memory."""
        lines = self._recurrent.write(number, range(0))
        if self._train and not sequences:
            self.kept.keep(STATES, STATE)
        self._note(number + 1, lines, MADE)
        self._taken(at)

    def _as_row(self, at: int, *, extra: int) -> range:
        """Return the lines of a result in the form that a Dense takes, with a row for each sample.

        Maps are copied into this form, with `extra` free lines after the copy. Any other result
        already has this form.
        """
        source = self._task.stages[at - 1] if at else None
        if source is None or not source.maps:
            return self._results[at]
        layout, shape = self._layout, self._layout.shapes[at - 1]
        flat = self._writer.allocate(len(self._results[at]) + extra)
        flattened(self._writer, self._results[at], flat.start, shape.units, shape.left)
        assert len(flat) == layout.samples * shape.units * shape.left + extra
        return flat

    def _used(self, at: int, given: range) -> None:
        """Note that a stage has taken result number `at`. If the stage took a copy, in the lines
        `given`, free the copy.
        """
        if given != self._results[at]:
            self._writer.free(given)
        self._taken(at)

    def _taken(self, at: int) -> None:
        """Note that a stage has taken a result; after the last such stage free its lines."""
        self._left_to_do.remove(at)
        if at not in self._left_to_do and at not in self.maps:
            self._writer.free(self._results.pop(at))

    # The methods below write joins: Add and Concatenate.

    def _join(self, number: int) -> range:
        """Write an Add or Concatenate; return the lines of the units.

        If the units are rows and not maps, room for a bias's lines of ones comes after the units.
        """
        writer, layout, stage = self._writer, self._layout, self._task.stages[number]
        shape = layout.shapes[number]
        rows = shape.units * layout.samples * shape.left
        given = [(at, self._part(at, maps=stage.maps)) for at in stage.sources]
        room = writer.allocate(rows + (0 if stage.maps else layout.samples))
        units, mask = room[:rows], None
        if self._train and (stage.relu or stage.rate):
            mask = writer.allocate(rows)
        if stage.join == "add":
            self._add(number, given, units, mask)
        else:
            self._side_by_side(number, given, units, mask)
        for at, lines in given:
            source = self._results[at]
            if lines.start != source.start:
                writer.free(lines)
        for at in stage.sources:
            self._taken(at)
        if mask and stage.rate:
            if not stage.relu:
                writer.free(mask)
                mask = None
            mask = self._maps.dropped(number, units, mask)
        self.left.masks.append(mask)
        self.left.routes.append([])
        self.left.transposed.append(range(0))
        return room

    def _part(self, at: int, *, maps: bool) -> range:
        """Return the lines of a result as an input of an Add or Concatenate.

        The input is maps if `maps`, else rows without the lines of ones for a bias.
        """
        lines = self._results[at] if maps else self._as_row(at, extra=0)
        width = -(-width_of(self._task.stages, at, flat=False) // self._layout.size)
        source = self._task.stages[at - 1] if at else None
        if not maps and (source is None or not source.maps):
            own = source is not None and not source.lstm
            blocks = self._layout.shapes[at - 1].units if own else width
            return lines[: blocks * self._layout.samples]
        return lines

    def _add(
        self, number: int, given: list[tuple[int, range]], units: range, mask: range | None
    ) -> None:
        writer, task = self._writer, self._task
        total = add_all(writer, self.kept, given, INPUTS)
        added = Added(writer, task, self.left, number, train=self._train)
        added.measure(task, total)
        added.scale.end()
        added.units(total, units, mask)
        writer.free(total)

    def _side_by_side(
        self, number: int, given: list[tuple[int, range]], units: range, mask: range | None
    ) -> None:
        numbers = [at for at, _ in given]
        about = self._writer, self._task, self.kept, number, numbers
        both = SideBySide(*about, train=self._train)
        both.write(given, units, mask)
        both.end(self.left)
