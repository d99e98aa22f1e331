# SPDX-License-Identifier: Apache-2.0
"""Writes the normalisation of a batch (BatchNormalization), forward and backward.

`systola.training.normalization` explains the numbers. The array does most of the work:

- To add up each channel over all rows, the array multiplies lines of ones with the rows.
- To multiply each channel with a number, the array takes a tile with these numbers on the diagonal.
- To subtract the means from all rows, the array takes a tile with the means in the first row. The
  vectors have a negative factor LESS in the first lane and zeros in the other lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import INVERSE_ROOT, Function, Operation, Source
from systola.training.branches.joins import MADE
from systola.training.branches.kept import Kept
from systola.training.branches.numbers import KEPT_LINES
from systola.training.exchange import add_up, agree, give_to_all, own_rows
from systola.training.lines import pairs
from systola.training.moves import repeat
from systola.training.normalization import (
    FLOOR,
    LESS,
    OFFSET_ENTRY,
    ROOT_BITS,
    UNIT_BITS,
    epsilon_code,
    mean_entry,
    most_spread_bits,
    root_tables,
    slope_entry,
    variance_entry,
)
from systola.training.passes import Pass, UnitScale
from systola.training.task import GRADIENT, INPUTS, SHIFT, Exponent, Task
from systola.training.writer import (
    NARROW,
    NARROWING,
    ONE,
    WIDE,
    WIDENING,
    Entry,
    Writer,
    shifted,
)

SPREAD, ROOT = GRADIENT, INPUTS + 2
"""Numbers of exponent registers.

