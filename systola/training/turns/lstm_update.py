# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of an LSTM for all turns (parts) of a batch, and updates its kernels,
some steps at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from systola.training.gru_backward import recurrent_backward
from systola.training.moves import turned_ones
from systola.training.recurrent_backward import RecurrentBackward
from systola.training.recurrent_base import STATE_SHIFT, Sizes, state_register, step_inputs
from systola.training.recurrent_update import recurrent_tensors
from systola.training.stages import Recurrence, recurrent_tensor
from systola.training.task import SHIFT, Exponent, Task
from systola.training.turns.chunks import part_blocks
from systola.training.turns.embedding import Words
from systola.training.turns.walk import each_turn, spilled
from systola.training.update import Masters, begin_telling, cut, rooms, tell, update_shift
from systola.training.writer import NARROWING, Entry, Writer


@dataclass(frozen=True)
class _Piece:
    """A run of blocks of inputs of one weight tensor of an LSTM. The weights for these inputs are
    updated together.
    """

    tensor: int
    blocks: range
    master_bits: int
    inputs: Exponent
    ones: bool = False
    """Whether the run is a single block, for biases, which has ones as inputs."""


class LstmBack:
    """A writer of the backward pass and the updates of an LSTM for all turns.

    The backward pass begins with the gradient of the last state. If another LSTM takes all states,
    it begins with the gradients of all states.
    """

    def __init__(self, writer: Writer, task: Task, words: Words | None, number: int) -> None:
        self._writer = writer
        self._task = task
        self._words = words
        self._number = number
        lstm = task.stages[number].lstm
        assert lstm
        self._lstm: Recurrence = lstm

    def write(self) -> None:
        """Write the backward pass through time, then the updates of all weights of the LSTM."""
        writer, task = self._writer, self._task
        back = recurrent_backward(writer, task, self._number)
        if self._lstm.sequences:
            self._all_states(back)
        else:
            self._last_state(back)
        learnt = recurrent_tensors(task, self._number)
        begin_telling(writer, task, *learnt)
        self._kernels()
        if self._words:
            self._words.update()
        tell(writer, task, *learnt)

    def _last_state(self, back: RecurrentBackward) -> None:
        """Write the backward pass of all turns, from the gradient of the last state."""
        writer = self._writer
        for _ in each_turn(writer, self._task):
            layout = writer.layout
            lines = layout.samples * self._sizes.units
            gradient = writer.allocate(lines)
            writer.read(spilled(layout).gradients[self._number], gradient)
            back.turn(layout, self._lstm, gradient)
        back.end()

    def _all_states(self, back: RecurrentBackward) -> None:
        """Write the backward pass of all turns, from the gradients of all states in host memory."""
        writer = self._writer
        back.begin_all()
        for _ in each_turn(writer, self._task):
            back.take(writer.layout, self._lstm)
            back.measure_all()
        back.end_all()
        for _ in each_turn(writer, self._task):
            back.turn(writer.layout, self._lstm, range(0))

    @property
    def _sizes(self) -> Sizes:
        return Sizes(self._writer.layout, self._lstm, self._number)

    def _kernels(self) -> None:
        """Add the products of inputs, states and ones with dz to the masters of the kernels and
        biases.

        dz is the gradient of the sums of the gates.
        """
        writer, task, layout = self._writer, self._task, self._writer.layout
        size, samples, gates = layout.size, layout.samples, self._sizes.gates
        most = part_blocks(writer, task)
        units = min(most, gates)
        # The buffer has states of some steps once as int16, once as int8 and twice transposed, and
        # dz of these steps twice.
        each = samples * (2 * most + most + 2 * most + 2 * 2 * units)
        steps = min(max(1, writer.config.buffer_lines // 4 // each), self._lstm.steps)
        self._wide = writer.allocate(2 * most * steps * samples)
        self._narrow = writer.allocate(most * steps * samples)
        self._turned = [writer.allocate(most * steps * samples) for _ in range(2)]
        self._ones = writer.allocate(steps * samples)
        turned_ones(writer, self._ones, Exponent(0, 0), zero=not task.stages[self._number].use_bias)
        slopes = [writer.allocate(2 * units * steps * samples) for _ in range(2)]
        places = rooms(writer, units * most * size, task)
        half, turn, number = writer.config.accumulator_rows // 2, 0, 0
        for first in range(0, gates, units):
            chosen = range(first, min(first + units, gates))
            for piece in self._pieces(most):
                owned = self._owned(piece.tensor)
                if not any(unit in owned for unit in chosen):
                    continue
                rows, row = len(piece.blocks) * size, turn * half
                began = False
                for _ in each_turn(writer, task):
                    for start in range(0, self._lstm.steps, steps):
                        some = range(start, min(start + steps, self._lstm.steps))
                        number ^= 1
                        vectors = self._vectors(piece, some, self._turned[number])
                        self._read_slopes(chosen, some, slopes[number])
                        sizes = rows, len(some) * layout.groups, len(chosen)
                        how = {"accumulate": int(began), "wide_weights": 1}
                        writer.multiply(vectors, slopes[number].start, row, *sizes, **how)
                        began = True
                entry = update_shift(writer, task, piece.tensor, piece.master_bits, piece.inputs)
                updated = range(max(first, owned.start), min(chosen.stop, owned.stop))
                skipped = updated.start - owned.start
                line = skipped * layout.shapes[piece.tensor].lines + piece.blocks.start * size
                room = cut(places[turn], len(updated) * rows)
                masters = Masters(writer, task, piece.tensor, line, room, of_block=rows)
                masters.update(row + (updated.start - first) * rows, entry)
                turn ^= 1
        writer.free(self._wide, self._narrow, *self._turned, self._ones, *slopes)
        writer.free(*places[0], *places[1])

    def _pieces(self, most: int) -> Iterator[_Piece]:
        task, sizes, number = self._task, self._sizes, self._number
        bits, less = task.master_bits[number], task.stages[number].tensor.bias_less
        for first in range(0, sizes.inputs, most):
            blocks = range(first, min(first + most, sizes.inputs))
            yield _Piece(number, blocks, bits, step_inputs(task, number))
        bias = range(sizes.inputs, sizes.inputs + 1)
        yield _Piece(number, bias, bits - less, Exponent(0, 0), ones=True)
        tensor, states = recurrent_tensor(task.stages, number), state_register(task, number)
        for first in range(0, sizes.units, most):
            blocks = range(first, min(first + most, sizes.units))
            yield _Piece(tensor, blocks, task.master_bits[tensor], Exponent(states, 0))
        for block in range(sizes.units, sizes.state_inputs):
            bits, own = task.master_bits[tensor] - less, range(block, block + 1)
            yield _Piece(tensor, own, bits, Exponent(0, 0), ones=True)

    def _owned(self, tensor: int) -> range:
        """Return the range of blocks of dz (gradient of the gates' sums) that update the units of a
        tensor.
        """
        return self._sizes.kernel if tensor == self._number else self._sizes.recurrent

    def _vectors(self, piece: _Piece, steps: range, turned: range) -> int:
        """Read the inputs of some steps, transposed, [step][group of samples][input]; return the
        first of these lines.
        """
        if piece.ones:
            return self._ones.start
        writer, layout = self._writer, self._writer.layout
        sizes, samples, size = self._sizes, layout.samples, layout.size
        count = len(piece.blocks)
        if piece.tensor == self._number:
            place, apart, wide = sizes.places.inputs, sizes.inputs * samples, 0
        else:
            # The inputs of the recurrent kernel are the states before each step; the first state is
            # zero.
            place, apart, wide = sizes.places.hidden, sizes.rows, 1
        first = steps.start * apart + piece.blocks.start * samples
        lines = self._wide if wide else self._narrow
        writer.read_rows(
            place + (first << wide) * layout.pitch,
            lines[: (len(steps) * count * samples) << wide],
            (count * samples) << wide,
            apart << wide,
        )
        if wide:
            writer.measure(SHIFT, third=piece.inputs.register, value=STATE_SHIFT)
            rows = len(steps) * count * samples
            at = lines.start, self._narrow.start, rows
            writer.copy(*at, Entry(), NARROWING, exponent=SHIFT)
        to = turned.start
        for step in range(len(steps)):
            for group in range(layout.groups):
                source = self._narrow.start + step * count * samples + group * size
                writer.transpose(source, to, count, samples)
                to += count * size
        return turned.start

    def _read_slopes(self, units: range, steps: range, lines: range) -> None:
        """Read dz (gradient of the gates' sums) of some steps, int16, [block of
        units][step][sample].
        """
        writer, layout = self._writer, self._writer.layout
        samples, every = layout.samples, self._lstm.steps * layout.samples
        place = self._sizes.places.gates
        first = units.start * every + steps.start * samples
        count = 2 * len(steps) * samples
        writer.read_rows(
            place + 2 * first * layout.pitch, lines[: len(units) * count], count, 2 * every
        )
