# SPDX-License-Identifier: Apache-2.0
"""Writes the way forward of a Conv2D: for each tap, the pixels of all windows times weights.

A tap is a place in the kernel. Maps are [block of channels][sample][pixel]. The samples are cut
into parts with sums that fit the accumulators. Sums of several parts are calculated twice: the
first time they are only measured.
"""

from __future__ import annotations

from collections.abc import Callable

from systola.arch.isa import Function
from systola.training.curved import curved, drop_both, scale_up
from systola.training.depthwise import Diagonals
from systola.training.masks import positive_table, zero_table
from systola.training.moves import largest, means, ones, subtract, tap
from systola.training.passes import Pass, UnitScale, accumulated, drop, of_samples
from systola.training.task import SHIFT, Task
from systola.training.weights import all_narrow
from systola.training.windows import Window
from systola.training.writer import NARROW, ONE, Entry, Writer


class Maps:
    """A writer of the way forward of stages with a Conv2D."""

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train

    def write(self, number: int, x: range) -> range:
        """Write a stage; return the maps that it leaves for the next stage."""
        writer, layout, stage = self._writer, self._writer.layout, self._task.stages[number]
        shape, samples, train = layout.shapes[number], layout.samples, self._train
        task = self._task
        lines = shape.units * samples * shape.made
        scale = UnitScale(writer, task, self._left, number, train=train)
        weights = all_narrow(writer, number)
        window = stage.window
        tiles = Diagonals(writer, number, window.taps) if window and stage.depthwise else None
        units = writer.allocate(lines)
        mask = writer.allocate(lines) if train and stage.relu else None
        parts = accumulated(writer.config, shape.made * shape.units, samples)
        most = len(parts[0]) * shape.made
        pixels = writer.allocate(shape.channels * most)
        one = writer.allocate(max(layout.size, most))
        ones(writer, one, self._left.inputs[number], zero=not stage.use_bias)
        for part in parts:
            self._multiply(number, x, part, pixels, one, weights, tiles)
            there = min(max(len(task.share(layout.size)) - part.start, 0), len(part))
            sizes = shape.units, len(part) * shape.made, there * shape.made
            for rows in of_samples(*sizes):
                scale.measure(rows.start, len(rows))
        scale.end()
        for part in parts:
            if len(parts) > 1:
                self._multiply(number, x, part, pixels, one, weights, tiles)
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
        writer.free(weights, one, pixels)
        if tiles:
            tiles.free()
        if stage.average:
            units, mask = self._averaged(number, units, mask)
        else:
            units, mask = self._pooled(number, units, mask)
            if stage.curve:
                mask = self._curved(number, units)
        if train and stage.rate:
            if stage.curve:
                scale_up(writer, stage, units)
            if stage.curve and mask:
                drop_both(writer, task, number, range(shape.units), units, mask)
            else:
                mask = self.dropped(number, units, mask)
        self._left.masks.append(mask)
        self._left.transposed.append(x)
        return units

    def _multiply(
        self,
        number: int,
        x: range,
        part: range,
        pixels: range,
        one: range,
        weights: range,
        tiles: Diagonals | None,
    ) -> None:
        """Write the sums of some samples, [block of units][sample][pixel] from accumulator row 0
        on."""
        writer, layout, stage = self._writer, self._writer.layout, self._task.stages[number]
        shape, window, size = layout.shapes[number], stage.window, layout.size
        assert window
        inside = window.map[0] * window.map[1]
        rows = len(part) * shape.made
        for turn, place in enumerate(window.places):
            for channel in range(shape.channels):
                source = x.start + (channel * layout.samples + part.start) * inside
                to = pixels.start + channel * rows
                tap(writer, source, to, len(part), window, place)
            for block in range(shape.units):
                if tiles:
                    to, how = pixels.start + block * rows, {"accumulate": int(turn > 0)}
                    writer.multiply(to, tiles[block, turn], block * rows, rows, 1, 1, **how)
                    continue
                tile = weights.start + block * shape.lines + turn * shape.channels * size
                how = {"accumulate": int(turn > 0)}
                writer.multiply(pixels.start, tile, block * rows, rows, shape.channels, 1, **how)
        for block in range(shape.units):
            tile = weights.start + block * shape.lines + shape.bias
            writer.multiply(one.start, tile, block * rows, rows, 1, 1, accumulate=1)

    def _curved(self, number: int, units: range) -> range | None:
        """Make units of the sums of a curve, in their place; return their slopes in training."""
        mask = self._writer.allocate(len(units)) if self._train else None
        blocks = range(self._writer.layout.shapes[number].units)
        curved(self._writer, self._task, number, blocks, units, mask)
        return mask

    def _averaged(self, number: int, units: range, mask: range | None) -> tuple[range, None]:
        """Return the means of windows; the mask of the pixels is left for the way back."""
        window = self._task.stages[number].pool
        assert window
        if self._task.stages[number].curve:
            mask = self._curved(number, units)
        self._left.routes.append([mask] if mask else [])
        small = self._reduced(number, units, window, means)
        self._writer.free(units)
        return small, None

    def _pooled(self, number: int, units: range, mask: range | None) -> tuple[range, range | None]:
        """Return the units after the pooling, and a mask: 1 where a unit of the window passes."""
        window = self._task.stages[number].pool
        self._left.routes.append([])
        if window is None:
            return units, mask
        passing = None
        if mask is not None:
            passing = self._reduced(number, mask, window, largest)
            self._writer.free(mask)
        small = self._reduced(number, units, window, largest)
        if self._train:
            self._left.routes[number] = self._routes(number, units, small, window)
        self._writer.free(units)
        return small, passing

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
        """Return for each tap 1 where the tap is its window's first largest number, else 0."""
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
        """Draw the dropout of the units and apply it to them; return the mask."""
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
