# SPDX-License-Identifier: Apache-2.0
"""Writes the update of the weights of an LSTM or GRU, and of its embeddings, from the gradients of
all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systola.training.moves import turned_ones
from systola.training.passes import most_blocks
from systola.training.recurrent_base import STATE_SHIFT, Sizes, state_register, step_inputs
from systola.training.stages import EMBEDDING, recurrent_tensor
from systola.training.task import SHIFT, Exponent, Task
from systola.training.update import Masters, begin_telling, cut, rooms, tell, update_shift
from systola.training.writer import NARROWING, Entry, Writer


@dataclass(frozen=True)
class _Piece:
    """A run of blocks of inputs of one weight tensor. The weights for these inputs are updated
    together.
    """

    tensor: int
    blocks: range
    master_bits: int
    inputs: Exponent


class RecurrentUpdate:
    """A writer of the updates of all weights of an LSTM or GRU."""

    def __init__(self, writer: Writer, task: Task, number: int, sizes: Sizes) -> None:
        self._writer = writer
        self._task = task
        self._number = number
        self._stage = task.stages[number]
        self._sizes = sizes
        self._count = sizes.steps * writer.layout.samples
        """Number of products in the gradient of one weight: steps times samples, padding
        included."""

    def write(self) -> None:
        """Write the updates of kernels, biases and embeddings."""
        learnt = recurrent_tensors(self._task, self._number)
        begin_telling(self._writer, self._task, *learnt)
        self._update_kernels()
        if self._stage.lstm and self._stage.lstm.vocabulary:
            self._update_embeddings()
        tell(self._writer, self._task, *learnt)

    def _update_kernels(self) -> None:
        """Add the products of inputs, states and ones with dz to the masters of kernels and biases.

        dz is the gradient of the sums of the gates.
        """
        writer, sizes, task = self._writer, self._sizes, self._task
        recurrent = recurrent_tensor(task.stages, self._number)
        blocks = [(self._number, number) for number in range(sizes.inputs + 1)]
        blocks += [(recurrent, number) for number in range(sizes.state_inputs)]
        # The buffer has the transposed inputs, dz of a block of units twice, and masters.
        most = max(1, writer.config.buffer_lines // self._count - 5)
        for first in range(0, len(blocks), most):
            self._update_some(blocks[first : first + most])

    def _update_some(self, blocks: list[tuple[int, int]]) -> None:
        """Update the masters (int16 weights) for some blocks of inputs, given as pairs of the
        numbers of a tensor and of a block.
        """
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
                owned = sizes.kernel if piece.tensor == self._number else sizes.recurrent
                if unit not in owned:
                    continue
                for place, block in enumerate(piece.blocks):
                    vectors, row = turned[piece.tensor, block], turn * half + place * size
                    at = (vectors.start, lines.start, row, size, count // size, 1)
                    writer.multiply(*at, wide_weights=1)
                entry = update_shift(writer, task, piece.tensor, piece.master_bits, piece.inputs)
                line = (unit - owned.start) * layout.shapes[
                    piece.tensor
                ].lines + piece.blocks.start * size
                room = cut(places[turn], len(piece.blocks) * size)
                Masters(writer, task, piece.tensor, line, room).update(turn * half, entry)
                turn ^= 1
        writer.free(*turned.values(), *slopes, *(lines for pair in places for lines in pair))

    def _pieces(self, blocks: list[tuple[int, int]]) -> list[_Piece]:
        """Cut blocks of inputs into runs, so that the sums of a run fit half of the accumulators.

        A block for biases is a run of its own.
        """
        task, config = self._task, self._writer.config
        less = self._stage.tensor.bias_less
        most = most_blocks(config, task)
        found: list[_Piece] = []
        for tensor, block in blocks:
            bits = task.master_bits[tensor]
            inputs = Exponent(state_register(task, self._number), 0)
            if tensor == self._number:
                inputs = step_inputs(task, tensor)
            if self._of_biases(tensor, block):
                bits, inputs = bits - less, Exponent(0, 0)
            last = found[-1] if found else None
            whole = replace(last, blocks=range(last.blocks.start, block + 1)) if last else None
            like = whole == _Piece(tensor, whole.blocks, bits, inputs) if whole else False
            if whole and like and len(whole.blocks) <= most:
                found[-1] = whole
            else:
                found.append(_Piece(tensor, range(block, block + 1), bits, inputs))
        return found

    def _of_biases(self, tensor: int, block: int) -> bool:
        """Return whether a block of inputs of a tensor is the block of ones for its biases."""
        sizes = self._sizes
        return block == (sizes.inputs if tensor == self._number else sizes.units)

    def _turned(self, tensor: int, block: int) -> range:
        """Return lines with a block of the inputs of all steps, transposed: [step][group of
        samples][input].
        """
        writer, layout, sizes, count = self._writer, self._writer.layout, self._sizes, self._count
        samples, pitch, steps = layout.samples, layout.pitch, sizes.steps
        result = writer.allocate(count)
        if self._of_biases(tensor, block):
            turned_ones(writer, result, Exponent(0, 0), zero=not self._stage.use_bias)
            return result
        lines = writer.allocate(count)
        if tensor == self._number:
            host = sizes.places.inputs + block * samples * pitch
            self._read_blocks(host, lines, samples, sizes.inputs * samples)
        else:
            masters = writer.allocate(2 * count)
            # The states in host memory begin with the state before the first step, and the last
            # state is not read.
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
        """Read `blocks` lines of each step from host memory, where the lines of successive steps
        begin `stride` lines apart.
        """
        self._writer.read_rows(host, lines, blocks, stride)

    def _update_embeddings(self) -> None:
        """Add the gradients of the LSTM's inputs to the masters of the Embedding, each gradient to
        the row of its word.
        """
        writer, layout, sizes, task = self._writer, self._writer.layout, self._sizes, self._task
        tensor = len(task.stages) + EMBEDDING
        shape, size, samples = layout.shapes[tensor], layout.size, layout.samples
        count = self._count
        words, turned = (writer.allocate(count) for _ in range(2))
        below = writer.allocate(2 * count)
        # At one time there is room for the sums and masters of a part of the words only.
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


def recurrent_tensors(task: Task, number: int = 0) -> list[int]:
    """Return the numbers of the weight tensors of an LSTM and of the Embedding before it."""
    found = [number, recurrent_tensor(task.stages, number)]
    return found if number or not input_words(task) else [*found, len(task.stages) + EMBEDDING]


def input_words(task: Task) -> bool:
    """Return whether the inputs of the first LSTM are words, so that embeddings are learnt, too."""
    lstm = task.stages[0].lstm
    return lstm is not None and lstm.vocabulary > 0
