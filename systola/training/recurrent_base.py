# SPDX-License-Identifier: Apache-2.0
"""The parts that LSTM and GRU share: sizes, biases, and the accumulators of successive steps.

The sum of a gate is the number of which the gate is the sigmoid or tanh. Steps are steps in time.
"""

from __future__ import annotations

from systola.arch.isa import Source
from systola.training.errors import NoRoomError
from systola.training.layout import Layout, RecurrencePlaces
from systola.training.moves import ones
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import Pass, UnitScale, of_samples, units_register
from systola.training.stages import EMBEDDING, GATES, Recurrence, branched, recurrent_tensor
from systola.training.task import INPUTS, SPARE, STATE, Exponent, Task
from systola.training.weights import biases
from systola.training.writer import Entry, Writer, shifted

CELL_INTEGER_BITS = 3
"""Number of integer bits of cells and of the gates' sums."""
CELL_BITS = 15 - CELL_INTEGER_BITS
"""Number of fraction bits of cells and of the gates' sums. Cells and sums are limited to -8 to 8,
beyond which tanh and sigmoid hardly change."""
STATE_SHIFT = 14
"""Number of fraction bits of a state that is narrowed to int8 with a shift of 0. An int16 state has
15, of which the multiplier 1/2 of Entry() takes one."""
_MOST_BIAS_SHIFT = 14
"""Largest number of bits by which the array can shift an int16 bias to the left. The array shifts
by a multiplication with a power of two."""
LEAST_SHIFT = -7
"""Least shift to the right in an exponent register, in bits. A negative shift goes to the left."""


class Sizes:
    """The sizes of an LSTM or GRU, in blocks of C numbers."""

    def __init__(self, layout: Layout, lstm: Recurrence, number: int = 0) -> None:
        shape = layout.shapes[number]
        self.steps = lstm.steps
        self.inputs = shape.channels
        """Number of blocks of C inputs in one step."""
        self.units = shape.units // len(lstm.order)
        """Number of blocks of C units."""
        self.gates = len(GATES) * self.units
        """Number of blocks of the sums of all gates in a step, and of the gradients of these
        sums."""
        self.rows = self.units * layout.samples
        """Number of lines of a gate, the cell or the state as int8; as int16 there are twice as
        many."""
        self.places: RecurrencePlaces = layout.recurrences[number]
        self.kernel = range(shape.units)
        """Numbers of the blocks of sums to which products with the kernel belong, from 0 to
        `gates` - 1."""
        self.recurrent = range(self.gates - shape.units, self.gates)
        """Numbers of the blocks of sums to which products with the recurrent kernel belong, from 0
        to `gates` - 1."""
        self.state_inputs = self.units + lstm.gru
        """Number of blocks of inputs of the recurrent kernel; for a GRU one block more, for
        biases."""