- SPREAD: fraction bits of x - mean.
- ROOT: fraction bits of the reciprocal roots, and later of the results.
"""
_HIGHEST = (1 << 15) - 1
Sums = Callable[[int, range, int], None]
"""A function that writes sums for some rows of a block of channels. It takes the block, the rows,
and the accumulator row where the sums begin."""


class Normalizing:
    """A writer of a stage that normalises a batch. All tensors of the stage lie as lines [block of
    channels][sample][pixel].
    """

    def __init__(self, writer: Writer, task: Task, number: int, kept: Kept) -> None:
        layout, stage = writer.layout, task.stages[number]
        assert stage.normalized
        left, most = layout.shapes[number].left, writer.config.accumulator_rows
        self._writer = writer
        self._task = task
        self._number = number
        self._kept = kept
        self._units = stage.units
        self._epsilon = stage.normalized.epsilon
        self._frozen = stage.normalized.frozen
        self._blocks = layout.shapes[number].units
        self._rows = layout.samples * left
        """Number of rows of a block of channels: a row for each pixel of each sample."""
        self._there = len(task.share(layout.size)) * left
        """Number of rows of a block of channels that belong to samples. The rows after them are
        padding."""
        self._count = task.count * left
        self._at_once = self._blocks * self._rows <= most
        """Whether the accumulators have room for the sums of all rows of all blocks."""
        self._most = min(self._rows, most)
        self._root = range(0)

    def forward(self, x: range, at: int, left: Pass) -> range:
        """Write the normalised results of inputs `x` in a training step; return the lines of the
        results.

        Input `x` is result number `at` of the network. Exponent register INPUTS has the fraction
        bits of `x`.
        """
        if self._frozen:
            return self.at_rest(x, left, train=True)
        writer, kept, number = self._writer, self._kept, self._number
        unit, ones, less = self._unit(), self._ones(), self._less()
        mean = self._totals(
            lambda block: self._add(ones, self._of(x, block), block), mean_entry(self._count)
        )
        floor = UNIT_BITS - 1 - most_spread_bits(self._epsilon)
        writer.measure(SHIFT, first=INPUTS, value=floor)

        def apart(block: int, rows: range, row: int) -> None:
            self._times(self._of(x, block), rows, unit.start, row)
            self._minus(less, mean, block, rows, row)

        spread = self._narrowed(apart)
        writer.measure(SPREAD, first=INPUTS, third=SHIFT, value=UNIT_BITS - 1)
        kept.keep(("spread", number), SPREAD)
        self._without_padding(spread)
        squares = writer.allocate(2 * self._rows)
        variance = self._totals(
            lambda block: self._add_products(
                ones, self._of(spread, block), self._of(spread, block), squares, block
            ),
            variance_entry(self._count),
        )
        writer.free(squares, unit, ones, less, spread)
        self._end_measuring(mean, variance, at)
        result = self._moved(x, self._root, mean, left, train=True)
        self._without_padding(result)
        writer.free(mean, variance)
        return result

    def _end_measuring(self, mean: range, variance: range, at: int) -> None:
        """Write means and variances to host memory. Make reciprocal roots of the variances, and
        offsets.

        An offset is the product of mean and root, and takes the place of the mean. Exponent
        register ROOT gets the fraction bits of the roots.
        """
        writer = self._writer
        self._tell(mean, variance, at)
        self._root = self._roots(variance)
        writer.measure(ROOT, first=ROOT, third=SPREAD)
        self._kept.keep(("root", self._number), ROOT)
        offset = (mean.start, self._root.start, mean.start, self._blocks, OFFSET_ENTRY, WIDE)
        writer.vector(Operation.MULTIPLY, *offset)

    def at_rest(self, x: range, left: Pass, *, train: bool) -> range:
        """Write the normalised results of inputs `x`, by moving means and variances from the host.

        In training the reciprocal roots stay in the buffer for the backward pass. Exponent register
        INPUTS has the fraction bits of the inputs.
        """
        root, offset = self._resting()
        result = self._moved(x, root, offset, left, train=train)
        self._end_resting(root, offset, train=train)
        return result

    def _resting(self) -> tuple[range, range]:
        """Read the int16 reciprocal roots and offsets, which the host has made of moving means and
        variances.

        An offset is the product of mean and root. Exponent register ROOT gets the fraction bits of
        the roots. Register INPUTS has the fraction bits of the inputs.
        """
        writer, layout, kept = self._writer, self._writer.layout, self._kept
        place, lines = layout.resting[self._number], 2 * self._blocks
        root = self._room()
        offset = self._room()
        writer.read(place, root[:lines])
        writer.read(place + lines * layout.pitch, offset[:lines])
        for n, (key, register) in enumerate((("root", ROOT), ("offset", SPREAD))):
            first = 2 * lines + 2 * KEPT_LINES * n
            kept.read((key, self._number), place + first * layout.pitch)
            kept.bring((key, self._number), register)
        writer.measure(SHIFT, first=SPREAD, third=ROOT, value=6)
        writer.measure(SHIFT, first=SHIFT, third=INPUTS)
        writer.copy(offset.start, offset.start, self._blocks, Entry(), WIDE, exponent=SHIFT)
        return root, offset

    def _end_resting(self, root: range, offset: range, *, train: bool) -> None:
        """Give the lines of the offsets back to the buffer.

        Outside training, the lines of the roots are given back, too. In training the lines of the
        roots are kept for the backward pass.
        """
        self._writer.free(offset)
        self._kept.free(("offset", self._number))
        if train:
            self._root = root
            return
        self._kept.free(("root", self._number))
        self._writer.free(root)

    def _moved(self, x: range, root: range, offset: range, left: Pass, *, train: bool) -> range:
        """Write the results of the normalisation: inputs times roots, less the offsets.

        Exponent register ROOT has the fraction bits of the roots.
        """
        writer = self._writer
        writer.measure(ROOT, first=ROOT, second=INPUTS)
        tiles, less = self._diagonals(root), self._less()

        def sums(block: int, rows: range, row: int) -> None:
            self._times(self._of(x, block), rows, self._tile(tiles, block), row)
            self._minus(less, offset, block, rows, row)

        left.inputs[:] = [Exponent(ROOT, 0)] * (self._number + 1)
        scale = UnitScale(writer, self._task, left, self._number, train=train)
        result = self._written(sums, scale.measure, scale.end)
        writer.free(tiles, less)
        return result

    def back(self, gradient: range, codes: range) -> range:
        """Write the gradient of the inputs, from the results `codes` and the gradient of these
        results.

        Exponent register GRADIENT has the fraction bits of `gradient` before, and of the returned
        lines after.
        """
        if self._frozen:
            return self._times_roots(gradient)
        writer, kept, number = self._writer, self._kept, self._number
        ones, products = self._ones(), writer.allocate(2 * self._rows)
        mean = self._totals(
            lambda block: self._add(ones, self._of(gradient, block), block),
            mean_entry(self._count),
        )
        q, right = slope_entry(self._count)
        kept.bring(number + 1, MADE)
        writer.measure(SHIFT, first=MADE, second=MADE, value=right)
        slope = self._totals(
            lambda block: self._add_products(
                ones, self._of(gradient, block), self._of(codes, block), products, block
            ),
            *(Entry(q), SHIFT),
        )
        writer.free(ones, products)
        unit, less = self._unit(), self._less()
        slopes = self._diagonals(slope, negative=True)

        def without(block: int, rows: range, row: int) -> None:
            self._times(self._of(gradient, block), rows, unit.start, row)
            self._minus(less, mean, block, rows, row)
            tile = self._tile(slopes, block)
            self._times(self._of(codes, block), rows, tile, row, accumulate=1)

        writer.measure(SHIFT, value=-8)
        rest = self._narrowed(without, wide=True)
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=UNIT_BITS - 1)
        writer.free(mean, slope, slopes, unit, less)
        result = self._times_roots(rest, wide=True)
        kept.free(("spread", number))
        writer.free(rest)
        return result

    def _times_roots(self, gradient: range, *, wide: bool = False) -> range:
        """Write the product of a gradient with the reciprocal roots, and free the lines of the
        roots.

        The gradient is int16 if `wide`, else int8.
        """
        writer = self._writer
        tiles = self._diagonals(self._root)

        def times_root(block: int, rows: range, row: int) -> None:
            tile, each = self._tile(tiles, block), 1 + wide
            vectors = gradient.start + each * (block * self._rows + rows.start)
            how = {"wide_vectors": int(wide), "wide_weights": 1}
            writer.multiply(vectors, tile, row, len(rows), 1, 1, **how)

        writer.measure(SHIFT, value=-8)
        result = self._narrowed(times_root)
        self._end_times_roots()
        writer.free(tiles, self._root)
        return result

    def _end_times_roots(self) -> None:
        """Set exponent register GRADIENT to the fraction bits of a gradient that has been
        multiplied with the reciprocal roots.
        """
        writer, kept, key = self._writer, self._kept, ("root", self._number)
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=-1)
        kept.bring(key, MADE)
        writer.measure(GRADIENT, first=GRADIENT, second=MADE)
        kept.free(key)

    # The methods below add up all rows, channel by channel.

    def _totals(self, add: Callable[[int], None], entry: Entry, exponent: int = 0) -> range:
        """Return the int16 means of all channels, over the rows of all cores.

        The means are a pair of lines for each block, followed by a tile of zeros. `add` takes the
        number of a block, and writes the block's sums into the accumulator row of the same number.
        Parameter entry `entry` turns the sums into means. An `exponent` above 0 is the register
        that has the entry's shift.
        """
        for block in range(self._blocks):
            add(block)
        return self._means(0, entry, exponent)

    def _means(self, row: int, entry: Entry, exponent: int = 0) -> range:
        """Add up accumulator rows over all cores, and return the means that `entry` makes of the
        sums.

        There is a row for each block, from row `row` on. The lines of the means are as in
        `_totals`.
        """
        writer, blocks = self._writer, self._blocks
        lines = self._room()
        add_up(writer, self._task, row, blocks)
        for own in own_rows(self._task, blocks):
            to, how = lines.start + 2 * own.start, {"wide": 1, "exponent": exponent}
            writer.activate(row + own.start, to, len(own), entry, **how)
        give_to_all(writer, self._task, lines[: 2 * blocks])
        return lines

    def _room(self) -> range:
        """Allocate a pair of lines for the int16 numbers of each block, then a tile of zeros."""
        writer, lines = self._writer, 2 * self._blocks
        room = writer.allocate(lines + 2 * writer.layout.size)
        self._filled(room[lines:], np.zeros(writer.layout.size, np.int8))
        return room

    def _add(self, ones: range, lines: range, row: int, **how: int) -> None:
        """Write the sums of all rows of a block, channel by channel, into accumulator row `row`."""
        at = ones.start, lines.start, row, 1, self._rows // self._writer.layout.size, 1
        self._writer.multiply(*at, **how)

    def _add_products(
        self, ones: range, lines: range, others: range, products: range, row: int, **how: int
    ) -> None:
        """Multiply two blocks element by element, and write the sums of the products, channel by
        channel, into accumulator row `row`.
        """
        at = lines.start, others.start, products.start, self._rows, ONE, WIDENING
        self._writer.vector(Operation.MULTIPLY, *at)
        self._add(ones, products, row, wide_weights=1, **how)

    def _ones(self) -> range:
        """Return lines of ones with which the array adds up the rows of a block.

        A line has ones for C rows of the block, but zeros for rows of padding.
        """
        writer, size = self._writer, self._writer.layout.size
        lines = writer.allocate(self._rows // size)
        whole, rest = divmod(self._there, size)
        some = (np.arange(size) < rest).astype(np.int8)
        self._filled(lines[:whole], np.ones(size, np.int8))
        self._filled(lines[whole : whole + 1], some)
        self._filled(lines[whole + 1 :], np.zeros(size, np.int8))
        return lines

    def _filled(self, lines: range, values: NDArray[np.int8]) -> None:
        """Write the same int8 numbers into all lines of a region, which may be empty."""
        if not lines:
            return
        given = self._writer.constant(values[np.newaxis])
        self._writer.copy(given.start, lines.start, 1, ONE, NARROW)
        self._writer.free(given)
        repeat(self._writer, lines, 1)

    def _tell(self, mean: range, variance: range, at: int) -> None:
        """Write means, variances and their fraction bits to host memory, where the host updates the
        moving means and variances from them.
        """
        writer, layout, lines = self._writer, self._writer.layout, 2 * self._blocks
        place = layout.measured[self._number]
        writer.write(place, mean[:lines])
        writer.write(place + lines * layout.pitch, variance[:lines])
        for n, key in enumerate((at, ("spread", self._number))):
            first = 2 * lines + 2 * KEPT_LINES * n
            self._kept.write(key, place + first * layout.pitch)

    # The methods below compute with one number for each channel.

    def _roots(self, variance: range) -> range:
        """Write 1 / root(variance + epsilon) for each channel, and return the lines of these roots.

        Exponent register SPREAD has the fraction bits of x - mean. Exponent register ROOT gets the
        fraction bits of the roots. The variances are overwritten.
        """
        writer, blocks = self._writer, self._blocks
        code, bits = epsilon_code(self._epsilon)
        writer.measure(SHIFT, third=SPREAD, value=bits - 2)
        writer.measure(SHIFT, first=SHIFT, third=SPREAD)
        self._raise(variance[: 2 * blocks], np.full(writer.layout.size, code), Entry(), SHIFT)
        if short := self._units % writer.layout.size:
            # Padding channels of the last block get the largest variance, so that they do not raise
            # the largest root.
            free = np.where(np.arange(writer.layout.size) < short, 0, _HIGHEST)
            self._raise(variance[2 * blocks - 2 : 2 * blocks], free, ONE, 0)
        power, scale, root = (writer.allocate(2 * blocks) for _ in range(3))
        part = writer.allocate(blocks)
        self._filled_wide(scale, np.ones(writer.layout.size, np.int64))
        at = variance.start, scale.start, power.start, blocks, ONE, WIDE
        writer.vector(Operation.MULTIPLY, *at, function=Function.QUOTIENT)
        high, low = map(writer.table, root_tables())
        to, eighths = (power.start, part.start, blocks), Entry(left=4)
        floor = Entry(right=6, bias=FLOOR)
        writer.copy(*to, floor, NARROWING, Function.TABLE, table=high)
        writer.copy(part.start, scale.start, blocks, eighths, WIDENING)
        writer.copy(*to, ONE, NARROWING, Function.TABLE, table=low)
        at = part.start, 0, scale.start, blocks, ONE, WIDENING
        writer.vector(Operation.COPY, *at, accumulate=1)
        for one, other in ((scale, scale), (variance, power)):
            at = one.start, other.start, power.start, blocks, ONE, WIDE
            writer.vector(Operation.MULTIPLY, *at)
        writer.copy(
            *(power.start, power.start, blocks, ONE, WIDE, Function.EXP), table=INVERSE_ROOT
        )
        how = {"buffer": scale.start, "rows": blocks, "bits": 2, "value": -1}
        writer.measure(SHIFT, Source.LINES, **how)
        at = power.start, scale.start, root.start, blocks, Entry(), WIDE
        writer.vector(Operation.MULTIPLY, *at, exponent=SHIFT)
        writer.measure(ROOT, third=SHIFT, value=ROOT_BITS)
        writer.free(power, scale, part)
        return root

    def _raise(self, lines: range, values: NDArray[np.int64], entry: Entry, exponent: int) -> None:
        """Requantise int16 numbers by a parameter entry, and add the same results to each pair of
        lines.
        """
        writer = self._writer
        given = writer.constant(pairs(values[np.newaxis]))
        for line in lines[::2]:
            at = given.start, 0, line, 1, entry, WIDE
            writer.vector(Operation.COPY, *at, accumulate=1, exponent=exponent)
        writer.free(given)

    def _filled_wide(self, lines: range, values: NDArray[np.int64]) -> None:
        """Write the same int16 numbers into all pairs of lines of a region."""
        writer = self._writer
        given = writer.constant(pairs(values[np.newaxis]))
        writer.copy(given.start, lines.start, 1, ONE, WIDE)
        writer.free(given)
        repeat(writer, lines, 2)

    # The methods below write products of all rows, and requantise these products.

    def _unit(self, *, negative: bool = False) -> range:
        """Return an int16 tile with 2^UNIT_BITS on its diagonal, or -2^UNIT_BITS if `negative`."""
        one = -(1 << UNIT_BITS) if negative else 1 << UNIT_BITS
        return self._writer.constant(pairs(np.eye(self._writer.layout.size, dtype=np.int64) * one))

    def _less(self) -> range:
        """Return int8 vectors with the factor LESS in the first lane and zeros in the other lanes.

        There are as many vectors as the accumulators take rows of a block at one time.
        """
        lines = self._writer.allocate(self._most)
        first = np.arange(self._writer.layout.size) == 0
        self._filled(lines, (first * LESS).astype(np.int8))
        return lines

    def _diagonals(self, lines: range, *, negative: bool = False) -> range:
        """Return a tile for each block of channels, with an int16 number of each channel on the
        diagonal.

        `lines`: the numbers, which are negated if `negative`.
        """
        writer, size = self._writer, self._writer.layout.size
        unit, tiles = self._unit(negative=negative), writer.allocate(2 * size * self._blocks)
        for block in range(self._blocks):
            tile = tiles[2 * size * block : 2 * size * (block + 1)]
            writer.copy(lines.start + 2 * block, tile.start, 1, ONE, WIDE)
            repeat(writer, tile, 2)
            at = tile.start, unit.start, tile.start, size, shifted(UNIT_BITS - 1), WIDE
            writer.vector(Operation.MULTIPLY, *at)
        writer.free(unit)
        return tiles

    def _tile(self, tiles: range, block: int) -> int:
        return tiles.start + 2 * self._writer.layout.size * block

    def _of(self, lines: range, block: int) -> range:
        return lines[block * self._rows : (block + 1) * self._rows]

    def _times(self, lines: range, rows: range, tile: int, row: int, accumulate: int = 0) -> None:
        """Multiply some rows with an int16 tile, and write or accumulate the products in
        accumulator rows from `row` on.
        """
        at = lines.start + rows.start, tile, row, len(rows), 1, 1
        self._writer.multiply(*at, accumulate=accumulate, wide_weights=1)

    def _minus(self, less: range, mean: range, block: int, rows: range, row: int) -> None:
        """Subtract the means of a block from its sums in the accumulators, except in rows of
        padding.
        """
        if there := self._here(rows):
            at = less.start, mean.start + 2 * block, row, there, 1, 1
            self._writer.multiply(*at, accumulate=1, wide_weights=1)

    def _here(self, rows: range) -> int:
        """Return how many of some rows of a block are samples, and not padding."""
        return min(max(self._there - rows.start, 0), len(rows))

    def _parts(self) -> Iterator[tuple[int, range, int]]:
        """Yield parts of the batch that fit the accumulators.

        A part is a block, some rows of this block, and the accumulator row where the sums of these
        rows begin.
        """
        for block in range(self._blocks):
            for first in range(0, self._rows, self._most):
                rows = range(first, min(first + self._most, self._rows))
                yield block, rows, (block * self._rows + first) * self._at_once

    def _narrowed(self, sums: Sums, *, wide: bool = False) -> range:
        """Measure sums, and write them shifted to int8, or to int16 if `wide`; return the lines.

        Exponent register SHIFT has the least allowed shift before, and the used shift after.
        """
        writer = self._writer

        def measure(row: int, rows: int) -> None:
            if rows:
                at = {"accumulator": row, "rows": rows, "bits": 8 << wide, "first": SHIFT}
                writer.measure(SHIFT, Source.ACCUMULATORS, **at)

        return self._written(sums, measure, lambda: agree(writer, self._task, MADE), wide=wide)

    def _written(
        self,
        sums: Sums,
        measure: Callable[[int, int], None],
        end: Callable[[], None],
        *,
        wide: bool = False,
    ) -> range:
        """Write sums as lines, shifted by exponent register SHIFT, after all sums have been
        measured.

        `sums` writes the sums of some rows. `measure` is called with the accumulator rows of these
        sums, and `end` after the last sums. If the accumulators have no room for all sums, `sums`
        is called a second time.
        """
        writer = self._writer
        for block, rows, row in self._parts():
            sums(block, rows, row)
            measure(row, self._here(rows))
        end()
        result = writer.allocate(self._blocks * self._rows << wide)
        for block, rows, row in self._parts():
            if not self._at_once:
                sums(block, rows, row)
            line = result.start + (block * self._rows + rows.start << wide)
            writer.activate(row, line, len(rows), Entry(), exponent=SHIFT, wide=int(wide))
        return result

    def _without_padding(self, lines: range) -> None:
        """Write zeros into the rows of padding of all blocks."""
        for block in range(self._blocks):
            self._clear_padding(self._of(lines, block))

    def _clear_padding(self, lines: range) -> None:
        """Write zeros into the rows of padding of one block."""
        if padding := self._rows - self._there:
            line = lines.stop - padding
            self._writer.copy(line, line, padding, Entry(0), NARROW)
