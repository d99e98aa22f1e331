# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of an LSTM or GRU, step by step in time, and of the Embedding before it.

The buffer has the gates, the cell c and the state h of one step, [block of units][sample]. They are
int16, with two lines for each sample of a block; weights and inputs are int8. Gates and h have 15
fraction bits. The sums of the gates, and c, have CELL_BITS fraction bits. The numbers that the
backward pass needs go to host memory after each step. So the buffer does not limit the number of
steps.
"""

from __future__ import annotations

from systola.arch.isa import Function, Operation
from systola.training.exchange import agree
from systola.training.gru import GruSteps
from systola.training.moves import ones
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import (
    STATE_BITS,
    UnitScale,
    drop,
)
from systola.training.recurrent_base import (
    CELL_BITS,
    CELL_INTEGER_BITS,
    LEAST_SHIFT,
    STATE_SHIFT,
    Sizes,
)
from systola.training.stages import EMBEDDING, GATES, recurrent_tensor
from systola.training.task import SHIFT, STATE, Exponent
from systola.training.weights import all_tiles
from systola.training.writer import (
    NARROWING,
    ONE,
    WIDE,
    Entry,
    shifted,
)


class Recurrent(GruSteps):
    """A writer of the forward pass of LSTMs and GRUs."""

    def write(self, number: int, x: range) -> range:
        """Write the forward pass of an LSTM or GRU; return its units, then ones for the next
        stage's bias.

        A stage that gives all states writes the states to host memory for the next LSTM or GRU. The
        result is then empty.
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
        """Write all steps in time, and then the states of all steps as inputs of the next LSTM."""
        number = self._number
        scale = UnitScale(self._writer, self._task, self._left, number, train=self._train)
        self.all_steps(number, scale)
        scale.end()
        self.all_units(scale)
        self._left.masks.append(None)
        self._leave()
        return range(0)

    def all_steps(self, number: int, scale: UnitScale) -> None:
        """Write all steps of an LSTM from inputs in host memory, and measure the states."""
        self._scale = scale
        self._writer.free(self.turn(number))
        self._scale = None

    def all_units(self, scale: UnitScale) -> None:
        """Write the states of all steps to host memory as int8 inputs of the next LSTM."""
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
        """Put the least possible shift into exponent register STATE, before states are measured."""
        if self._train:
            self._writer.measure(STATE, value=LEAST_SHIFT)

    def end(self) -> None:
        """Put the number of fraction bits of all states into exponent register STATE, after the
        last state is measured.
        """
        if self._train:
            self._agree()
            self._writer.measure(STATE, third=STATE, value=STATE_SHIFT)

    def turn(self, number: int) -> range:
        """Write all steps in time for one turn (part of the batch); return the last state, int16
        lines.

        The inputs of the steps are in host memory.
        """
        lstm = self._task.stages[number].lstm
        assert lstm
        self._number = number
        self._sizes = Sizes(self._writer.layout, lstm, number)
        return self._steps()

    def _embed(self) -> None:
        """Write the embeddings of the words of each step to host memory, as inputs of the LSTM.

        The int8 weights of an embedding are the codes of the inputs.
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

    def _steps(self) -> range:
        """Write all steps in time; return the last state as int16 lines."""
        lstm = self._task.stages[self._number].lstm
        if lstm and lstm.gru:
            return self._gru_steps()
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
            self._keep(step, cells, state)
        writer.free(kernel, recurrent, start, one, x, cells)
        return state

    def _agree(self) -> None:
        """Set exponent register STATE of each core to the largest shift among all cores."""
        if self._task.cores > 1:
            self._writer.measure(SHIFT, first=STATE)
            agree(self._writer, self._task, STATE)
            self._writer.measure(STATE, first=SHIFT)

    def _gate(
        self,
        gate: int,
        gates: int,
        given: tuple[range, range, range | None],
        weights: tuple[range, range, range],
        entering: tuple[Entry, int],
    ) -> None:
        """Write the sums of a gate, and then the results of its sigmoid or tanh.

        - `given`: lines of the inputs, ones for the biases, and the old state (None in the first
          step).
        - `weights`: lines of the kernel, the biases, and the recurrent kernel.
        - `entering`: the parameter entry for products with inputs, and the exponent register with
          the shift of this entry, or 0.
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
        """Write the new cell: f c + i g, or i g in the first step, where the old cell c is zero."""
        writer, rows = self._writer, self._sizes.rows
        enter, forget, new = gates, gates + 2 * rows, gates + 3 * 2 * rows
        if not first:
            writer.vector(Operation.MULTIPLY, forget, cell, cell, rows, shifted(14), WIDE)
        at = (enter, new, cell, rows, shifted(2 * 15 - CELL_BITS - 1), WIDE)
        writer.vector(Operation.MULTIPLY, *at, accumulate=int(not first))

    def _units(self, state: range) -> range:
        """Return the last state as int8 units, followed by ones for the bias of the next stage."""
        about = self._writer, self._task, self._left, self._number
        scale = UnitScale(*about, train=self._train)
        self.measure(scale, state)
        scale.end()
        units, mask = self.units(scale, state)
        self._left.masks.append(mask)
        return units

    def units(self, scale: UnitScale, state: range) -> tuple[range, range | None]:
        """Write the last state as units for the next stage; return the units and their mask.

        The mask is None, except in training with a Dropout after the LSTM.
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
