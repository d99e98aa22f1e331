# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of a program: the gradients of the units, stage by stage, and the
updates of the weights.

All gradients are negated here. An update adds sums times learning rate to the masters, and the
machine's multiplier for the rate has no sign. docs/training.md#numerics explains the numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from systola.arch.isa import Source
from systola.training.exchange import agree
from systola.training.gru_backward import recurrent_backward
from systola.training.layout import Layout
from systola.training.loads import InBuffer
from systola.training.maps_backward import BelowMaps, MapsBackward, update_maps
from systola.training.moves import unflattened
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import (
    Pass,
    Portion,
    accumulated,
    gradient_scale,
    mask_entry,
    portions,
)
from systola.training.task import GRADIENT, SHIFT, Task
from systola.training.update import Masters, begin_telling, cut, rooms, tell, update_shift
from systola.training.weights import Turned
from systola.training.writer import AnyEntry, Entry, Writer


class Backward:
    """A writer of the backward pass, from the gradient of the last stage to the updates of all
    masters (int16 weights).
    """

    def __init__(self, writer: Writer, task: Task, left: Pass) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._maps = MapsBackward(writer, task)

    @property
    def _layout(self) -> Layout:
        return self._writer.layout

    def write(self, gradient: range) -> None:
        """Write the backward pass, from the gradient of the last stage's sums.

        `gradient`: int8 lines, [block of units][sample]. The method gives these lines back to the
        buffer.
        """
        writer, left, stages = self._writer, self._left, self._task.stages
        masking: Iterator[None] = iter(())
        for number in reversed(range(len(stages))):
            # The gradient of the inputs needs the weights before their update, so it is written
            # before the update. Writing it changes exponent register GRADIENT. So the shift of the
            # update, which depends on this register, is computed first.
            bits, inputs = self._task.master_bits[number], left.inputs[number]
            entry = update_shift(writer, self._task, number, bits, inputs)
            below, below_masking = range(0), masking
            if number and not stages[number].lstm:
                scale = gradient_scale(stages[number - 1])
                below = self._below(number, gradient, source=number - 1, scale=scale)
                below_masking = iter(())
                if stages[number - 1].window:
                    below = self._through_maps(number - 1, below)
                else:
                    below_masking = self._mask(number - 1, below)
                    next(below_masking, None)
            if number > 1:
                deque(below_masking, maxlen=0)
            if stages[number].lstm:
                deque(masking, maxlen=0)
                recurrent_backward(writer, self._task, number).write(gradient)
                gradient = range(0)
            else:
                begin_telling(writer, self._task, number)
                if stages[number].window:
                    self._update_maps(number, gradient, entry)
                else:
                    self._update(number, gradient, entry, masking)
                tell(writer, self._task, number)
            writer.free(gradient, left.transposed[number])
            gradient, masking = below, below_masking

    def _through_maps(self, number: int, gradient: range) -> range:
        """Return the gradient of a Conv2D's sums, from the gradient of the units that the next
        stage takes.
        """
        left = self._left
        return self._maps.through(number, gradient, left.masks[number], left.routes[number])

    def _update_maps(self, number: int, gradient: range, entry: AnyEntry) -> None:
        """Update the masters (int16 weights) of a Conv2D by the samples of the whole batch."""
        left = self._left
        maps = InBuffer(left.transposed[number], gradient, self._layout.shapes[number].channels)
        about = self._writer, self._task, number, left.inputs[number], entry
        update_maps(*about, maps)

    def _mask(self, number: int, gradient: range) -> Iterator[None]:
        """Multiply the gradient of a stage with the stage's mask.

        Each step of the iterator writes the product of one block of units. After the last block the
        lines of the mask are given back to the buffer.
        """
        mask, samples = self._left.masks[number], self._layout.samples
        entry = mask_entry(self._task.stages[number])
        for at in range(0, len(gradient) if mask else 0, samples):
            assert mask
            self._writer.times(gradient.start + at, mask.start + at, samples, entry=entry)
            yield
        self._writer.free(mask or range(0))

    def _below(self, number: int, gradient: range, *, source: int, scale: tuple[int, int]) -> range:
        """Write the gradient of the units of stage `source`, and return its int8 lines.

        Stage `number` takes these units as inputs. `gradient`: the gradient of the sums of stage
        `number`. `scale`: multiplier and lost bits of `passes.gradient_scale`. The mask of stage
        `source` is not applied yet. Exponent register GRADIENT gets the fraction bits of the
        returned lines.
        """
        writer, task, left = self._writer, self._task, self._left
        sums: BelowMaps | BelowRows
        if task.stages[number].window:
            sums = BelowMaps(writer, task, number)
            sums.take(gradient)
        else:
            last = number == len(task.stages) - 1
            sums = BelowRows(writer, number, gradient, left.weights if last else None)
        q, lost = scale
        writer.measure(SHIFT, value=-8)
        for part in sums.parts:
            sums.multiply(part)
            rows = len(part) * sums.rows
            writer.measure(SHIFT, Source.ACCUMULATORS, rows=rows, bits=8, first=SHIFT)
        # Function `agree` overwrites an exponent register. For a Dense this is the register of the
        # inputs, as the shift of the update already includes the exponent of the inputs. A Conv2D
        # still needs this exponent for the bias. So for a Conv2D it is the register of the next
        # stage's inputs.
        used = left.inputs[number + bool(task.stages[number].window)]
        agree(writer, task, used.register)
        bits = task.master_bits[number] - MASTER_SHIFT - lost
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=bits)
        below = writer.allocate(sums.lines)
        for part in sums.parts:
            if len(sums.parts) > 1:
                sums.multiply(part)
            for row, line, rows in sums.places(part):
                writer.activate(row, below.start + line, rows, Entry(q), exponent=SHIFT)
        sums.free()
        if task.stages[number].groups == 1 or task.stages[number].window:
            return below
        shape = self._layout.shapes[source]
        maps = writer.allocate(len(below))
        unflattened(writer, below.start, maps, shape.units, shape.left)
        writer.free(below)
        return maps

    def _update(
        self, number: int, gradient: range, entry: AnyEntry, masking: Iterator[None]
    ) -> None:
        """Add the products of inputs and gradient to the masters of a Dense, some blocks of inputs
        at a time.

        Each step of `masking` masks the next block of the gradient. The first block has been masked
        before the call.
        """
        writer, shape = self._writer, self._layout.shapes[number]
        parts = portions(writer.config, self._task, shape, number)
        places = rooms(writer, parts[0].count * self._layout.size, self._task)
        products = self._products(number, gradient, parts, places, masking)
        begun = deque[tuple[Masters, int]]()
        begun.extend(islice(products, 1))
        before: Masters | None = None
        while begun:
            masters, row = begun.popleft()
            # Masters of a part are written to host memory when the next part begins. Until then
            # these masters may be on the way to other cores, while the array multiplies.
            if before:
                before.write()
            masters.add_of_all(row, entry, lambda: begun.extend(islice(products, 1)))
            if not begun:
                begun.extend(islice(products, 1))
            before = masters
        if before:
            before.write()
        deque(masking, maxlen=0)
        writer.free(*places[0], *places[1])

    def _products(
        self,
        number: int,
        gradient: range,
        parts: list[Portion],
        places: list[tuple[range, ...]],
        masking: Iterator[None],
    ) -> Iterator[tuple[Masters, int]]:
        """Write the products of inputs and gradient for an update of masters, one part after the
        other.

        A part has some blocks of inputs for one block of units. Yields the masters of each part,
        and the accumulator row where the part's sums begin. Two successive parts use different
        halves of the accumulators.
        """
        writer, layout, task = self._writer, self._layout, self._task
        samples, size, shape = layout.samples, layout.size, layout.shapes[number]
        half = writer.config.accumulator_rows // 2
        turn = 0
        for block in range(shape.units):
            vectors = self._left.transposed[number].start
            next(masking, None)
            for part in parts:
                rows, row = part.count * size, half * turn
                line = block * shape.lines + part.first * size
                masters = Masters(writer, task, number, line, cut(places[turn], rows))
                masters.read_own()
                weights = gradient.start + block * samples
                how = {"wide_vectors": int(part.wide)}
                writer.multiply(vectors, weights, row, rows, layout.groups, 1, **how)
                vectors += rows * layout.groups
                yield masters, row
                turn ^= 1


