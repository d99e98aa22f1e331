# SPDX-License-Identifier: Apache-2.0
"""Writes the forward pass of the steps of a GRU. All other parts are written as for an LSTM.

z is the update gate, r the reset gate. x_n and q are sums for the candidate n: x_n the weighted sum
of the inputs, q the weighted sum of the old state, each with a bias. The candidate n is tanh(x_n +
r q). The new state is (1 - z) n + z h, where h is the old state.

The lines of a step in the buffer are n, z, r and q, in this order. So the parts of the kernel (n,
z, r) lie side by side, and the parts of the recurrent kernel (z, r, q), too. q has CELL_BITS like
all sums, and n, z, r and h have 15 fraction bits.
"""

from __future__ import annotations

from systola.arch.isa import Function, Operation
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import STATE_BITS
from systola.training.recurrent_base import CELL_BITS, CELL_INTEGER_BITS, RecurrentBase
from systola.training.stages import GATES, recurrent_tensor
from systola.training.weights import all_tiles
from systola.training.writer import ONE, UNIT, WIDE, Entry, shifted

_SIGMOID = {"function": Function.SIGMOID, "table": 0}
_LARGEST = (1 << 15) - 1


class GruSteps(RecurrentBase):
    """A writer of the forward pass of the steps of a GRU."""

    def _gru_steps(self) -> range:
        """Write all steps of a GRU in time; return the last state as int16 lines."""
        writer, layout, sizes = self._writer, self._writer.layout, self._sizes
        rows, samples = sizes.rows, layout.samples
        tensor = recurrent_tensor(self._task.stages, self._number)
        kernel, recurrent = all_tiles(writer, self._number), all_tiles(writer, tensor)
        bits = STATE_BITS + self._task.master_bits[tensor] - MASTER_SHIFT - CELL_BITS
        start = self._biases()
        entry, exponent = self._input_shift()
        x = writer.allocate(sizes.inputs * samples)
        cells = writer.allocate(len(GATES) * 2 * rows)
        state, new = writer.allocate(2 * rows), writer.allocate(2 * rows)
        lines = range(cells.start, cells.stop, 2 * rows)
        for step in range(sizes.steps):
            writer.read(sizes.places.inputs + step * len(x) * layout.pitch, x)
            writer.copy(start.start, cells.start, len(start) // 2, ONE, WIDE)
            for part, line in enumerate(lines[:-1]):
                row = self._accumulators(rows)
                weights = kernel.start + part * (len(kernel) // 3)
                writer.multiply(x.start, weights, row, samples, sizes.inputs, sizes.units)
                ends = _SIGMOID if part and not step else {}
                how = {"wide": 1, "accumulate": 1, "exponent": exponent}
                writer.activate(row, line, rows, entry, **how, **ends)
            for part, line in enumerate(lines[1:] if step else ()):
                row = self._accumulators(rows)
                weights = recurrent.start + part * (len(recurrent) // 3)
                at = (state.start, weights, row, samples, sizes.units, sizes.units)
                writer.multiply(*at, wide_vectors=1)
                ends = _SIGMOID if part < 2 else {}
                how = {"wide": 1, "accumulate": 1}
                writer.activate(row, line, rows, shifted(bits - 1), **how, **ends)
            self._state(lines, state.start, new.start, first=not step)
            self._keep(step, cells, state)
        writer.free(kernel, recurrent, start, x, cells, new)
        return state

    def _state(self, lines: range, state: int, new: int, *, first: bool) -> None:
        """Write the candidate n and the new state of a step. In the first step (`first`) the old
        state is zero, and its term is left out.
        """
        writer, rows = self._writer, self._sizes.rows
        candidate, update, reset, added = lines
        halved = shifted(14), WIDE
        writer.vector(Operation.MULTIPLY, reset, added, candidate, rows, *halved, accumulate=1)
        how = {"table": CELL_INTEGER_BITS}
        writer.copy(candidate, candidate, rows, ONE, WIDE, Function.TANH, **how)
        if not first:
            writer.vector(Operation.MULTIPLY, update, state, state, rows, *halved)
        at = (update, update, new, rows, Entry(left=1, bias=_LARGEST), WIDE)
        writer.vector(Operation.SUBTRACT, *at, scales=(0, UNIT))
        at = (new, candidate, state, rows, *halved)
        writer.vector(Operation.MULTIPLY, *at, accumulate=int(not first))
