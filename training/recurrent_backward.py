# SPDX-License-Identifier: Apache-2.0
"""Writes the way back of an LSTM through time, and the updates of its weights and embeddings.

The gradients of the states, cells, gates' sums z and inputs are int16 with one exponent, in
GRADIENT. So gradients of many steps can be summed. A gradient that fades on its way back keeps bits
that a measured int8 would lose. Gradients begin with TOP_BITS bits, which leaves room to grow.
Gradients of weights are sums over all steps and samples at once.

For gates i, f, g, o in turn, dz is dc g i', dc c_before f', dc i g', dh tanh(c) o'. g' is 1 - g^2,
and x' is x (1 - x) for the others. dc of cells is dh o (1 - tanh(c)^2) + dc_after f_after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systola.arch.isa import Operation, Source
from systola.training.exchange import agree
from systola.training.layout import Layout
from systola.training.moves import turned_ones
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import accumulated, gradient_scale, most_blocks, units_register
from systola.training.recurrent import (
    CELL_BITS,
    LEAST_SHIFT,
    STATE_SHIFT,
    Sizes,
    state_register,
    step_inputs,
)
from systola.training.stages import EMBEDDING, GATES, Recurrence, branched, recurrent_tensor
from systola.training.task import GRADIENT, INPUTS, SHIFT, Exponent, Task
from systola.training.update import Masters, begin_telling, cut, rooms, tell, update_shift
from systola.training.weights import all_turned
from systola.training.writer import (
    HALF,
    NARROWING,
    ONE,
    UNIT,
    WIDE,
    WIDENING,
    Entry,
    Writer,
    shifted,
)

TOP_BITS = 12
"""Bits of the largest gradient of the last state."""
TOP_BITS_OF_ALL = 11
"""Bits of the largest gradient of any state, where every step adds its own on the way back."""
INT8_BITS = 7
_SUM_BITS = 30
"""Bits of the sums over all steps and samples."""
SLOPE_BITS = 14
"""Fraction bits of a cell times the slope of its gate, which is below 2."""
_LARGEST = (1 << 15) - 1


@dataclass(frozen=True)
class _Piece:
    """A run of blocks of inputs of a tensor that are updated together."""

    tensor: int
    blocks: range
    master_bits: int
    inputs: Exponent


@dataclass(frozen=True)
class _Room:
    """A room in the buffer for a step: int16 lines."""

    cells: range
    """Lines of the gates, the cell and its tanh."""
    before: range
    """Lines of the cell of the step before."""
    slopes: range
    """Lines of the slopes of the gates, and then of dz."""


@dataclass(frozen=True)
class _Product:
    """A product of dz with transposed weights."""

    tiles: range
    result: range
    blocks: int
    """Number of blocks of results; 0 for no product."""
    master_bits: int
    added: bool = False
    """Whether the product is added to a result that has the gradient of the inputs above."""


class RecurrentBackward:
    """A writer of the way back of an LSTM."""

    def __init__(self, writer: Writer, task: Task, number: int = 0) -> None:
        self._writer = writer
        self._task = task
        self._number = number
        self._stage = task.stages[number]
        self._given = HALF, 0
        """Multiplier for gradients of states of this LSTM, and the bits that it takes."""

    def write(self, gradient: range) -> None:
        """Write the way back, from the int8 gradient of the last state, [block of units][sample].

        The lines of `gradient` are given back. If another LSTM takes the states, `gradient` is
        empty and the gradients of all states are in host memory.
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
        learnt = recurrent_tensors(self._task, self._number)
        begin_telling(self._writer, self._task, *learnt)
        self._update_kernels()
        if lstm.vocabulary:
            self._update_embeddings()
        tell(self._writer, self._task, *learnt)

    def take(self, layout: Layout, lstm: Recurrence) -> None:
        """Take the places of the samples that are written now."""
        self._sizes = Sizes(layout, lstm, self._number)
        self._count = lstm.steps * layout.samples
        """Steps times samples, in whole blocks: the number of products in a gradient of weights."""
        self._bits = gradient_bits(lstm.steps * self._task.count)
        self._left_bits = min(TOP_BITS, self._bits) - INT8_BITS

    def end(self) -> None:
        """Put the fraction bits of all gradients back through time into GRADIENT."""
        self._writer.measure(GRADIENT, first=GRADIENT, value=self._left_bits)

    def turn(self, layout: Layout, lstm: Recurrence, gradient: range) -> None:
        """Write all steps of the samples of a turn; the gradient is given back."""
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
        to_state = _Product(recurrent, state, sizes.units, master_bits[tensor], added=sequences)
        blocks = sizes.inputs if embedded else 0
        to_inputs = _Product(kernel, below, blocks, master_bits[self._number])
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
                self._read_gradient(step - 1, state)
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

    def _rooms(self) -> list[_Room]:
        """Return rooms for two successive steps: the same room twice if two do not fit."""
        writer, step = self._writer, 2 * self._sizes.rows
        lines = (len(GATES) + 2) * step, step, len(GATES) * step
        first = _Room(*map(writer.allocate, lines))
        below = 2 * self._sizes.inputs * writer.layout.samples
        lstm, masks = self._stage.lstm, 0
        if lstm and lstm.sequences and self._stage.rate:
            masks = 3 * self._sizes.rows
        if not writer.fits(*lines, below, masks):
            return [first, first]
        return [first, _Room(*map(writer.allocate, lines))]

    def begin_all(self) -> None:
        """Begin to measure the shift of the gradients of all states, in SHIFT."""
        self._given = gradient_scale(self._stage)
        self._writer.measure(SHIFT, value=LEAST_SHIFT)

    def measure_all(self) -> None:
        """Measure the gradients of all states of the samples that are written now."""
        writer, sizes = self._writer, self._sizes
        lines = writer.allocate(2 * sizes.rows)
        bits = min(TOP_BITS_OF_ALL, self._bits) + 1
        at = {"buffer": lines.start, "rows": sizes.rows, "bits": bits, "first": SHIFT}
        for step in range(sizes.steps):
            self._read_above(step, lines)
            writer.measure(SHIFT, Source.LINES, **at)
        writer.free(lines)

    def end_all(self) -> None:
        """Put the shift of the gradients of all states into SHIFT, and their bits into GRADIENT."""
        above = units_register(self._task, self._number + 1)
        agree(self._writer, self._task, INPUTS + 2 if branched(self._task.stages) else above)
        self._writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=-self._given[1])

    def _read_above(self, step: int, lines: range) -> None:
        """Read the gradient of the inputs of the LSTM above in a step, int16."""
        layout = self._writer.layout
        place = layout.recurrences[self._number + 1].below
        host = place + 2 * step * layout.samples * layout.pitch
        self._writer.read_rows(host, lines, 2 * layout.samples, 2 * self._count)

    def _read_gradient(self, step: int, lines: range) -> None:
        """Read the gradient of the states of a step, int16 with the exponent of all states."""
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

    def _write_block(self, place: int, step: int, lines: range, blocks: int) -> None:
        """Write int16 lines of a step to host memory, as [block][step][sample]."""
        pitch, samples = self._writer.layout.pitch, self._writer.layout.samples
        host = place + 2 * step * samples * pitch
        self._writer.write_rows(host, lines[: 2 * blocks * samples], 2 * samples, 2 * self._count)

    def _product(self, slopes: range, product: _Product) -> None:
        """Write a product whole, of any size."""
        if product.blocks:
            self._begin_product(slopes, product)
            self._end_product(product)

    def _begin_product(self, slopes: range, product: _Product, row: int = 0) -> int:
        """Multiply dz with transposed weights; return the first row after the last sums.

        The last sums wait in the accumulators from `row` on.
        """
        for part in self._parts(product):
            self._multiply(slopes, product, part, row)
            if part.stop < product.blocks:
                self._activate(product, part, row)
            else:
                row += len(part) * self._writer.layout.samples
        return row

    def _end_product(self, product: _Product, row: int = 0) -> None:
        """Write the last sums of a product, int16 with the exponent that dz has."""
        for part in self._parts(product)[-1:]:
            self._activate(product, part, row)

    def _parts(self, product: _Product) -> list[range]:
        writer = self._writer
        return accumulated(writer.config, writer.layout.samples, product.blocks)

    def _multiply(self, slopes: range, product: _Product, part: range, row: int) -> None:
        layout, gates = self._writer.layout, self._sizes.gates
        weights = product.tiles.start + part.start * gates * layout.size
        sizes = layout.samples, gates, len(part)
        self._writer.multiply(slopes.start, weights, row, *sizes, wide_vectors=1)

    def _activate(self, product: _Product, part: range, row: int) -> None:
        writer, samples = self._writer, self._writer.layout.samples
        line = product.result.start + 2 * part.start * samples
        entry = shifted(product.master_bits - MASTER_SHIFT - 1)
        added = int(product.added)
        writer.activate(row, line, len(part) * samples, entry, wide=1, accumulate=added)

    def _slopes(self, number: int, room: _Room) -> None:
        """Read a step, and write everything that does not depend on the steps after it.

        The slopes are factors of dc or dh with 15 fraction bits, for gate f with SLOPE_BITS. The
        slope of dc goes in place of tanh(c).
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
        self._below_one(slope[3])
        before = room.before.start
        for n, (factor, bits) in enumerate(
            ((new, 15), (before, CELL_BITS + 15 - SLOPE_BITS), (tanh, 15), (enter, 15))
        ):
            self._times(slope[n], factor, slope[n], rows, bits)
        self._times(tanh, tanh, tanh, rows, 15)
        self._below_one(tanh)
        self._times(tanh, output, tanh, rows, 15)

    def _gates(self, room: _Room, state: range, cell: range, *, last: bool) -> None:
        """Write dz in place of the slopes; make dc of the step before from dc of the step after.

        In the last step dh alone gives dc.
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
        """Write int16 a * b / 2^right, or add it to the result."""
        limit = (1 << self._bits) - 1 if limited and self._bits < 15 else 0
        at = (a, b, result, rows, shifted(right - 1), WIDE)
        self._writer.vector(Operation.MULTIPLY, *at, limit=limit, accumulate=int(accumulate))

    def _below_one(self, lines: int) -> None:
        """Write 1 - x in place of int16 x with 15 fraction bits."""
        at = (lines, lines, lines, self._sizes.rows, Entry(left=1, bias=_LARGEST), WIDE)
        self._writer.vector(Operation.SUBTRACT, *at, scales=(0, UNIT))

    # Updates of the weights.

    def _update_kernels(self) -> None:
        """Add the products of inputs, states and ones with dz to the masters."""
        writer, sizes, task = self._writer, self._sizes, self._task
        recurrent = recurrent_tensor(task.stages, self._number)
        blocks = [(self._number, number) for number in range(sizes.inputs + 1)]
        blocks += [(recurrent, number) for number in range(sizes.units)]
        # The buffer has the turned inputs, dz of a block of units twice, and masters.
        most = max(1, writer.config.buffer_lines // self._count - 5)
        for first in range(0, len(blocks), most):
            self._update_some(blocks[first : first + most])

    def _update_some(self, blocks: list[tuple[int, int]]) -> None:
        """Add the products for some blocks of inputs, (tensor, block), to the masters."""
        writer, layout, sizes, task = self._writer, self._writer.layout, self._sizes, self._task
        size, count = layout.size, self._count
        turned = {each: self._turned(*each) for each in blocks}
        slopes = [writer.allocate(2 * count) for _ in range(2)]
        pieces = self._pieces(blocks)
        most = max(len(piece.blocks) for piece in pieces)
        places = rooms(writer, most * size, task)
        half = writer.config.accumulator_rows // 2
        turn = 0
        for unit in range(sizes.gates):
            lines = slopes[unit % 2]
            writer.read(sizes.places.gates + 2 * unit * count * layout.pitch, lines)
            for piece in pieces:
                for place, block in enumerate(piece.blocks):
                    vectors, row = turned[piece.tensor, block], turn * half + place * size
                    at = (vectors.start, lines.start, row, size, count // size, 1)
                    writer.multiply(*at, wide_weights=1)
                entry = update_shift(writer, task, piece.tensor, piece.master_bits, piece.inputs)
                line = unit * layout.shapes[piece.tensor].lines + piece.blocks.start * size
                room = cut(places[turn], len(piece.blocks) * size)
                Masters(writer, task, piece.tensor, line, room).update(turn * half, entry)
                turn ^= 1
        writer.free(*turned.values(), *slopes, *(lines for pair in places for lines in pair))

    def _pieces(self, blocks: list[tuple[int, int]]) -> list[_Piece]:
        """Return runs of blocks, biases apart, with sums that fit half of the accumulators."""
        task, sizes, config = self._task, self._sizes, self._writer.config
        less = self._stage.tensor.bias_less
        most = most_blocks(config, task)
        found: list[_Piece] = []
        for tensor, block in blocks:
            bits = task.master_bits[tensor]
            inputs = Exponent(state_register(task, self._number), 0)
            if tensor == self._number:
                inputs = step_inputs(task, tensor)
                if block == sizes.inputs:
                    bits, inputs = bits - less, Exponent(0, 0)
            last = found[-1] if found else None
            whole = replace(last, blocks=range(last.blocks.start, block + 1)) if last else None
            like = whole == _Piece(tensor, whole.blocks, bits, inputs) if whole else False
            if whole and like and len(whole.blocks) <= most:
                found[-1] = whole
            else:
                found.append(_Piece(tensor, range(block, block + 1), bits, inputs))
        return found

    def _turned(self, tensor: int, block: int) -> range:
        """Write a block of inputs of all steps, transposed: [group of steps and samples][input]."""
        writer, layout, sizes, count = self._writer, self._writer.layout, self._sizes, self._count
        samples, pitch, steps = layout.samples, layout.pitch, sizes.steps
        result = writer.allocate(count)
        if tensor == self._number and block == sizes.inputs:
            turned_ones(writer, result, Exponent(0, 0), zero=not self._stage.use_bias)
            return result
        lines = writer.allocate(count)
        if tensor == self._number:
            host = sizes.places.inputs + block * samples * pitch
            self._read_blocks(host, lines, samples, sizes.inputs * samples)
        else:
            masters = writer.allocate(2 * count)
            # The state before the first step is there, too, but not the last state.
            host = sizes.places.hidden + 2 * block * samples * pitch
            self._read_blocks(host, masters, 2 * samples, 2 * sizes.rows)
            third = state_register(self._task, self._number)
            writer.measure(SHIFT, third=third, value=STATE_SHIFT)
            writer.copy(masters.start, lines.start, count, Entry(), NARROWING, exponent=SHIFT)
            writer.free(masters)
        writer.transpose(lines.start, result.start, steps * layout.groups, layout.size)
        writer.free(lines)
        return result

    def _read_blocks(self, host: int, lines: range, blocks: int, stride: int) -> None:
        """Read `blocks` lines of each step, which are `stride` lines apart in host memory."""
        self._writer.read_rows(host, lines, blocks, stride)

    def _update_embeddings(self) -> None:
        """Add the gradient of the inputs to the masters of their words."""
        writer, layout, sizes, task = self._writer, self._writer.layout, self._sizes, self._task
        tensor = len(task.stages) + EMBEDDING
        shape, size, samples = layout.shapes[tensor], layout.size, layout.samples
        count = self._count
        words, turned = (writer.allocate(count) for _ in range(2))
        below = writer.allocate(2 * count)
        # Some blocks of words at a time have room for their sums and masters.
        most = min(writer.config.accumulator_rows // 2, writer.config.buffer_lines // 32)
        each = max(1, most // size)
        parts = [
            range(first, min(first + each, shape.inputs)) for first in range(0, shape.inputs, each)
        ]
        places = rooms(writer, len(parts[0]) * size, task)
        entry = update_shift(writer, task, tensor, task.master_bits[tensor], Exponent(0, 0))
        turn = 0
        for unit in range(sizes.inputs):
            writer.read(sizes.places.below + 2 * unit * count * layout.pitch, below)
            for part in parts:
                row, rows = turn * (writer.config.accumulator_rows // 2), len(part) * size
                for block in part:
                    host = layout.x + block * samples * layout.pitch
                    self._read_blocks(host, words, samples, shape.inputs * samples)
                    writer.transpose(words.start, turned.start, count // size, size)
                    at = row + (block - part.start) * size
                    writer.multiply(
                        *(turned.start, below.start, at, size, count // size, 1), wide_weights=1
                    )
                line = unit * shape.lines + part.start * size
                room = cut(places[turn], rows)
                Masters(writer, task, tensor, line, room).update(row, entry)
                turn ^= 1
        writer.free(words, turned, below, *(lines for pair in places for lines in pair))


def gradient_bits(count: int) -> int:
    """Return the bits of dz with which `count` products with an int8 stay within 32 bits."""
    return min(15, _SUM_BITS - INT8_BITS - (count - 1).bit_length())


def recurrent_tensors(task: Task, number: int = 0) -> list[int]:
    """Return the numbers of an LSTM's tensors, with the tensor of the Embedding before it."""
    found = [number, recurrent_tensor(task.stages, number)]
    return found if number or not input_words(task) else [*found, len(task.stages) + EMBEDDING]


def input_words(task: Task) -> bool:
    """Return whether the inputs of the LSTM are words, for which embeddings learn, too."""
    lstm = task.stages[0].lstm
    return lstm is not None and lstm.vocabulary > 0
