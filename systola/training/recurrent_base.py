# SPDX-License-Identifier: Apache-2.0
"""The parts that LSTM and GRU share: sizes, biases, and the accumulators of successive steps."""

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
"""Number of fraction bits of cells and of the gates' sums. These numbers go up to 8, near the ends
of tanh and sigmoid."""
STATE_SHIFT = 14
"""Number of fraction bits of a state that is narrowed to int8 with 0 in the exponent register. Of
the state's 15 fraction bits the multiplier of Entry() takes one."""
_MOST_BIAS_SHIFT = 14
"""Largest number of bits by which the array shifts an int16 bias to the left, as a product."""
LEAST_SHIFT = -7
"""Least number of bits by which a register shifts to the right. It is negative: the longest shift
to the left."""


class Sizes:
    """The sizes of an LSTM or GRU, in blocks of C numbers."""

    def __init__(self, layout: Layout, lstm: Recurrence, number: int = 0) -> None:
        shape = layout.shapes[number]
        self.steps = lstm.steps
        self.inputs = shape.channels
        """Number of blocks of inputs of a step."""
        self.units = shape.units // len(lstm.order)
        """Number of blocks of units."""
        self.gates = len(GATES) * self.units
        """Number of blocks of the gradients of all sums in a step."""
        self.rows = self.units * layout.samples
        """Number of lines, or pairs of lines, of a gate, the cell or the state."""
        self.places: RecurrencePlaces = layout.recurrences[number]
        self.kernel = range(shape.units)
        """Numbers of the blocks of the sums' gradients that belong to the kernel."""
        self.recurrent = range(self.gates - shape.units, self.gates)
        """Numbers of the blocks of the sums' gradients that belong to the recurrent kernel."""
        self.state_inputs = self.units + lstm.gru
        """Number of blocks of inputs of the recurrent kernel, with the block of its biases."""


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
        """Measure the last state, but only of the samples that are no padding."""
        layout = self._writer.layout
        there = len(self._task.share(layout.size))
        for pairs in of_samples(self._sizes.units, layout.samples, there):
            scale.measure_lines(state.start + 2 * pairs.start, len(pairs))

    def _accumulators(self, rows: int) -> int:
        """Return the first of `rows` accumulator rows; successive calls use different regions in
        turn.

        Raises NoRoomError if the accumulators have fewer rows.
        """
        config = self._writer.config
        if rows > config.accumulator_rows:
            raise NoRoomError(f"the accumulators of '{config.name}' have no room for {rows} sums")
        self._turn = (self._turn + 1) % min(4, config.accumulator_rows // rows)
        return self._turn * rows

    def _input_shift(self) -> tuple[Entry, int]:
        """Return the entry that shifts products with the kernel to CELL_BITS, and a register.

        The exponent register has the shift of this entry; 0 stands for no register.
        """
        inputs, shift = step_inputs(self._task, self._number), self._sum_shift - 1
        if not inputs.register:
            return shifted(shift), 0
        self._writer.measure(SPARE, first=inputs.register, value=shift)
        return Entry(), SPARE

    @property
    def _sum_shift(self) -> int:
        """Number of bits by which products with inputs are shifted to have CELL_BITS, without a
        register.
        """
        bits = self._task.master_bits[self._number] - MASTER_SHIFT - CELL_BITS
        return step_inputs(self._task, self._number).value + bits

    @property
    def _bias_in_sums(self) -> bool:
        """Whether the array adds the biases, shifted, to the products with inputs.

        Then the activation unit has two lines less to read for each gate, and one copy less to
        write. A GRU has other biases for the products with the state, so its biases are added
        later.
        """
        lstm = self._task.stages[self._number].lstm
        known = not step_inputs(self._task, self._number).register
        return known and not (lstm and lstm.gru) and 0 <= self._sum_shift <= _MOST_BIAS_SHIFT

    def _biases(self) -> range:
        """Write the biases as lines with CELL_BITS, [block][row], the same in all rows.

        There is a row for each sample, or for each row of a tile of weights. For a GRU the blocks
        are for the candidate, z, r, and the product that the state adds to the candidate. The
        biases of z and r are sums of the biases of both kernels.
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
    """Return the fraction bits of the inputs of a step of the first LSTM.

    If the inputs are words, these are the bits of the embeddings.
    """
    lstm = task.stages[0].lstm
    if lstm and lstm.vocabulary:
        return task.master_bits[len(task.stages) + EMBEDDING] - MASTER_SHIFT
    return task.input_bits


def step_inputs(task: Task, number: int) -> Exponent:
    """Return the fraction bits of the inputs of a step of an LSTM, as a constant or in a register.

    Inputs that are states of another LSTM have the same fraction bits in all steps.
    """
    if not number:
        return Exponent(0, input_bits(task))
    return Exponent(INPUTS if branched(task.stages) else INPUTS + number - 1, 0)


def state_register(task: Task, number: int) -> int:
    """Return the register with the fraction bits of all states of an LSTM, for the update.

    If another LSTM takes the states, they have the fraction bits of its inputs.
    """
    lstm = task.stages[number].lstm
    return units_register(task, number) if lstm and lstm.sequences else STATE
