# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of a Conv2D: for each tap, the pixels of all windows times weights.

A tap is a place in the kernel. Maps are [block of channels][sample][pixel]. The samples are cut
into parts with sums that fit the accumulators. If there are several parts, their sums are
calculated twice: first they are only measured, then units are made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from systola.arch.isa import Function
from systola.training.curved import curved, drop_both, scale_up
from systola.training.depthwise import Diagonals
from systola.training.masks import positive_table, zero_table
from systola.training.moves import largest, means, ones, subtract, tap
from systola.training.passes import Pass, UnitScale, accumulated, drop, of_samples
from systola.training.task import SHIFT, Exponent, Task
from systola.training.weights import all_narrow
from systola.training.windows import Window
from systola.training.writer import NARROW, ONE, Entry, Writer


@dataclass(frozen=True)
class Made:
    """The lines that the forward pass of a Conv2D leaves in the buffer."""

    units: range
    mask: range | None
    """Lines with the mask of the units; None if all units pass."""
    routes: list[range]
    """Lines with the marks of the taps of a pooling, see `passes.Pass`."""


class MapSums:
    """A writer of the sums of a Conv2D, from weights in the buffer and some samples at a time."""

    def __init__(self, writer: Writer, task: Task, number: int, inputs: Exponent) -> None:
        """Bring the weights of stage `number` into the buffer.

        `inputs`: fraction bits of the stage's inputs. The bias is the weight of one more input, a
        constant 1 with as many fraction bits.
        """
        layout, stage = writer.layout, task.stages[number]
        shape, window = layout.shapes[number], stage.window
        assert window
        self._writer = writer
        self._number = number
        self._window = window
        self._weights = all_narrow(writer, number)
        self._tiles = Diagonals(writer, number, window.taps) if stage.depthwise else None
        self.parts = accumulated(writer.config, shape.made * shape.units, layout.samples)
        """Runs of samples that are calculated one after the other. The sums of a run fit the
        accumulators."""
        most = len(self.parts[0]) * shape.made
        self._pixels = writer.allocate(shape.channels * most)
        self._one = writer.allocate(max(layout.size, most))
        ones(writer, self._one, inputs, zero=not stage.use_bias)

    def measure(self, x: range, there: int, scale: UnitScale) -> None:
        """Write the sums of all parts; measure only the sums of the first `there` samples.

        The other samples are padding, which fills up the last block of samples.
        """
        shape = self._writer.layout.shapes[self._number]
        for part in self.parts:
            self.write(x, part)
            here = min(max(there - part.start, 0), len(part))
            sizes = shape.units, len(part) * shape.made, here * shape.made
            for rows in of_samples(*sizes):
                scale.measure(rows.start, len(rows))

    def write(self, x: range, part: range) -> None:
        """Write the sums of some samples, [block of units][sample][pixel], from accumulator row 0
        on.
        """
        writer, layout, window = self._writer, self._writer.layout, self._window
        shape, size = layout.shapes[self._number], layout.size
        pixels, weights = self._pixels, self._weights
        inside = window.map[0] * window.map[1]
        rows = len(part) * shape.made
        for turn, place in enumerate(window.places):
            for channel in range(shape.channels):
                source = x.start + (channel * layout.samples + part.start) * inside
                to = pixels.start + channel * rows
                tap(writer, source, to, len(part), window, place)
            for block in range(shape.units):
                how = {"accumulate": int(turn > 0)}
                if self._tiles:
                    to, tile = pixels.start + block * rows, self._tiles[block, turn]
                    writer.multiply(to, tile, block * rows, rows, 1, 1, **how)
                    continue
                tile = weights.start + block * shape.lines + turn * shape.channels * size
                writer.multiply(pixels.start, tile, block * rows, rows, shape.channels, 1, **how)
        for block in range(shape.units):
            tile = weights.start + block * shape.lines + shape.bias
            writer.multiply(self._one.start, tile, block * rows, rows, 1, 1, accumulate=1)

    def free(self) -> None:
        """Give the lines of weights and pixels back to the buffer."""
        self._writer.free(self._weights, self._one, self._pixels)
        if self._tiles:
            self._tiles.free()


