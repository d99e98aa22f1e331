# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of a Conv2D: through its pooling, to its inputs, and to its weights.

The gradient of the inputs is a convolution of the gradient with the transposed weights. The
gradient of the weights is a product for each tap: the tap's pixels, transposed, times the gradient.
"""

from __future__ import annotations

from dataclasses import replace

from systola.training.depthwise import Diagonals, update_depthwise
from systola.training.errors import NoRoomError
from systola.training.loads import Loads
from systola.training.moves import add, spread, tap, turned_ones
from systola.training.passes import accumulated, mask_entry
from systola.training.task import Exponent, Task
from systola.training.update import Masters, cut, rooms
from systola.training.weights import all_turned
from systola.training.windows import Window
from systola.training.writer import ONE, AnyEntry, Writer

MOST_TILES = 4095
"""Largest number of tiles that one instruction can multiply."""


class MapsBackward:
    """A writer of the backward pass of stages with a Conv2D.

    Gradients are maps, [block of channels][sample][pixel].
    """

    def __init__(self, writer: Writer, task: Task) -> None:
        self._writer = writer
        self._task = task

    def through(
        self, number: int, gradient: range, mask: range | None, routes: list[range]
    ) -> range:
        """Write the gradient of a stage's sums, from the gradient of the units that the stage
        leaves.

        `mask`: the mask of the units. `routes`: the marks of the pooling. Both are from the forward
        pass, see `passes.Pass`. The lines of all arguments are freed, except for a gradient that is
        returned itself.
        """
        writer, stage = self._writer, self._task.stages[number]
        if mask:
            entry = ONE if stage.average else mask_entry(stage)
            writer.times(gradient.start, mask.start, len(gradient), entry=entry)
            writer.free(mask)
        window = stage.pool
        if window is None:
            return gradient
        if stage.average:
            maps = self._placed(number, window, [gradient] * window.taps)
            for pixels in routes:
                writer.times(maps.start, pixels.start, len(maps), entry=mask_entry(stage))
            writer.free(gradient, *routes)
            return maps
        for route in routes:
            writer.times(route.start, gradient.start, len(gradient))
        writer.free(gradient)
        maps = self._placed(number, window, routes)
        writer.free(*routes)
        return maps

    def _placed(self, number: int, window: Window, taps: list[range]) -> range:
        """Return maps with the gradient of each tap of a pooling at the place of the tap's pixel.
        All other pixels are zero.
        """
        if not window.side_by_side:
            return self._added(number, window, taps)
        writer, layout = self._writer, self._writer.layout
        covered = tuple(o * s for o, s in zip(window.out, window.stride, strict=True))
        shape = layout.shapes[number]
        maps = shape.units * layout.samples
        whole = writer.allocate(maps * covered[0] * covered[1])
        places = list(zip(window.places, taps, strict=True))
        spread(writer, places, whole, window, layout.moves)
        if covered == window.map:
            return whole
        result = writer.allocate(maps * shape.made)
        grown = replace(window, map=(covered[0], covered[1]), stride=(1, 1), out=window.map)
        for block in range(shape.units):
            first = whole.start + block * layout.samples * covered[0] * covered[1]
            to = result.start + block * layout.samples * shape.made
            tap(writer, first, to, layout.samples, grown, (0, 0))
        writer.free(whole)
        return result

    def _added(self, number: int, window: Window, taps: list[range]) -> range:
        """Return maps with the gradients of the taps of a pooling, added up tap by tap.

        This is for windows that share pixels or leave some out.
        """
        writer, layout = self._writer, self._writer.layout
        maps = layout.shapes[number].units * layout.samples
        apart = (window.out[0] * window.stride[0], window.out[1] * window.stride[1])
        moved = replace(window, map=apart, stride=(1, 1), out=window.map)
        whole = writer.allocate(maps * apart[0] * apart[1])
        result, one = (writer.allocate(maps * window.map[0] * window.map[1]) for _ in range(2))
        for place, part in zip(window.places, taps, strict=True):
            spread(writer, [((0, 0), part)], whole, window, layout.pool_spread[number])
            first = place == (0, 0)
            to = result if first else one
            tap(writer, whole.start, to.start, maps, replace(moved, before=place), (0, 0))
            if not first:
                add(writer, result, one)
        writer.free(whole, one)
        return result


def update_maps(
    writer: Writer,
    task: Task,
    number: int,
    inputs: Exponent,
    entry: AnyEntry,
    loads: Loads,
) -> None:
    """Add the products of pixels and gradient to the masters of a Conv2D, some taps at a time.

    `inputs`: fraction bits of the inputs. `loads`: the source of the maps.
    """
    layout = writer.layout
    stage, shape, size = task.stages[number], layout.shapes[number], layout.size
    window = stage.window
    assert window
    if stage.depthwise:
        update_depthwise(writer, task, number, inputs, entry, loads)
        return
    positions = layout.samples * shape.made
    groups = positions // size
    if groups > MOST_TILES:
        raise NoRoomError("the maps of a batch are too large: take a smaller batch")
    here = writer.allocate(shape.channels * positions)
    turned = writer.allocate(positions)
    pieces: list[tuple[int, int] | None] = [*window.places, None]
    each = shape.channels * size
    parts = accumulated(writer.config, shape.units * each, len(pieces))
    places = rooms(writer, len(parts[0]) * each, task)
    turn = 0
    for part in parts:
        chosen = pieces[part.start : part.stop]
        rows = sum(size if place is None else each for place in chosen)
        for done, (x, gradient) in enumerate(loads.all()):
            at, how = 0, {"accumulate": int(done > 0)}
            for place in chosen:
                if place is not None:
                    maps = shape.channels * layout.samples
                    tap(writer, x.start, here.start, maps, window, place)
                for channel in range(1 if place is None else shape.channels):
                    if place is None:
                        turned_ones(writer, turned, inputs, zero=not stage.use_bias)
                    else:
                        source = here.start + channel * positions
                        writer.transpose(source, turned.start, groups, size)
                    for block in range(shape.units):
                        tiles = gradient.start + block * positions
                        row = block * rows + at
                        writer.multiply(turned.start, tiles, row, size, groups, 1, **how)
                    at += size
        for block in range(shape.units):
            line = block * shape.lines + part.start * each
            masters = Masters(writer, task, number, line, cut(places[turn], rows))
            masters.update(block * rows, entry)
            turn ^= 1
    writer.free(here, turned, *places[0], *places[1])


class BelowMaps:
    """A writer of the product that makes the gradient of a Conv2D's inputs, some samples at
    a time.
    """

    def __init__(self, writer: Writer, task: Task, number: int) -> None:
        layout = writer.layout
        self._number = number
        stage, self._shape = task.stages[number], layout.shapes[number]
        window = stage.window
        assert window
        self._writer = writer
        self._pixels = window.map[0] * window.map[1]
        self.rows = self._shape.channels * self._pixels
        self.parts = accumulated(writer.config, self.rows, layout.samples)
        self.lines = layout.samples * self.rows
        self._weights = range(0) if stage.depthwise else all_turned(writer, number)
        self._tiles = Diagonals(writer, number, window.taps) if stage.depthwise else None
        self._gradient = self._own = range(0)
        apart = tuple(o * s for o, s in zip(window.out, window.stride, strict=True))
        if window.stride != (1, 1):
            self._own = writer.allocate(self._shape.units * layout.samples * apart[0] * apart[1])
        self._apart = window
        self._window = replace(window, map=(apart[0], apart[1]), stride=(1, 1), out=window.map)
        self._before = window.before
        rows = len(self.parts[0]) * self._pixels
        self._taps = writer.allocate(self._shape.units * rows)

    def take(self, gradient: range) -> None:
        """Take the gradient of the stage's sums, from which the product is made.

        If the stage has strides, zeros are put between the gradient's pixels first.
        """
        self._gradient = gradient
        if self._own:
            hosts = self._writer.layout.spread[self._number]
            spread(self._writer, [((0, 0), gradient)], self._own, self._apart, hosts)
            self._gradient = self._own

    def multiply(self, part: range) -> None:
        """Write the gradient of the inputs for some samples as sums, from accumulator row 0 on.

        The order of the rows is [block of channels][sample][pixel].
        """
        writer, shape, window = self._writer, self._shape, self._window
        layout = writer.layout
        rows, inside = len(part) * self._pixels, window.map[0] * window.map[1]
        for turn, (i, j) in enumerate(window.places):
            back = replace(window, before=(i - self._before[0], j - self._before[1]))
            for block in range(shape.units):
                source = self._gradient.start + (block * layout.samples + part.start) * inside
                to = self._taps.start + block * rows
                tap(writer, source, to, len(part), back, (0, 0))
            if self._tiles:
                for block in range(shape.units):
                    vectors, how = self._taps.start + block * rows, {"accumulate": int(turn > 0)}
                    tile = self._tiles[block, turn]
                    writer.multiply(vectors, tile, block * rows, rows, 1, 1, **how)
                continue
            tiles = self._weights.start + turn * shape.channels * shape.units * layout.size
            how = {"accumulate": int(turn > 0)}
            writer.multiply(self._taps.start, tiles, 0, rows, shape.units, shape.channels, **how)

    def places(self, part: range) -> list[tuple[int, int, int]]:
        """Return the places of the sums of a part of the samples, for each block of channels.

        A place is the first accumulator row, the offset of the first line in the inputs' gradient,
        and the number of rows.
        """
        samples, pixels = self._writer.layout.samples, self._pixels
        rows = len(part) * pixels
        return [
            (channel * rows, (channel * samples + part.start) * pixels, rows)
            for channel in range(self._shape.channels)
        ]

    def free(self) -> None:
        """Free the lines of the buffer that hold weights, taps, and the gradient with zeros."""
        self._writer.free(self._weights, self._own, self._taps)
        if self._tiles:
            self._tiles.free()