class BelowRows:
    """A writer of the product that makes the gradient of the inputs of a Dense, some blocks of
    inputs at a time.
    """

    def __init__(self, writer: Writer, number: int, gradient: range, weights: range | None) -> None:
        """Take the transposed weights of a Dense, or allocate lines for them where `weights` is
        None.

        `weights`: the lines of all weights, transposed, [block of inputs][unit]. `free` gives the
        lines back to the buffer, whether they were taken or allocated.
        """
        layout = writer.layout
        blocks, self.rows = layout.shapes[number].inputs - 1, layout.samples
        self._writer = writer
        self._units = layout.shapes[number].units
        self._gradient = gradient
        self._weights = weights
        self._columns = Turned(writer, number) if weights is None else None
        self.parts = accumulated(writer.config, self.rows, blocks)
        self.lines = blocks * self.rows

    def multiply(self, part: range) -> None:
        """Write the sums for the gradient of some blocks of inputs into the accumulator rows from 0
        on, [block][sample].
        """
        writer, units, start = self._writer, self._units, self._gradient.start
        if self._weights is not None:
            weights = self._weights.start + part.start * units * writer.layout.size
            writer.multiply(start, weights, 0, self.rows, units, len(part))
            return
        assert self._columns
        for place, block in enumerate(part):
            weights = self._columns.read(block)
            writer.multiply(start, weights, place * self.rows, self.rows, units, 1)

    def places(self, part: range) -> list[tuple[int, int, int]]:
        """Return where the sums of a part lie, as a list with one item.

        The item has the first accumulator row, the line of the gradient for this row, and the
        number of rows. Lines are counted from the first line of the gradient.
        """
        return [(0, part.start * self.rows, len(part) * self.rows)]

    def free(self) -> None:
        """Give the lines of the weights back to the buffer."""
        if self._columns:
            self._columns.free()
        else:
            self._writer.free(self._weights or range(0))
