# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of a program, from samples to logits.

A stage is a layer with weights, or an Add or Concatenate, and the layers from it to the next stage.

In training the forward pass also leaves the numbers that the backward pass needs, see
`passes.Pass`.
"""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import Function
from systola.training.curved import curved, drop_both, scale_up
from systola.training.layout import Layout
from systola.training.maps import Maps
from systola.training.masks import positive_table
from systola.training.moves import flattened, ones, turned_ones
from systola.training.numbers import LOGIT_BITS
from systola.training.passes import (
    Pass,
    UnitScale,
    accumulated,
    drop,
    portions,
    sum_bits,
)
from systola.training.recurrent import Recurrent
from systola.training.stages import Stage, takes_state
from systola.training.task import SHIFT, Exponent, Task
from systola.training.weights import Columns, all_turned
from systola.training.writer import ONE, Entry, Writer


class Forward:
    """A writer of the forward pass, from samples to logits."""

    def __init__(self, writer: Writer, task: Task, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._train = train
        self.left = Pass()
        self._maps = Maps(writer, task, self.left, train=train)
        self._recurrent = Recurrent(writer, task, self.left, train=train)

    @property
    def _following(self) -> Stage:
        """The stage that takes the units written last."""
        return self._task.stages[len(self.left.inputs) - 1]

    @property
    def _layout(self) -> Layout:
        return self._writer.layout

    def write(self) -> range:
        """Write the forward pass; return the logits as int16 lines, [group of samples][class]."""
        writer, task, layout = self._writer, self._task, self._layout
        first = layout.shapes[0].given if task.stages[0].lstm is None else 0
        x = writer.allocate(layout.samples * first)
        self.left.inputs.append(Exponent(0, task.input_bits))
        last = len(task.stages) - 1
        if not last or task.stages[0].window:
            writer.read(layout.x, x)
        for number in range(last):
            if task.stages[number].lstm:
                following = self._recurrent.write(number, x)
            elif task.stages[number].window:
                following = self._maps.write(number, x)
                if not task.stages[number + 1].window:
                    following = self._flat(number, following)
            else:
                following = self._hidden(number, x)
            if not (self._train and task.stages[number].window):
                writer.free(x)
            x = following
        for _ in self._transpose(last, x):
            pass
        writer.free(x)
        return self._logits(last)

    def _flat(self, number: int, units: range) -> range:
        """Write the maps of a stage as rows for the next stage, followed by the input for its bias.

        The rows are lines [pixel][block of channels][sample]. The lines of the maps are freed.
        """
        writer, shape = self._writer, self._layout.shapes[number]
        flat = writer.allocate(self._layout.samples * self._layout.shapes[number + 1].inputs)
        flattened(writer, units, flat.start, shape.units, shape.left)
        self._one(flat)
        writer.free(units)
        return flat

    def _one(self, units: range) -> None:
        lines, zero = units[-self._layout.samples :], not self._following.use_bias
        ones(self._writer, lines, self.left.inputs[-1], zero=zero)

    def _hidden(self, number: int, x: range) -> range:
        """Write a Dense that is not the last stage; return its units, int8, [block][sample].

        The last block of the result is the input for the bias of the next stage.
        """
        writer, layout, stage = self._writer, self._layout, self._task.stages[number]
        samples, shape = layout.samples, layout.shapes[number]
        there = len(self._task.share(layout.size))
        parts = accumulated(writer.config, samples, shape.units)
        units = writer.allocate((shape.units + 1) * samples)
        mask = None
        if self._train and stage.masked:
            mask = writer.allocate(shape.units * samples)
        self.left.masks.append(mask)
        self.left.routes.append([])
        masking = mask if not stage.curve else None
        columns = Columns(writer, number)
        scale = UnitScale(writer, self._task, self.left, number, train=self._train)
        # The activation unit has time to transpose the inputs for the update while the array
        # multiplies.
        turning = self._transpose(number, x) if self._train else iter(())
        for part in parts:
            for block, row in self._multiply(number, x, part, columns):
                scale.measure(row, there)
                if masking and len(parts) == 1:
                    self._mask(number, masking.start, units.start, row, block)
                next(turning, None)
        for _ in turning:
            pass
        scale.end()
        for part in parts:
            if len(parts) > 1:
                for block, row in self._multiply(number, x, part, columns):
                    if masking:
                        self._mask(number, masking.start, units.start, row, block)
            rows, first = len(part) * samples, part.start * samples
            function = Function.RELU if stage.relu else Function.NONE
            at, entry = units.start + first, Entry(scale.multiplier)
            writer.activate(0, at, rows, entry, function=function, exponent=SHIFT)
            if masking and stage.rate:
                writer.times(at, masking.start + first, rows)
        columns.free()
        if stage.curve:
            curved(writer, self._task, number, range(shape.units), units[:-samples], mask)
            if mask and stage.rate:
                scale_up(writer, stage, units[:-samples])
                drop_both(writer, self._task, number, range(shape.units), units[:-samples], mask)
        self._one(units)
        return units

    def _mask(self, number: int, masks: int, scratch: int, row: int, block: int) -> None:
        """Write the mask of a block: 1 for units that pass the ReLU and the dropout, else 0.

        `masks`: first line of the masks of all blocks. `scratch`: first line of a region of the
        same size, which is free until units are written there.
        """
        writer, stage, rows = self._writer, self._task.stages[number], self._layout.samples
        mask, random = masks + block * rows, scratch + block * rows
        if stage.relu:
            table = writer.table(positive_table())
            writer.activate(row, mask, rows, ONE, function=Function.TABLE, table=table)
        if stage.rate:
            drop(writer, self._task, number, block, (mask, random), rows)

    def _multiply(
        self, number: int, x: range, part: range, columns: Columns
    ) -> Iterator[tuple[int, int]]:
        """Write the sums of some blocks of units, from accumulator row 0 on; yield the number of
        each block and its first row.

        The sums of a block are complete when the caller gets the block. By then the product of the
        next block, if there is one, is written, too. So the array multiplies while the caller's
        instructions run. The weights of one more block are read after the yield.
        """
        writer, layout = self._writer, self._layout
        samples, start = layout.samples, part.start
        columns.read(start)
        if not number and not start:
            writer.read(layout.x, x)
        for block in part:
            row = (block - start) * samples
            self._product(number, x, columns[block], row)
            if block > start:
                yield block - 1, row - samples
            if block + 1 in part:
                columns.read(block + 1)
        yield part[-1], (len(part) - 1) * samples

    def _product(self, number: int, x: range, weights: int, row: int) -> None:
        """Write the sums of a block of units into the accumulators, from row `row` on."""
        writer, layout = self._writer, self._layout
        samples, shape = layout.samples, layout.shapes[number]
        if not takes_state(self._task.stages, number):
            writer.multiply(x.start, weights, row, samples, shape.inputs, 1)
            return
        blocks, how = shape.inputs - 1, {"accumulate": 1, "wide_vectors": 1}
        writer.multiply(x.start, weights, row, samples, blocks, 1)
        one = x.start + blocks * samples
        writer.multiply(one, weights + shape.bias, row, samples, 1, 1, **how)

    def _transpose(self, number: int, x: range) -> Iterator[None]:
        """Transpose the inputs of a Dense for its update, portion by portion as the update takes
        them.

        The iterator writes one instruction before each yield. An int16 input for the bias takes
        several instructions before one yield.
        """
        writer, layout = self._writer, self._layout
        size, samples = layout.size, layout.samples
        parts = portions(writer.config, self._task, layout.shapes[number], number)
        lines = sum(part.count << part.wide for part in parts) * samples
        result = writer.allocate(lines)
        self.left.transposed.append(result)
        at = result.start
        for part in parts:
            if part.wide:
                zero = not self._task.stages[number].use_bias
                lines, inputs = result[-2 * samples :], self.left.inputs[number]
                turned_ones(writer, lines, inputs, wide=True, zero=zero)
                yield
                continue
            for group in range(layout.groups):
                line = x.start + part.first * samples + group * size
                writer.transpose(line, at, part.count, samples)
                at += part.count * size
                yield

    def _logits(self, last: int) -> range:
        """Write the last stage; return the transposed logits, int16 lines, [group of
        samples][class].

        For a transposed product the weights of the stage serve as vectors, and the samples as
        weights.
        """
        writer, layout, shape = self._writer, self._layout, self._layout.shapes[last]
        size, classes, groups = layout.size, layout.classes, layout.groups
        self.left.weights = all_turned(writer, last)
        at = self.left.transposed[-1].start
        for part in portions(writer.config, self._task, shape, last):
            vectors = self.left.weights.start + part.first * classes
            how = {"accumulate": int(part.first > 0), "wide_weights": int(part.wide)}
            writer.multiply(vectors, at, 0, classes, part.count, groups, **how)
            at += part.count * size * groups
        sums = sum_bits(self._task, self.left, last)
        logits = writer.allocate(2 * groups * classes)
        writer.measure(SHIFT, first=sums.register, value=sums.value - LOGIT_BITS - 1)
        writer.activate(0, logits.start, groups * classes, Entry(), wide=1, exponent=SHIFT)
        return logits
