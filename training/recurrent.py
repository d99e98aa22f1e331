# SPDX-License-Identifier: Apache-2.0
"""Writes the way forward of an LSTM, step by step, and of the Embedding before it.

A block of units has a line for each sample. A gate, the cell c and the state h are `rows` lines or
pairs of lines, [block][sample]. Gates and h have 15 fraction bits. The sums of the gates, and c,
have CELL_BITS. All of these are int16; weights and inputs are int8. The numbers that the way back
needs go to host memory after each step, so the buffer does not limit the number of steps.
"""

from __future__ import annotations

from systola.arch.isa import Function, Operation, Source
from systola.training.errors import NoRoomError
from systola.training.exchange import agree
from systola.training.layout import Layout, RecurrencePlaces
from systola.training.moves import ones
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import (
    STATE_BITS,
    Pass,
    UnitScale,
    drop,
    of_samples,
    units_register,
)
from systola.training.stages import EMBEDDING, GATES, Recurrence, branched, recurrent_tensor
from systola.training.task import INPUTS, SHIFT, SPARE, STATE, Exponent, Task
from systola.training.weights import all_tiles, biases
from systola.training.writer import (
    NARROWING,
    ONE,
    WIDE,
    Entry,
    Writer,
    shifted,
)

CELL_INTEGER_BITS = 3
"""Integer bits of cells and of the gates' sums."""
CELL_BITS = 15 - CELL_INTEGER_BITS
"""Fraction bits of cells and of the gates' sums. They go up to 8, near the ends of tanh and
sigmoid."""
STATE_SHIFT = 14
"""Fraction bits of a state that is narrowed to int8 with 0 in the register: Entry() takes one of
15."""
_MOST_BIAS_SHIFT = 14
"""Most bits by which a product shifts an int16 bias to the left."""
LEAST_SHIFT = -7
"""Least shift of a register to the right, which is the most to the left."""


class Sizes:
    """A set of sizes of an LSTM, in blocks."""

    def __init__(self, layout: Layout, lstm: Recurrence, number: int = 0) -> None:
        self.steps = lstm.steps
        self.inputs = layout.shapes[number].channels
        """Number of blocks of inputs."""
        self.gates = layout.shapes[number].units
        """Number of blocks of all gates."""
        self.units = self.gates // len(GATES)
        """Number of blocks of units."""
        self.rows = self.units * layout.samples
        """Number of lines, or pairs of lines, of a gate, the cell or the state."""
        self.places: RecurrencePlaces = layout.recurrences[number]


