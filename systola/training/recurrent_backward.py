# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of an LSTM through time.

z stands for the sums before the sigmoid or tanh of the gates. The gradients of states, cells, z and
inputs are int16, all with the number of fraction bits in exponent register GRADIENT. So gradients
of different steps can be added. A gradient that fades from step to step keeps bits that int8 would
lose. The gradient of the last state is scaled to TOP_BITS bits, so that gradients of earlier steps
may be larger. The gradient of a weight is one sum over all steps and samples.

dx stands for the gradient of x, h for the state and c for the cell of a step. `before` and `after`
mark numbers of the step before and of the step after.

- dz of the gates: dc g i' for i, dc c_before f' for f, dc i g' for g, dh tanh(c) o' for o.
- Slopes: g' is 1 - g^2; i', f' and o' are x (1 - x) with x for the gate.
- dc is dh o (1 - tanh(c)^2) + dc_after f_after.
"""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.isa import Operation, Source
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import accumulated, gradient_scale, units_register
from systola.training.recurrent_base import CELL_BITS, LEAST_SHIFT, Sizes
from systola.training.recurrent_update import RecurrentUpdate, input_words
from systola.training.stages import GATES, Recurrence, branched, recurrent_tensor
from systola.training.task import GRADIENT, INPUTS, SHIFT, Task
from systola.training.weights import all_turned
from systola.training.writer import (
    HALF,
    ONE,
    UNIT,
    WIDE,
    WIDENING,
    Entry,
    Writer,
    shifted,
)

TOP_BITS = 12
"""Number of bits to which the largest int16 gradient of the last state is scaled."""
TOP_BITS_OF_ALL = 11
"""Number of bits to which the largest int16 gradient of all states is scaled, if the next layer
takes the states of all steps."""
INT8_BITS = 7
_SUM_BITS = 30
"""Largest number of magnitude bits of a weight's gradient, a sum over all steps and samples."""
SLOPE_BITS = 14
"""Number of fraction bits of the product c_before f', which is below 2."""
_LARGEST = (1 << 15) - 1


@dataclass(frozen=True)
class Room:
    """A region of the buffer for the int16 numbers of one step in time."""

    cells: range
    """Buffer lines of the gates, the cell and the tanh of the cell."""
    before: range
    """Buffer lines of the cell of the step before, or for a GRU of the state of the step before."""
    slopes: range
    """Buffer lines of the slopes of the gates, and later of the gradients dz of the gates' sums."""


@dataclass(frozen=True)
class _Product:
    """A product of dz, the gradient of the gates' sums, with transposed weights."""

    tiles: range
    slopes: range
    """Range of the blocks of dz that are multiplied, counted from the first block of a step."""
    result: range
    blocks: int
    """Number of blocks of results; 0 if there is no product."""
    master_bits: int
    added: bool = False
    """Whether the product is added to the lines `result`, which already have a part of the
    gradient. Otherwise the product overwrites these lines."""


