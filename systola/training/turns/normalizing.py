# SPDX-License-Identifier: Apache-2.0
"""Writes the normalisation of a batch for all its turns (parts), forward and backward.

A row is a sample, or a pixel of a sample's map. Blocks of channels come from host memory one after
the other. Each block comes several times: once for each number, such as a mean, that depends on all
rows. The sums of each channel stay in the last accumulator rows until all turns have been added, so
these sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from systola.arch.isa import Source
from systola.training.branches.joins import MADE
from systola.training.branches.kept import Kept
from systola.training.branches.normalizing import ROOT, SPREAD, Normalizing
from systola.training.errors import NoRoomError
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.normalization import (
    UNIT_BITS,
    mean_entry,
    most_spread_bits,
    slope_entry,
    variance_entry,
)
from systola.training.passes import Pass, UnitScale
from systola.training.task import GRADIENT, INPUTS, SHIFT, SPARE, Exponent, Task
from systola.training.turns.walk import each_turn, result, spilled
from systola.training.writer import Entry, Writer

Place = Callable[[Layout], int]
"""A function from the layout of a turn to a place in host memory."""


class TurnedNormalizing(Normalizing):
    """A writer of a stage that normalises a batch which is taken in several turns."""

    def __init__(self, writer: Writer, task: Task, number: int, kept: Kept) -> None:
        super().__init__(writer, task, number, kept)
        rows = writer.config.accumulator_rows
        self._first, self._second = rows - 2 * self._blocks, rows - self._blocks
        """Numbers of the first rows of two regions of the accumulators: for sums of numbers, and
        for sums of products. Each region has a row for each block."""
        self._most = min(self._rows, self._first // 2)
        if self._most < 1:
            raise NoRoomError(
                f"the accumulators of '{writer.config.name}' have no room for the means of "
                f"{self._units} channels"
            )
        self._slot = 0
        self._ones_of: dict[int, range] = {}
        """Lines of ones for the rows of a turn that are no padding, by the number of these rows."""
        (self._at,) = task.stages[number].sources

    def write(self, left: Pass, *, train: bool) -> None:
        """Write the normalised results of all turns to host memory.

        Exponent register INPUTS has the fraction bits of the inputs.
        """
        if self._frozen or not train:
            root, offset = self._resting()
            self._write_moved(root, offset, left, train=train)
            self._end_resting(root, offset, train=train)
            return
        mean, variance = self._measured()
        self._end_measuring(mean, variance, self._at)
        self._write_moved(self._root, mean, left, train=True)
        self._writer.free(mean, variance)

    def _measured(self) -> tuple[range, range]:
        """Return means and variances of the whole batch.

        Exponent register SPREAD gets the fraction bits of the inputs less the mean.
        """
        writer, kept, number = self._writer, self._kept, self._number
        unit, less = self._unit(), self._less()
        for block, (x,) in self._blocks_of(self._inputs):
            self._add(self._these_ones(), x, self._first + block, accumulate=self._goes_on())
        mean = self._means(self._first, mean_entry(self._count))
        floor = UNIT_BITS - 1 - most_spread_bits(self._epsilon)
        writer.measure(SHIFT, first=INPUTS, value=floor)

        def apart(block: int, x: range, rows: range, row: int) -> None:
            self._times(x, rows, unit.start, row)
            self._minus(less, mean, block, rows, row)

        for block, (x,) in self._blocks_of(self._inputs):
            for rows, row in self._portions():
                apart(block, x, rows, row)
                self._measure(row, self._here(rows))
        agree(writer, self._task, MADE)
        spread, squares = writer.allocate(self._rows), writer.allocate(2 * self._rows)
        for block, (x,) in self._blocks_of(self._inputs):
            for rows, row in self._portions():
                apart(block, x, rows, row)
                to = spread.start + rows.start
                writer.activate(row, to, len(rows), Entry(), exponent=SHIFT)
            self._clear_padding(spread)
            at = self._these_ones(), spread, spread, squares, self._second + block
            self._add_products(*at, accumulate=self._goes_on())
        writer.measure(SPREAD, first=INPUTS, third=SHIFT, value=UNIT_BITS - 1)
        kept.keep(("spread", number), SPREAD)
        variance = self._means(self._second, variance_entry(self._count))
        self._free_ones()
        writer.free(squares, unit, less, spread)
        return mean, variance

    def _write_moved(self, root: range, offset: range, left: Pass, *, train: bool) -> None:
        """Write the results to host memory: inputs times roots, less the offsets.

        A root is 1 / sqrt(variance + epsilon) of a channel. Exponent register ROOT has the fraction
        bits of the roots. The results are measured first, unless their shift is known.
        """
        writer, number = self._writer, self._number
        writer.measure(ROOT, first=ROOT, second=INPUTS)
        tiles, less = self._diagonals(root), self._less()

        def sums(block: int, x: range, rows: range, row: int) -> None:
            self._times(x, rows, self._tile(tiles, block), row)
            self._minus(less, offset, block, rows, row)

        left.inputs[:] = [Exponent(ROOT, 0)] * (number + 1)
        scale = UnitScale(writer, self._task, left, number, train=train)
        for block, (x,) in () if scale.known else self._blocks_of(self._inputs):
            for rows, row in self._portions():
                sums(block, x, rows, row)
                scale.measure(row, self._here(rows))
        scale.end()
        rooms = [writer.allocate(self._rows) for _ in range(2)]
        for block, (x,) in self._blocks_of(self._inputs):
            made = rooms[block % 2]
            for rows, row in self._portions():
                sums(block, x, rows, row)
                writer.activate(row, made.start + rows.start, len(rows), Entry(), exponent=SHIFT)
            self._clear_padding(made)
            self._write_block(self._results, block, made)
        writer.free(tiles, less, *rooms)

    # The methods below write the backward pass.

    def write_back(self) -> None:
        """Write the gradient of the inputs to host memory, over the gradient of the results.

        Exponent register GRADIENT has the fraction bits of the gradient of the results, and gets
        the fraction bits of the gradient of the inputs.
        """
        if self._frozen:
            self._write_times_roots(1, lambda block, lines, rows, row: lines[0][rows.start :])
            return
        writer, kept, number = self._writer, self._kept, self._number
        products = writer.allocate(2 * self._rows)
        for block, (g, codes) in self._blocks_of(self._gradients, self._results):
            ones, how = self._these_ones(), {"accumulate": self._goes_on()}
            self._add(ones, g, self._first + block, **how)
            self._add_products(ones, g, codes, products, self._second + block, **how)
        self._free_ones()
        writer.free(products)
        mean = self._means(self._first, mean_entry(self._count))
        q, right = slope_entry(self._count)
        kept.bring(number + 1, MADE)
        writer.measure(SHIFT, first=MADE, second=MADE, value=right)
        slope = self._means(self._second, Entry(q), SHIFT)
        unit, less = self._unit(), self._less()
        slopes = self._diagonals(slope, negative=True)

        def without(block: int, lines: list[range], rows: range, row: int) -> None:
            g, codes = lines
            self._times(g, rows, unit.start, row)
            self._minus(less, mean, block, rows, row)
            self._times(codes, rows, self._tile(slopes, block), row, accumulate=1)

        writer.measure(SHIFT, value=-8)
        for block, lines in self._blocks_of(self._gradients, self._results):
            for rows, row in self._portions():
                without(block, lines, rows, row)
                self._measure(row, self._here(rows), bits=16)
        agree(writer, self._task, MADE)
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=UNIT_BITS - 1)
        # Register SHIFT is needed for the product with the roots.
        writer.measure(SPARE, first=SHIFT)
        rest = writer.allocate(2 * self._most)

        def rests(block: int, lines: list[range], rows: range, row: int) -> range:
            without(block, lines, rows, row)
            writer.activate(row, rest.start, len(rows), Entry(), wide=1, exponent=SPARE)
            return rest

        self._write_times_roots(2, rests)
        kept.free(("spread", number))
        writer.free(mean, slope, slopes, unit, less, rest)

    def _write_times_roots(
        self, given: int, vectors: Callable[[int, list[range], range, int], range]
    ) -> None:
        """Multiply some numbers with the roots, and write the products to host memory as the
        gradient.

        The lines of the roots are freed.

        `vectors` writes the numbers to multiply, and returns their lines. Its arguments are a
        block, the lines read for the block, some rows of the block and a free accumulator row. If
        `given` is 1, the lines read are the gradient, and the numbers are int8. If `given` is 2,
        the lines read are the gradient and the results, and the numbers are int16.
        """
        writer, tiles = self._writer, self._diagonals(self._root)
        places, how = (self._gradients, self._results)[:given], {"wide_vectors": given - 1}

        def product(block: int, lines: list[range], rows: range, row: int) -> int:
            found = vectors(block, lines, rows, row)
            row, tile = self._next_row(), self._tile(tiles, block)
            writer.multiply(found.start, tile, row, len(rows), 1, 1, wide_weights=1, **how)
            return row

        writer.measure(SHIFT, value=-8)
        for block, lines in self._blocks_of(*places):
            for rows, row in self._portions():
                self._measure(product(block, lines, rows, row), self._here(rows))
        agree(writer, self._task, MADE)
        rooms = [writer.allocate(self._rows) for _ in range(2)]
        for block, lines in self._blocks_of(*places):
            made = rooms[block % 2]
            for rows, row in self._portions():
                row = product(block, lines, rows, row)
                writer.activate(row, made.start + rows.start, len(rows), Entry(), exponent=SHIFT)
            self._write_block(self._gradients, block, made)
        self._end_times_roots()
        writer.free(tiles, self._root, *rooms)

    # The methods below yield blocks of channels, and some of their rows.

    def _inputs(self, layout: Layout) -> int:
        return result(layout, self._at)

    def _results(self, layout: Layout) -> int:
        return result(layout, self._number + 1)

    def _gradients(self, layout: Layout) -> int:
        return spilled(layout).gradients[self._number]

    def _blocks_of(self, *places: Place) -> Iterator[tuple[int, list[range]]]:
        """Read each block of each turn from `places`: yield the block's number, and its lines from
        each place.
        """
        writer = self._writer
        rooms = [[writer.allocate(self._rows) for _ in places] for _ in range(2)]
        for task in each_turn(writer, self._task):
            layout = writer.layout
            self._there = len(task.share(layout.size)) * layout.shapes[self._number].left
            for block in range(self._blocks):
                rooms.reverse()
                for place, lines in zip(places, rooms[0], strict=True):
                    writer.read(place(layout) + block * self._rows * layout.pitch, lines)
                yield block, rooms[0]
        writer.free(*(lines for room in rooms for lines in room))

    def _write_block(self, place: Place, block: int, lines: range) -> None:
        layout = self._writer.layout
        self._writer.write(place(layout) + block * self._rows * layout.pitch, lines)

    def _portions(self) -> Iterator[tuple[range, int]]:
        """Cut the rows of a block into runs: yield each run, and the first of as many free
        accumulator rows.
        """
        for first in range(0, self._rows, self._most):
            yield range(first, min(first + self._most, self._rows)), self._next_row()

    def _next_row(self) -> int:
        """Return the first row of a free accumulator region; successive calls alternate between two
        regions.
        """
        self._slot ^= 1
        return self._slot * self._most

    def _measure(self, row: int, rows: int, bits: int = 8) -> None:
        """Raise exponent register SHIFT to the shift that `rows` rows of sums need; `rows` may be
        0.
        """
        if rows:
            at = {"accumulator": row, "rows": rows, "bits": bits, "first": SHIFT}
            self._writer.measure(SHIFT, Source.ACCUMULATORS, **at)

    def _goes_on(self) -> int:
        """Return 1 if sums of earlier turns are in the accumulators, to be added to, else 0."""
        return int(self._writer.turn > 0)

    def _these_ones(self) -> range:
        """Return lines of ones for the rows of the present turn that are no padding."""
        if self._there not in self._ones_of:
            self._ones_of[self._there] = self._ones()
        return self._ones_of[self._there]

    def _free_ones(self) -> None:
        self._writer.free(*self._ones_of.values())
        self._ones_of.clear()
