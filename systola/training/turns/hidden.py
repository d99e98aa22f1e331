# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of a Dense that is not the last stage, for all turns (parts) of a
batch.
"""

from __future__ import annotations

from systola.arch.isa import Function
from systola.training.branches.numbers import dense_of
from systola.training.curved import curved, drop_both, scale_up
from systola.training.layout import Layout
from systola.training.masks import positive_table
from systola.training.moves import ones
from systola.training.passes import Pass, UnitScale, drop
from systola.training.stages import takes_state
from systola.training.task import SHIFT, Task
from systola.training.turns.products import Products
from systola.training.turns.sums import Accumulated, Sums
from systola.training.turns.tiles import Columns
from systola.training.turns.walk import each_turn, inputs, result, spilled
from systola.training.writer import ONE, Entry, Writer


class Hidden:
    """A writer of the forward pass of a Dense. Masks and units go to host memory, the units with
    ones for the next stage's bias.
    """

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train

    def write(self, number: int) -> None:
        """Write the forward pass of a Dense stage for all turns of the batch."""
        writer, task, stage = self._writer, self._task, self._task.stages[number]
        shape, samples = writer.layout.shapes[number], writer.layout.samples
        scale = UnitScale(writer, task, self._left, number, train=self._train)

        def given(layout: Layout) -> int:
            return inputs(layout, number)

        sizes, wide = (shape.inputs, shape.units), takes_state(task.stages, number)
        products = Products(writer, task, given, sizes, Columns(writer, number), wide_bias=wide)
        self._masked = self._train and not stage.curve and bool(stage.relu or stage.rate)
        self._rooms = [[writer.allocate(samples) for _ in range(3)] for _ in range(2)]

        def measure(of_turn: Task, block: int, sums: Accumulated) -> range:
            scale.measure(sums.row, len(of_turn.share(writer.layout.size)))
            return self._mask(number, of_turn, block, sums) if self._masked else range(0)

        if scale.known:
            scale.end()
            found = products.once()
        else:
            dropped = self._masked and bool(stage.rate)
            found = products.twice(measure, scale.end, masked=dropped)
        for of_turn, block, sums in found:
            if stage.curve:
                self._curved(number, of_turn, block, sums, scale.multiplier)
            else:
                self._units(number, block, sums, scale.multiplier)
        products.free()
        writer.free(*(lines for room in self._rooms for lines in room))
        self._ones(number)

    def _mask(self, number: int, task: Task, block: int, sums: Accumulated) -> range:
        """Write the mask of a block of units to host memory; return the mask's lines in the buffer.

        The mask is 1 for units that pass the ReLU and the dropout, else 0.
        """
        writer, stage = self._writer, self._task.stages[number]
        _, mask, random = self._rooms[block % 2]
        if stage.relu:
            table = writer.table(positive_table())
            sums.to(mask.start, ONE, function=Function.TABLE, table=table)
        if stage.rate:
            drop(writer, task, number, block, (mask.start, random.start), len(mask))
        writer.write(self._mask_place(number, block), mask)
        return mask

    def _mask_place(self, number: int, block: int) -> int:
        layout = self._writer.layout
        return spilled(layout).masks[number] + block * layout.samples * layout.pitch

    def _units(self, number: int, block: int, sums: Sums, multiplier: int) -> None:
        """Write a block of units of the present turn of the batch to host memory."""
        writer, layout, stage = self._writer, self._writer.layout, self._task.stages[number]
        units, mask, _ = self._rooms[block % 2]
        dropped = self._masked and stage.rate and not sums.masked
        if dropped:
            writer.read(self._mask_place(number, block), mask)
        function = Function.RELU if stage.relu else Function.NONE
        sums.to(units.start, Entry(multiplier), function=function, exponent=SHIFT)
        if dropped:
            writer.times(units.start, mask.start, len(mask))
        place = result(layout, number + 1) + block * layout.samples * layout.pitch
        writer.write(place, units)

    def _curved(self, number: int, task: Task, block: int, sums: Sums, multiplier: int) -> None:
        """Write a block of units to host memory, for an activation that is a curve, such as tanh.

        In training, the slopes of the curve are written as a mask.
        """
        writer, layout, stage = self._writer, self._writer.layout, self._task.stages[number]
        units, slopes, _ = self._rooms[block % 2]
        blocks, mask = range(block, block + 1), slopes if self._train else None
        sums.to(units.start, Entry(multiplier), exponent=SHIFT)
        curved(writer, task, number, blocks, units, mask)
        if mask and stage.rate:
            scale_up(writer, stage, units)
            drop_both(writer, task, number, blocks, units, mask)
        if mask:
            writer.write(self._mask_place(number, block), mask)
        place = result(layout, number + 1) + block * layout.samples * layout.pitch
        writer.write(place, units)

    def _ones(self, number: int) -> None:
        """Write lines of ones, for the next bias, after the units of each turn, if a single Dense
        takes the units.
        """
        writer, samples = self._writer, self._writer.layout.samples
        dense = dense_of(self._task.stages, number + 1)
        if dense is None:
            return
        lines = writer.allocate(samples)
        zero = not self._task.stages[dense].use_bias
        ones(writer, lines, self._left.inputs[-1], zero=zero)
        for _ in each_turn(writer, self._task):
            layout = writer.layout
            block = layout.shapes[number].units
            writer.write(result(layout, number + 1) + block * samples * layout.pitch, lines)
        writer.free(lines)