class RecurrentBackward:
    """A writer of the backward pass of an LSTM through time."""

    _kept = len(GATES) + 2
    """Number of int16 numbers that the forward pass keeps for each unit and step."""
    _added = False
    """Whether a part of a state's gradient comes from the step after without a product with
    weights, as in a GRU."""

    def __init__(self, writer: Writer, task: Task, number: int = 0) -> None:
        self._writer = writer
        self._task = task
        self._number = number
        self._stage = task.stages[number]
        self._given = HALF, 0
        """Scale for the gradients of all states, see `passes.gradient_scale`: a multiplier, and the
        number of fraction bits that the multiplier takes."""

    def write(self, gradient: range) -> None:
        """Write the backward pass and the updates, from the int8 gradient of the last state.

        `gradient` is [block of units][sample], and its lines are freed. If another LSTM takes the
        states, `gradient` is empty and the gradients of all states are in host memory.
        """
        layout, lstm = self._writer.layout, self._stage.lstm
        assert lstm
        self.take(layout, lstm)
        if lstm.sequences:
            self.begin_all()
            self.measure_all()
            self.end_all()
        self._steps(gradient)
        if not lstm.sequences:
            self.end()
        RecurrentUpdate(self._writer, self._task, self._number, self._sizes).write()

    def take(self, layout: Layout, lstm: Recurrence) -> None:
        """Take the samples of one turn (part of the batch): `layout` has the places of these
        samples in host memory.
        """
        self._sizes = Sizes(layout, lstm, self._number)
        self._count = lstm.steps * layout.samples
        """Number of products in the gradient of one weight: steps times samples, padding
        included."""
        self._bits = gradient_bits(lstm.steps * self._task.count)
        self._left_bits = min(TOP_BITS, self._bits) - INT8_BITS

    def end(self) -> None:
        """Put the number of fraction bits of the gradients of all steps into exponent register
        GRADIENT.
        """
        self._writer.measure(GRADIENT, first=GRADIENT, value=self._left_bits)

    def turn(self, layout: Layout, lstm: Recurrence, gradient: range) -> None:
        """Write the backward pass through all steps for the samples of a turn; free `gradient`."""
        self.take(layout, lstm)
        self._steps(gradient)

    def _steps(self, gradient: range) -> None:
        writer, layout, sizes, task = self._writer, self._writer.layout, self._sizes, self._task
        rows, places, samples = sizes.rows, sizes.places, layout.samples
        tensor = recurrent_tensor(task.stages, self._number)
        recurrent = all_turned(writer, tensor)
        embedded, sequences = self._number > 0 or input_words(task), not gradient
        kernel = all_turned(writer, self._number) if embedded else range(0)
        state, cell = (writer.allocate(2 * rows) for _ in range(2))
        if sequences:
            self._read_gradient(sizes.steps - 1, state)
        else:
            entry = shifted(-self._left_bits - 1)
            writer.copy(gradient.start, state.start, rows, entry, WIDENING)
        writer.free(gradient)
        rooms = self._rooms()
        below = writer.allocate(2 * sizes.inputs * samples if embedded else 0)
        master_bits = task.master_bits
        added = sequences or self._added
        at = recurrent, sizes.recurrent, state, sizes.units
        to_state = _Product(*at, master_bits[tensor], added=added)
        blocks = sizes.inputs if embedded else 0
        at = kernel, sizes.kernel, below, blocks
        to_inputs = _Product(*at, master_bits[self._number])
        beside = (sizes.units + to_inputs.blocks) * samples <= writer.config.accumulator_rows
        number = sizes.steps - 1
        self._slopes(number, rooms[number % 2])
        self._gates(rooms[number % 2], state, cell, last=True)
        for step in reversed(range(sizes.steps)):
            slopes, earlier = rooms[step % 2].slopes, rooms[(step - 1) % 2]
            self._write_block(places.gates, step, slopes, sizes.gates)
            if not beside:
                self._product(slopes, to_inputs)
            if step and sequences:
                self._add_gradient(step - 1, state, cell)
            row = self._begin_product(slopes, to_state) if step else 0
            if beside:
                self._begin_product(slopes, to_inputs, row)
            if step:
                # The array multiplies while these slopes are written.
                self._slopes(step - 1, earlier)
                self._end_product(to_state)
                self._gates(earlier, state, cell, last=False)
            if beside:
                self._end_product(to_inputs, row)
            if embedded:
                self._write_block(places.below, step, below, sizes.inputs)
        writer.free(recurrent, kernel, state, cell, below)
        for room in {id(each): each for each in rooms}.values():
            writer.free(room.cells, room.before, room.slopes)

    def _rooms(self) -> list[Room]:
        """Return two regions of the buffer for successive steps, or one region twice if the buffer
        has no room for two.
        """
        writer, step = self._writer, 2 * self._sizes.rows
        lines = self._kept * step, step, len(GATES) * step
        first = Room(*map(writer.allocate, lines))
        below = 2 * self._sizes.inputs * writer.layout.samples
        lstm, masks = self._stage.lstm, 0
        if lstm and lstm.sequences and self._stage.rate:
            masks = 3 * self._sizes.rows
        if not writer.fits(*lines, below, masks):
            return [first, first]
        return [first, Room(*map(writer.allocate, lines))]

    def begin_all(self) -> None:
        """Put the least possible shift into exponent register SHIFT, before the gradients of all
        states are measured.
        """
        self._given = gradient_scale(self._stage)
        self._writer.measure(SHIFT, value=LEAST_SHIFT)

    def measure_all(self) -> None:
        """Measure the gradients of all states for the samples of the present turn."""
        writer, sizes = self._writer, self._sizes
        lines = writer.allocate(2 * sizes.rows)
        bits = min(TOP_BITS_OF_ALL, self._bits) + 1
        at = {"buffer": lines.start, "rows": sizes.rows, "bits": bits, "first": SHIFT}
        for step in range(sizes.steps):
            self._read_above(step, lines)
            writer.measure(SHIFT, Source.LINES, **at)
        writer.free(lines)

    def end_all(self) -> None:
        """Put the shift for the gradients of all states into exponent register SHIFT, and the
        number of fraction bits of the shifted gradients into GRADIENT.
        """
        above = units_register(self._task, self._number + 1)
        agree(self._writer, self._task, INPUTS + 2 if branched(self._task.stages) else above)
        self._writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=-self._given[1])

    def _read_above(self, step: int, lines: range) -> None:
        """Read the unshifted int16 gradient of the states of a step, which the LSTM above has
        written for its inputs.
        """
        layout = self._writer.layout
        place = layout.recurrences[self._number + 1].below
        host = place + 2 * step * layout.samples * layout.pitch
        self._writer.read_rows(host, lines, 2 * layout.samples, 2 * self._count)

    def _read_gradient(self, step: int, lines: range) -> None:
        """Read the int16 gradient of the states of a step, shifted to the fraction bits that all
        steps have in common.
        """
        writer, rows, pitch = self._writer, self._sizes.rows, self._writer.layout.pitch
        self._read_above(step, lines)
        entry = Entry(self._given[0])
        writer.copy(lines.start, lines.start, rows, entry, WIDE, exponent=SHIFT)
        if self._stage.rate:
            mask, wide = writer.allocate(rows), writer.allocate(2 * rows)
            writer.read(self._sizes.places.masks + step * rows * pitch, mask)
            writer.copy(mask.start, wide.start, rows, ONE, WIDENING)
            at = (lines.start, wide.start, lines.start, rows, ONE, WIDE)
            writer.vector(Operation.MULTIPLY, *at)
            writer.free(mask, wide)

    def _add_gradient(self, step: int, state: range, cell: range) -> None:
        """Write the part of a state's gradient that comes from the stage above; a product is added
        later.
        """
        self._read_gradient(step, state)

    def _write_block(self, place: int, step: int, lines: range, blocks: int) -> None:
        """Write int16 lines of a step to an array [block][step][sample] in host memory."""
        pitch, samples = self._writer.layout.pitch, self._writer.layout.samples
        host = place + 2 * step * samples * pitch
        self._writer.write_rows(host, lines[: 2 * blocks * samples], 2 * samples, 2 * self._count)

    def _product(self, slopes: range, product: _Product) -> None:
        """Write a product of dz with weights, in parts that fit the accumulators."""
        if product.blocks:
            self._begin_product(slopes, product)
            self._end_product(product)

    def _begin_product(self, slopes: range, product: _Product, row: int = 0) -> int:
        """Multiply dz with transposed weights; return the first accumulator row after the sums.

        A product with too many sums for the accumulators is made in parts. The results of all parts
        but the last are written. The sums of the last part stay in the accumulators from row `row`
        on.
        """
        for part in self._parts(product):
            self._multiply(slopes, product, part, row)
            if part.stop < product.blocks:
                self._activate(product, part, row)
            else:
                row += len(part) * self._writer.layout.samples
        return row

    def _end_product(self, product: _Product, row: int = 0) -> None:
        """Write the results of the part of a product that is still in the accumulators, int16 with
        the fraction bits of dz.
        """
        for part in self._parts(product)[-1:]:
            self._activate(product, part, row)

    def _parts(self, product: _Product) -> list[range]:
        writer = self._writer
        return accumulated(writer.config, writer.layout.samples, product.blocks)

    def _multiply(self, slopes: range, product: _Product, part: range, row: int) -> None:
        layout, samples = self._writer.layout, self._writer.layout.samples
        weights = product.tiles.start + part.start * len(product.slopes) * layout.size
        vectors = slopes.start + 2 * product.slopes.start * samples
        sizes = samples, len(product.slopes), len(part)
        self._writer.multiply(vectors, weights, row, *sizes, wide_vectors=1)

    def _activate(self, product: _Product, part: range, row: int) -> None:
        writer, samples = self._writer, self._writer.layout.samples
        line = product.result.start + 2 * part.start * samples
        entry = shifted(product.master_bits - MASTER_SHIFT - 1)
        added = int(product.added)
        writer.activate(row, line, len(part) * samples, entry, wide=1, accumulate=added)

    def _slopes(self, number: int, room: Room) -> None:
        """Read the numbers that the forward pass has kept of a step, and write the slopes of the
        gates.

        The slope of a gate is dz / dc, or dz / dh for the output gate. Slopes do not depend on
        later steps. The factor dc / dh replaces tanh(c) in the buffer. The slope of gate f has
        SLOPE_BITS fraction bits, all others have 15.
        """
        writer, rows, layout = self._writer, self._sizes.rows, self._writer.layout
        step, lines = 2 * rows, len(room.cells)
        host = self._sizes.places.cells + (number + 1) * lines * layout.pitch
        writer.read(host, room.cells)
        writer.read(host - 2 * step * layout.pitch, room.before)
        starts = [room.cells.start + step * n for n in range(len(GATES) + 2)]
        enter, _, output, new, _, tanh = starts
        slope = [room.slopes.start + step * n for n in range(len(GATES))]
        self._times(enter, enter, slope[0], len(GATES) * rows, 15)
        at = (enter, slope[0], slope[0], 3 * rows, ONE, WIDE)
        writer.vector(Operation.SUBTRACT, *at, scales=(UNIT, UNIT))
        self._below_one(slope[3], slope[3])
        before = room.before.start
        for n, (factor, bits) in enumerate(
            ((new, 15), (before, CELL_BITS + 15 - SLOPE_BITS), (tanh, 15), (enter, 15))
        ):
            self._times(slope[n], factor, slope[n], rows, bits)
        self._times(tanh, tanh, tanh, rows, 15)
        self._below_one(tanh, tanh)
        self._times(tanh, output, tanh, rows, 15)

    def _gates(self, room: Room, state: range, cell: range, *, last: bool) -> None:
        """Write dz in place of the slopes, and dc f to lines `cell`, for use in the step before.

        At first the lines `cell` have dc f of the step after, which is added to dc. In the last
        step in time (`last`) nothing is added.
        """
        rows = self._sizes.rows
        step = 2 * rows
        forget, tanh = (room.cells.start + step * n for n in (1, len(GATES) + 1))
        enters, forgets, outputs, news = (room.slopes.start + step * n for n in range(len(GATES)))
        self._times(outputs, state.start, outputs, rows, 15, limited=True)
        self._times(tanh, state.start, cell.start, rows, 15, accumulate=not last)
        self._times(enters, cell.start, enters, rows, 15, limited=True)
        self._times(forgets, cell.start, forgets, rows, SLOPE_BITS, limited=True)
        self._times(news, cell.start, news, rows, 15, limited=True)
        self._times(cell.start, forget, cell.start, rows, 15)

    def _times(
        self,
        a: int,
        b: int,
        result: int,
        rows: int,
        right: int,
        *,
        limited: bool = False,
        accumulate: bool = False,
    ) -> None:
        """Write int16 products a * b / 2^right to line `result` on. With `accumulate` the products
        are added to the numbers there.
        """
        limit = (1 << self._bits) - 1 if limited and self._bits < 15 else 0
        at = (a, b, result, rows, shifted(right - 1), WIDE)
        self._writer.vector(Operation.MULTIPLY, *at, limit=limit, accumulate=int(accumulate))

    def _below_one(self, lines: int, result: int) -> None:
        """Write 1 - x for int16 numbers x with 15 fraction bits."""
        at = (lines, lines, result, self._sizes.rows, Entry(left=1, bias=_LARGEST), WIDE)
        self._writer.vector(Operation.SUBTRACT, *at, scales=(0, UNIT))


def gradient_bits(count: int) -> int:
    """Return the largest number of bits, up to 15, that dz may have so that sums fit 32 bits.

    A sum has `count` products of a dz with an int8 number.
    """
    return min(15, _SUM_BITS - INT8_BITS - (count - 1).bit_length())