class Recurrent:
    """A writer of the way forward of LSTMs."""

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train
        self._turn = 0
        self._number = 0
        self._scale: UnitScale | None = None

    def write(self, number: int, x: range) -> range:
        """Write a stage; return its units, and a one for the bias of the next stage.

        If the LSTM gives all states, these go to host memory, where the next LSTM takes them. Then
        the result is empty.
        """
        writer, layout = self._writer, self._writer.layout
        writer.free(x)
        lstm = self._task.stages[number].lstm
        assert lstm
        self._number = number
        self._sizes = Sizes(layout, lstm, number)
        if lstm.vocabulary:
            self._embed()
        if lstm.sequences:
            return self._all_units()
        self.begin()
        state = self._steps()
        self.end()
        units = self._units(state)
        writer.free(state)
        self._leave()
        return units

    def _leave(self) -> None:
        self._left.transposed.append(range(0))
        self._left.routes.append([])

    def _all_units(self) -> range:
        """Write all steps, and then the states of all steps as inputs of the next LSTM."""
        number = self._number
        scale = UnitScale(self._writer, self._task, self._left, number, train=self._train)
        self.all_steps(number, scale)
        scale.end()
        self.all_units(scale)
        self._left.masks.append(None)
        self._leave()
        return range(0)

    def all_steps(self, number: int, scale: UnitScale) -> None:
        """Write all steps of an LSTM, with its inputs in host memory, and measure its states."""
        self._scale = scale
        self._writer.free(self.turn(number))
        self._scale = None

    def all_units(self, scale: UnitScale) -> None:
        """Write the states of all steps as inputs of the next LSTM."""
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        number, pitch, rows = self._number, layout.pitch, sizes.rows
        state = writer.allocate(2 * rows)
        units, mask, random = (writer.allocate(rows) for _ in range(3))
        dropped = self._train and self._task.stages[number].rate
        for step in range(sizes.steps):
            writer.read(sizes.places.hidden + (step + 1) * len(state) * pitch, state)
            entry = Entry(scale.multiplier)
            writer.copy(state.start, units.start, rows, entry, NARROWING, exponent=SHIFT)
            if dropped:
                for block in range(sizes.units):
                    first = block * layout.samples
                    lines = mask.start + first, random.start + first
                    drop(writer, self._task, number, block, lines, layout.samples, step=step)
                writer.times(units.start, mask.start, rows)
                writer.write(sizes.places.masks + step * rows * pitch, mask)
            place = layout.recurrences[number + 1].inputs
            writer.write(place + step * rows * pitch, units)
        writer.free(state, units, mask, random)

    def begin(self) -> None:
        """Put the least shift of the states into STATE, before the first state is measured."""
        if self._train:
            self._writer.measure(STATE, value=LEAST_SHIFT)

    def end(self) -> None:
        """Put the fraction bits of all states into STATE, after the last state is measured."""
        if self._train:
            self._agree()
            self._writer.measure(STATE, third=STATE, value=STATE_SHIFT)

    def turn(self, number: int) -> range:
        """Write all steps of a turn, with inputs in host memory; return the last state, int16."""
        lstm = self._task.stages[number].lstm
        assert lstm
        self._number = number
        self._sizes = Sizes(self._writer.layout, lstm, number)
        return self._steps()

    def _input_shift(self) -> tuple[Entry, int]:
        """Return the entry from products with the kernel to sums of the gates, and its register.

        This exponent register has the shift of the entry; 0 stands for no register.
        """
        inputs, shift = step_inputs(self._task, self._number), self._sum_shift - 1
        if not inputs.register:
            return shifted(shift), 0
        self._writer.measure(SPARE, first=inputs.register, value=shift)
        return Entry(), SPARE

    def _embed(self) -> None:
        """Write the rows of the words of each step to host memory.

        The codes of a row are weights as they are.
        """
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        number = len(self._task.stages) + EMBEDDING
        words, samples = layout.shapes[number].inputs * layout.samples, layout.samples
        tiles = all_tiles(writer, number)
        picked = writer.allocate(words)
        rows = sizes.inputs * samples
        lines = writer.allocate(rows)
        for step in range(sizes.steps):
            writer.read(layout.x + step * words * layout.pitch, picked)
            row = self._accumulators(rows)
            blocks = layout.shapes[number].inputs
            writer.multiply(picked.start, tiles.start, row, samples, blocks, sizes.inputs)
            writer.activate(row, lines.start, rows, ONE)
            writer.write(sizes.places.inputs + step * rows * layout.pitch, lines)
        writer.free(tiles, picked, lines)

    def _accumulators(self, rows: int) -> int:
        """Return the first of `rows` rows, from one part of the accumulators after the other.

        Raises NoRoomError where the accumulators have fewer rows.
        """
        config = self._writer.config
        if rows > config.accumulator_rows:
            raise NoRoomError(f"the accumulators of '{config.name}' have no room for {rows} sums")
        self._turn = (self._turn + 1) % min(4, config.accumulator_rows // rows)
        return self._turn * rows

    def _steps(self) -> range:
        """Write all steps; return the last state, int16."""
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        rows, pitch, places = sizes.rows, layout.pitch, sizes.places
        kernel = all_tiles(writer, self._number)
        recurrent = all_tiles(writer, recurrent_tensor(self._task.stages, self._number))
        start = self._biases()
        one = writer.allocate(2 * layout.samples if self._bias_in_sums else 0)
        if one:
            ones(writer, one, Exponent(0, self._sum_shift), wide=True)
        entering = self._input_shift()
        x = writer.allocate(sizes.inputs * layout.samples)
        gates = len(GATES) * 2 * rows
        cells = writer.allocate(gates + 2 * 2 * rows)
        cell, tanh = cells.start + gates, cells.start + gates + 2 * rows
        state = writer.allocate(2 * rows)
        for step in range(sizes.steps):
            writer.read(places.inputs + step * len(x) * pitch, x)
            if not self._bias_in_sums:
                writer.copy(start.start, cells.start, len(start) // 2, ONE, WIDE)
            for gate in range(len(GATES)):
                before = state if step else None
                given = x, one, before
                self._gate(gate, cells.start, given, (kernel, start, recurrent), entering)
            self._cell(cells.start, cell, first=not step)
            function, how = Function.TANH, {"table": CELL_INTEGER_BITS}
            writer.copy(cell, tanh, rows, ONE, WIDE, function, **how)
            output = cells.start + 2 * 2 * rows
            at = (output, tanh, state.start, rows, shifted(14), WIDE)
            writer.vector(Operation.MULTIPLY, *at)
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
        writer.free(kernel, recurrent, start, one, x, cells)
        return state

    def _agree(self) -> None:
        """Leave in STATE the largest shift that any core has."""
        if self._task.cores > 1:
            self._writer.measure(SHIFT, first=STATE)
            agree(self._writer, self._task, STATE)
            self._writer.measure(STATE, first=SHIFT)

    @property
    def _sum_shift(self) -> int:
        """Shift from the products with inputs to CELL_BITS, in bits."""
        bits = self._task.master_bits[self._number] - MASTER_SHIFT - CELL_BITS
        return step_inputs(self._task, self._number).value + bits

    @property
    def _bias_in_sums(self) -> bool:
        """Whether the array adds the biases, shifted, to the products with inputs.

        Biases in the array leave the activation unit two lines less to read for each gate, and a
        copy less.
        """
        known = not step_inputs(self._task, self._number).register
        return known and 0 <= self._sum_shift <= _MOST_BIAS_SHIFT

    def _biases(self) -> range:
        """Write the biases with CELL_BITS, [block][row], the same in all rows.

        There is a row for each sample, or for each row of a tile of weights.
        """
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        size = layout.size
        samples = size if self._bias_in_sums else layout.samples
        one = writer.allocate(max(size, samples))
        stage, number = self._task.stages[self._number], self._number
        ones(writer, one, Exponent(0, 0), zero=not stage.use_bias)
        result = writer.allocate(2 * sizes.gates * samples)
        masters = writer.allocate(2 * size)
        bits = self._task.master_bits[number] - stage.tensor.bias_less
        for block in range(sizes.gates):
            biases(writer, number, block, masters)
            row = self._accumulators(samples)
            writer.multiply(one.start, masters.start, row, samples, 1, 1, wide_weights=1)
            line = result.start + 2 * block * samples
            writer.activate(row, line, samples, shifted(bits - CELL_BITS - 1), wide=1)
        writer.free(one, masters)
        return result

    def _gate(
        self,
        gate: int,
        gates: int,
        given: tuple[range, range, range | None],
        weights: tuple[range, range, range],
        entering: tuple[Entry, int],
    ) -> None:
        """Write the sums of a gate, and then the results of its function.

        - `given`: the inputs, ones for the biases, and the state.
        - `weights`: the kernel, the biases, and the recurrent kernel.
        - `entering`: the entry for the products with inputs, and the register with its shift.
        """
        writer, layout, sizes, task = self._writer, self._writer.layout, self._sizes, self._task
        samples, rows = layout.samples, sizes.rows
        line = gates + gate * 2 * rows
        x, one, state = given
        kernel, biases, recurrent = (
            each.start + gate * len(each) // len(GATES) for each in weights
        )
        last = gate == len(GATES) - 1
        function = Function.TANH if last else Function.SIGMOID
        ends = {"function": function, "table": CELL_INTEGER_BITS if last else 0}
        row = self._accumulators(rows)
        writer.multiply(x.start, kernel, row, samples, sizes.inputs, sizes.units)
        if one:
            how = {"accumulate": 1, "wide_vectors": 1, "wide_weights": 1}
            writer.multiply(one.start, biases, row, samples, 1, sizes.units, **how)
        how = {"wide": 1, "accumulate": int(not one)}
        entry, exponent = entering
        end = {} if state else ends
        writer.activate(row, line, rows, entry, **how, **end, exponent=exponent)
        if state is None:
            return
        row = self._accumulators(rows)
        wide = {"wide_vectors": 1}
        writer.multiply(state.start, recurrent, row, samples, sizes.units, sizes.units, **wide)
        tensor = recurrent_tensor(task.stages, self._number)
        bits = STATE_BITS + task.master_bits[tensor] - MASTER_SHIFT
        how = {"wide": 1, "accumulate": 1}
        writer.activate(row, line, rows, shifted(bits - CELL_BITS - 1), **how, **ends)

    def _cell(self, gates: int, cell: int, *, first: bool) -> None:
        """Write the cell c = f c + i g; before the first step c is zero."""
        writer, rows = self._writer, self._sizes.rows
        enter, forget, new = gates, gates + 2 * rows, gates + 3 * 2 * rows
        if not first:
            writer.vector(Operation.MULTIPLY, forget, cell, cell, rows, shifted(14), WIDE)
        at = (enter, new, cell, rows, shifted(2 * 15 - CELL_BITS - 1), WIDE)
        writer.vector(Operation.MULTIPLY, *at, accumulate=int(not first))

    def _units(self, state: range) -> range:
        """Return the last state as the next stage takes it, int8, with a one for the bias."""
        about = self._writer, self._task, self._left, self._number
        scale = UnitScale(*about, train=self._train)
        self.measure(scale, state)
        scale.end()
        units, mask = self.units(scale, state)
        self._left.masks.append(mask)
        return units

    def measure(self, scale: UnitScale, state: range) -> None:
        """Measure the last state of the samples that are no padding."""
        layout = self._writer.layout
        there = len(self._task.share(layout.size))
        for pairs in of_samples(self._sizes.units, layout.samples, there):
            scale.measure_lines(state.start + 2 * pairs.start, len(pairs))

    def units(self, scale: UnitScale, state: range) -> tuple[range, range | None]:
        """Write the last state as the next stage takes it; return the units and their mask.

        Without a dropout in training the mask is None.
        """
        writer, layout, number = self._writer, self._writer.layout, self._number
        stage, samples, rows = self._task.stages[number], layout.samples, self._sizes.rows
        units = writer.allocate(rows + 2 * samples)
        entry = Entry(scale.multiplier)
        writer.copy(state.start, units.start, rows, entry, NARROWING, exponent=SHIFT)
        mask = None
        if self._train and stage.rate:
            mask = writer.allocate(rows)
            random = writer.allocate(samples)
            for block in range(self._sizes.units):
                lines = mask.start + block * samples, random.start
                drop(writer, self._task, number, block, lines, samples)
            writer.times(units.start, mask.start, rows)
            writer.free(random)
        zero = not self._task.stages[number + 1].use_bias
        ones(writer, units[rows:], self._left.inputs[-1], wide=True, zero=zero)
        return units, mask


def input_bits(task: Task) -> int:
    """Return the fraction bits of the inputs of a step; for words the bits of the embeddings."""
    lstm = task.stages[0].lstm
    if lstm and lstm.vocabulary:
        return task.master_bits[len(task.stages) + EMBEDDING] - MASTER_SHIFT
    return task.input_bits


def step_inputs(task: Task, number: int) -> Exponent:
    """Return the fraction bits of the inputs of a step of an LSTM.

    Inputs that are states of another LSTM have the same fraction bits in all steps.
    """
    if not number:
        return Exponent(0, input_bits(task))
    return Exponent(INPUTS if branched(task.stages) else INPUTS + number - 1, 0)


def state_register(task: Task, number: int) -> int:
    """Return the register with the fraction bits of all states of an LSTM, for the update.

    States that another LSTM takes have the fraction bits of its inputs.
    """
    lstm = task.stages[number].lstm
    return units_register(task, number) if lstm and lstm.sequences else STATE
