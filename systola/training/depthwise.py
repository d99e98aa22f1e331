# SPDX-License-Identifier: Apache-2.0
"""Writes the weights and the update of a DepthwiseConv2D, which has a kernel for each channel.

The array takes the weights of a tap as a diagonal, C x C for each block of channels. The gradient
of a weight is the sum over all windows of pixel times gradient. The products are int16, lane by
lane, and the array adds them up as it multiplies them with ones.
"""

from __future__ import annotations

import numpy as np

from systola.arch.isa import Operation
from systola.training.errors import NoRoomError
from systola.training.layout import Shape
from systola.training.loads import Loads
from systola.training.moves import repeat, tap, turned_ones
from systola.training.task import Exponent, Task
from systola.training.update import Masters, cut, rooms
from systola.training.weights import all_narrow
from systola.training.writer import NARROW, ONE, WIDENING, AnyEntry, Writer


class Diagonals:
    """Tiles with the weights of all taps of a DepthwiseConv2D on their diagonals, zeros
    elsewhere.
    """

    def __init__(self, writer: Writer, number: int, taps: int) -> None:
        size, self._taps = writer.layout.size, taps
        shape: Shape = writer.layout.shapes[number]
        self._writer = writer
        self._size = size
        self._lines = writer.allocate(shape.units * taps * size)
        weights = all_narrow(writer, number)
        ones = writer.constant(np.eye(size, dtype=np.int8))
        for block in range(shape.units):
            for place in range(taps):
                tile = self[block, place]
                line = weights.start + block * shape.lines + place
                writer.copy(line, tile, 1, ONE, NARROW)
                repeat(writer, range(tile, tile + size), 1)
                writer.times(tile, ones.start, size)
        writer.free(weights, ones)

    def __getitem__(self, place: tuple[int, int]) -> int:
        """Return the first line of the tile for a block of channels and the number of a tap."""
        block, tap = place
        return self._lines.start + (block * self._taps + tap) * self._size

    def free(self) -> None:
        """Give the lines of the tiles back to the buffer."""
        self._writer.free(self._lines)


def update_depthwise(
    writer: Writer,
    task: Task,
    number: int,
    inputs: Exponent,
    entry: AnyEntry,
    loads: Loads,
) -> None:
    """Add the gradients to the masters of a DepthwiseConv2D.

    A kernel gets sums of pixels times gradient, the biases get sums of the gradient. `inputs`:
    fraction bits of the inputs. `loads`: an object that gives inputs and gradient, block by block.
    """
    layout, stage = writer.layout, task.stages[number]
    shape, window, size = layout.shapes[number], stage.window, layout.size
    assert window
    positions, taps = layout.samples * shape.made, window.taps
    if taps > writer.config.accumulator_rows:
        raise NoRoomError(
            f"the accumulators of '{writer.config.name}' have no room for {taps} sums"
        )
    groups = positions // size
    here, ones = writer.allocate(positions), writer.allocate(max(groups, size))
    products = writer.allocate(2 * positions)
    places = rooms(writer, max(taps, size), task)
    given = writer.constant(np.ones((1, size), np.int8))
    for block in range(shape.units):
        writer.copy(given.start, ones.start, 1, ONE, NARROW)
        repeat(writer, ones, 1)
        for done, (x, gradient) in enumerate(loads.block(block)):
            how = {"wide_weights": 1, "accumulate": int(done > 0)}
            for number_of_tap, place in enumerate(window.places):
                tap(writer, x.start, here.start, layout.samples, window, place)
                at = (here.start, gradient.start, products.start, positions, ONE, WIDENING)
                writer.vector(Operation.MULTIPLY, *at)
                writer.multiply(ones.start, products.start, number_of_tap, 1, groups, 1, **how)
        line = block * shape.lines
        Masters(writer, task, number, line, cut(places[0], taps)).update(0, entry)
        turned_ones(writer, here, inputs, zero=not stage.use_bias)
        for done, gradient in enumerate(loads.gradient(block)):
            how = {"accumulate": int(done > 0)}
            writer.multiply(here.start, gradient.start, 0, size, groups, 1, **how)
        line += shape.bias
        Masters(writer, task, number, line, cut(places[1], size)).update(0, entry)
    writer.free(here, ones, products, given, *places[0], *places[1])