class Maps:
    """A writer of the forward pass of stages with a Conv2D."""

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train

    def write(self, number: int, x: range) -> range:
        """Write the forward pass of a Conv2D; return the maps that it leaves for the next stage."""
        writer, task, left = self._writer, self._task, self._left
        scale = UnitScale(writer, task, left, number, train=self._train)
        sums = MapSums(writer, task, number, left.inputs[number])
        sums.measure(x, len(task.share(writer.layout.size)), scale)
        scale.end()
        units, mask = self.activated(number, sums, scale, None if len(sums.parts) == 1 else x)
        sums.free()
        made = self.shaped(number, units, mask)
        left.masks.append(made.mask)
        left.routes.append(made.routes)
        left.transposed.append(x)
        return made.units

    def activated(
        self, number: int, sums: MapSums, scale: UnitScale, x: range | None
    ) -> tuple[range, range | None]:
        """Write the units of all samples; return their lines, and the mask of a ReLU in training.

        `x`: the lines of the inputs, from which the sums are calculated again. It is None if all
        sums still are in the accumulators.
        """
        writer, layout, stage = self._writer, self._writer.layout, self._task.stages[number]
        shape, samples = layout.shapes[number], layout.samples
        lines = shape.units * samples * shape.made
        units = writer.allocate(lines)
        mask = writer.allocate(lines) if self._train and stage.relu else None
        for part in sums.parts:
            if x:
                sums.write(x, part)
            rows = len(part) * shape.made
            for block in range(shape.units):
                row, line = block * rows, (block * samples + part.start) * shape.made
                if mask:
                    how = {"function": Function.TABLE, "table": writer.table(positive_table())}
                    writer.activate(row, mask.start + line, rows, ONE, **how)
                function = Function.RELU if stage.relu else Function.NONE
                entry = Entry(scale.multiplier)
                at = units.start + line
                writer.activate(row, at, rows, entry, function=function, exponent=SHIFT)
        return units, mask

    def shaped(self, number: int, units: range, mask: range | None) -> Made:
        """Write the pooling, the activation by table and the dropout of units; return the lines
        that the stage leaves.
        """
        writer, task, stage = self._writer, self._task, self._task.stages[number]
        blocks, routes = writer.layout.shapes[number].units, list[range]()
        if stage.average:
            units, routes = self._averaged(number, units, mask)
            mask = None
        else:
            if stage.pool:
                units, mask, routes = self._pooled(number, units, mask, stage.pool)
            if stage.curve:
                mask = self._curved(number, units)
        if self._train and stage.rate:
            if stage.curve:
                scale_up(writer, stage, units)
            if stage.curve and mask:
                drop_both(writer, task, number, range(blocks), units, mask)
            else:
                mask = self.dropped(number, units, mask)
        return Made(units, mask, routes)

    def _curved(self, number: int, units: range) -> range | None:
        """Replace sums by their results in the table of the activation; in training, return the
        mask of the slopes, else None.
        """
        mask = self._writer.allocate(len(units)) if self._train else None
        blocks = range(self._writer.layout.shapes[number].units)
        curved(self._writer, self._task, number, blocks, units, mask)
        return mask

    def _averaged(self, number: int, units: range, mask: range | None) -> tuple[range, list[range]]:
        """Replace units by the means of the windows of a pooling.

        Returns the lines of the means, and a list with the mask of the pixels before the pooling.
        The list is empty without a mask.
        """
        window = self._task.stages[number].pool
        assert window
        if self._task.stages[number].curve:
            mask = self._curved(number, units)
        small = self._reduced(number, units, window, means)
        self._writer.free(units)
        return small, [mask] if mask else []

    def _pooled(
        self, number: int, units: range, mask: range | None, window: Window
    ) -> tuple[range, range | None, list[range]]:
        """Replace units by the largest unit of each window of a pooling.

        Returns the lines of these units, their mask, and in training the marks of the taps. The
        mask of a window is 1 if the mask of a pixel in it is 1; it is None without a mask of the
        pixels.
        """
        passing = None
        if mask is not None:
            passing = self._reduced(number, mask, window, largest)
            self._writer.free(mask)
        small, routes = self._reduced(number, units, window, largest), list[range]()
        if self._train:
            routes = self._routes(number, units, small, window)
        self._writer.free(units)
        return small, passing, routes

    def _reduced(
        self, number: int, source: range, window: Window, reduce: Callable[..., None]
    ) -> range:
        writer, layout = self._writer, self._writer.layout
        shape, samples = layout.shapes[number], layout.samples
        result = writer.allocate(shape.units * samples * shape.left)
        for block in range(shape.units):
            first = source.start + block * samples * shape.made
            to = result.start + block * samples * shape.left
            reduce(writer, first, to, samples, window)
        return result

    def _routes(self, number: int, units: range, small: range, window: Window) -> list[range]:
        """Return the lines of marks for each tap of a pooling.

        A mark is 1 if the tap is the first largest number of its window, else 0.
        """
        writer, layout = self._writer, self._writer.layout
        shape, samples, rows = layout.shapes[number], layout.samples, len(small)
        table = writer.table(zero_table())
        others = writer.allocate(rows)
        routes: list[range] = []
        for place in window.places:
            route = writer.allocate(rows)
            for block in range(shape.units):
                first = units.start + block * samples * shape.made
                to = route.start + block * samples * shape.left
                tap(writer, first, to, samples, window, place)
            subtract(writer, small.start, route.start, route.start, rows, table)
            if routes:
                writer.times(route.start, others.start, rows)
                subtract(writer, others.start, route.start, others.start, rows, None)
            else:
                how = {"table": table}
                function = Function.TABLE
                writer.copy(route.start, others.start, rows, ONE, NARROW, function, **how)
            routes.append(route)
        writer.free(others)
        return routes

    def dropped(self, number: int, units: range, mask: range | None) -> range:
        """Set random units to zero, as Dropout does; return the mask of the units that pass.

        `mask`: the mask so far; None if all units pass.
        """
        writer = self._writer
        fresh, mask = mask is None, mask or writer.allocate(len(units))
        blocks = writer.layout.shapes[number].units
        rows = len(units) // blocks
        random = writer.allocate(rows)
        for block in range(blocks):
            lines = mask.start + block * rows, random.start
            drop(writer, self._task, number, block, lines, rows, fresh=fresh)
        writer.times(units.start, mask.start, len(units))
        writer.free(random)
        return mask