class RecurrentBase:
    """A writer of the parts of the forward pass that an LSTM and a GRU have in common."""

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train
        self._turn = 0
        self._number = 0
        self._scale: UnitScale | None = None
        self._sizes: Sizes

    def measure(self, scale: UnitScale, state: range) -> None:
        """Measure a state, but leave out the lines of samples that are padding."""
        layout = self._writer.layout
        there = len(self._task.share(layout.size))
        for pairs in of_samples(self._sizes.units, layout.samples, there):
            scale.measure_lines(state.start + 2 * pairs.start, len(pairs))

    def _accumulators(self, rows: int) -> int:
        """Return the first of `rows` accumulator rows; successive calls take up to four regions in
        turn.

        Raises NoRoomError if the accumulators have fewer rows.
        """
        config = self._writer.config
        if rows > config.accumulator_rows:
            raise NoRoomError(f"the accumulators of '{config.name}' have no room for {rows} sums")
        self._turn = (self._turn + 1) % min(4, config.accumulator_rows // rows)
        return self._turn * rows

    def _input_shift(self) -> tuple[Entry, int]:
        """Return the parameter entry that gives products with the kernel CELL_BITS fraction bits.

        The second result is the exponent register with the shift for this entry. It is 0 if the
        entry itself has the shift.
        """
        inputs, shift = step_inputs(self._task, self._number), self._sum_shift - 1
        if not inputs.register:
            return shifted(shift), 0
        self._writer.measure(SPARE, first=inputs.register, value=shift)
        return Entry(), SPARE

    @property
    def _sum_shift(self) -> int:
        """Number of bits by which products with inputs are shifted right to have CELL_BITS fraction
        bits. The content of a register with the inputs' fraction bits is not included.
        """
        bits = self._task.master_bits[self._number] - MASTER_SHIFT - CELL_BITS
        return step_inputs(self._task, self._number).value + bits

    @property
    def _bias_in_sums(self) -> bool:
        """Whether the array adds the biases, shifted, to the products with inputs.

        This saves the activation unit a copy of the biases, and two lines to read for each gate.
        Otherwise the activation unit adds the biases: for a GRU, or if the shift is unknown or too
        long for the array.
        """
        lstm = self._task.stages[self._number].lstm
        known = not step_inputs(self._task, self._number).register
        return known and not (lstm and lstm.gru) and 0 <= self._sum_shift <= _MOST_BIAS_SHIFT

    def _biases(self) -> range:
        """Write the biases as int16 lines with CELL_BITS fraction bits, [block][row]; all rows are
        the same.

        A block has a row for each sample, or, if the array adds the biases, for each row of a tile.
        For a GRU the blocks are for the candidate, z, r, and the candidate's product of state and
        recurrent kernel. The biases of z and r are sums of the biases of both kernels.
        """
        writer, layout, sizes, number = self._writer, self._writer.layout, self._sizes, self._number
        size, stage = layout.size, self._task.stages[number]
        samples = size if self._bias_in_sums else layout.samples
        one = writer.allocate(max(size, samples))
        ones(writer, one, Exponent(0, 0), zero=not stage.use_bias)
        result = writer.allocate(2 * sizes.gates * samples)
        masters = writer.allocate(2 * size)
        tensors = [(number, sizes.kernel)]
        if stage.lstm and stage.lstm.gru:
            tensors.append((recurrent_tensor(self._task.stages, number), sizes.recurrent))
        for tensor, blocks in tensors:
            bits = self._task.master_bits[tensor] - stage.tensor.bias_less
            for place, block in enumerate(blocks):
                biases(writer, tensor, place, masters)
                row = self._accumulators(samples)
                writer.multiply(one.start, masters.start, row, samples, 1, 1, wide_weights=1)
                line = result.start + 2 * block * samples
                more = {"wide": 1, "accumulate": int(tensor != number and block in sizes.kernel)}
                writer.activate(row, line, samples, shifted(bits - CELL_BITS - 1), **more)
        writer.free(one, masters)
        return result

    def _keep(self, step: int, cells: range, state: range) -> None:
        """Write the gates, cell and state of a step to host memory for the backward pass.

        The state is measured, too.
        """
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        pitch, places = layout.pitch, sizes.places
        if self._train:
            writer.write(places.cells + (step + 1) * len(cells) * pitch, cells)
        if self._train or self._scale:
            writer.write(places.hidden + (step + 1) * len(state) * pitch, state)
        if self._scale:
            self.measure(self._scale, state)
        elif self._train:
            there = len(self._task.share(layout.size))
            for pairs in of_samples(sizes.units, layout.samples, there):
                at = {"buffer": state.start + 2 * pairs.start, "rows": len(pairs)}
                writer.measure(STATE, Source.LINES, **at, bits=8, first=STATE)


def input_bits(task: Task) -> int:
    """Return the number of fraction bits of the inputs of the first LSTM.

    If the inputs are words, the result is for the embeddings of the words.
    """
    lstm = task.stages[0].lstm
    if lstm and lstm.vocabulary:
        return task.master_bits[len(task.stages) + EMBEDDING] - MASTER_SHIFT
    return task.input_bits


def step_inputs(task: Task, number: int) -> Exponent:
    """Return the number of fraction bits of an LSTM's inputs, as a constant or in a register.

    Inputs that are states of another LSTM have the same fraction bits in all steps.
    """
    if not number:
        return Exponent(0, input_bits(task))
    return Exponent(INPUTS if branched(task.stages) else INPUTS + number - 1, 0)


def state_register(task: Task, number: int) -> int:
    """Return the exponent register with the fraction bits of an LSTM's int8 states, for the update.

    If another LSTM takes the states, the update uses the fraction bits of the inputs of this other
    LSTM.
    """
    lstm = task.stages[number].lstm
    return units_register(task, number) if lstm and lstm.sequences else STATE
