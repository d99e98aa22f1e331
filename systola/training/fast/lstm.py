# SPDX-License-Identifier: Apache-2.0
"""Computes the forward and backward pass of an LSTM through time.

The numbers are the same as in `systola.training.recurrent`. The gates of all arrays are in Keras's
order: input, forget, cell, output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from systola.golden.training import held, magnitude_bits
from systola.training.fast.arithmetic import (
    Narrow,
    Sums,
    Wide,
    logistic,
    measured,
    narrow,
    product,
    scaled,
    tangent,
    times,
    wide,
)
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import STATE_BITS
from systola.training.recurrent_backward import (
    INT8_BITS,
    SLOPE_BITS,
    TOP_BITS,
    TOP_BITS_OF_ALL,
    gradient_bits,
)
from systola.training.recurrent_base import CELL_BITS, CELL_INTEGER_BITS, LEAST_SHIFT, STATE_SHIFT
from systola.training.stages import BIAS_LESS
from systola.training.writer import Entry, shifted

_LARGEST = (1 << 15) - 1


@dataclass(frozen=True)
class Weights:
    """The weights of an LSTM or GRU, and the fraction bits of their masters."""

    kernel: Narrow
    """Weights of the kernel, (inputs, gates)."""
    recurrent: Narrow
    """Weights of the recurrent kernel, (units, gates)."""
    biases: Wide
    """Masters (int16) of the biases, (gates,)."""
    recurrent_biases: Wide
    """Masters (int16) of the biases of the recurrent kernel, (gates,); an LSTM has none, (0,)."""
    kernel_bits: int
    recurrent_bits: int
    input_bits: int
    """Fraction bits of the inputs of a step."""


@dataclass(frozen=True)
class Gradients:
    """The negative gradients of an LSTM or GRU. Gradients of weights are sums over steps and
    samples.
    """

    kernel: Sums
    biases: Sums
    """Gradient of the biases, (1, gates), summed over steps and samples."""
    recurrent: Sums
    recurrent_biases: Sums
    """Gradient of the biases of the recurrent kernel, if there are any, (1, gates)."""
    below: Wide
    """The gradient of the inputs, (steps, samples, inputs)."""
    bits: int
    """Fraction bits of `below`, and of all gradients through time."""


@dataclass
class Recurring:
    """An LSTM or GRU that computes all steps in time of a batch; inputs are (steps, samples,
    inputs).
    """

    weights: Weights
    inputs: Narrow
    states: list[Wide] = field(default_factory=list[Wide])
    """States, (samples, units), before the first step and after each step."""
    gates: list[list[Wide]] = field(default_factory=list[list[Wide]])
    """The gates of each step, each of shape (samples, units)."""
    state_bits: int = 0
    """Fraction bits of the states when they are narrowed to int8 for the update of the recurrent
    kernel."""

    def all_states(self) -> Wide:
        """Return the states after each step, (steps, samples, units), with STATE_BITS fraction
        bits.
        """
        return np.stack(self.states[1:])

    def forward(self) -> Wide:
        """Compute all steps, and return the last state, with STATE_BITS fraction bits."""
        raise NotImplementedError

    def backward(self, gradient: Narrow, bits: int, count: int, *, embedded: bool) -> Gradients:
        """Compute the backward pass through time, from the gradient of the last state.

        The gradient has `bits` fraction bits. `count`: number of samples of the whole batch, of
        which the samples here may be a part. `embedded`: whether the gradient of the inputs is
        needed.
        """
        steps = len(self.inputs)
        left = min(TOP_BITS, gradient_bits(steps * count)) - INT8_BITS
        last = wide(scaled(gradient, shifted(-left - 1)))
        return self._backward([None] * (steps - 1) + [last], held(bits + left), count, embedded)

    def backward_of_all(
        self,
        gradients: Wide,
        bits: int,
        count: int,
        *,
        embedded: bool,
        scale: tuple[int, int],
        mask: Narrow | None,
    ) -> Gradients:
        """Compute the backward pass through time, from the gradients of all states.

        The gradients are (steps, samples, units), with `bits` fraction bits. `scale`: the
        multiplier that a Dropout after this layer needs, and the number of bits lost by this
        multiplier. `mask`: the mask of the Dropout, or None. The other arguments are as for
        `backward`.
        """
        (q, lost), most = scale, gradient_bits(len(gradients) * count)
        top = min(TOP_BITS_OF_ALL, most)
        shift = held(max(LEAST_SHIFT, magnitude_bits(gradients) - top - 1))
        given = wide(scaled(gradients, Entry(q), shift))
        if mask is not None:
            given = given * mask
        return self._backward(list(given), held(bits - shift - lost), count, embedded)

    def _backward(
        self, given: Sequence[Wide | None], bits: int, count: int, embedded: bool
    ) -> Gradients:
        """Compute the backward pass through time, from gradients of states with `bits` fraction
        bits.

        `given` has, for each step, the gradient of the step's state from the layer above, or None
        for no gradient. The last item is not None.
        """
        raise NotImplementedError

    def _gradients(self, rows: Wide, again: Wide, bits: int, embedded: bool) -> Gradients:
        """Compute the gradients of all weights, and of the inputs if they are `embedded`.

        `rows`: gradients of the sums to which the kernel contributes. `again`: gradients of the
        sums to which the recurrent kernel contributes. `rows` and `again` are (steps times samples,
        gates), with `bits` fraction bits.
        """
        found, (steps, samples, _) = self.weights, self.inputs.shape
        below = np.zeros(self.inputs.shape, np.int16)
        if embedded:
            through = shifted(found.kernel_bits - MASTER_SHIFT - 1)
            below = wide(scaled(product(rows, found.kernel.T), through)).reshape(below.shape)
        states = np.stack(self.states[:-1]).reshape(steps * samples, -1)
        shift = held(STATE_SHIFT - self.state_bits)
        narrowed = narrow(scaled(states, Entry(), shift))
        return Gradients(
            kernel=product(self.inputs.reshape(steps * samples, -1).T, rows),
            biases=rows.sum(axis=0, keepdims=True, dtype=np.int32),
            recurrent=product(narrowed.T, again),
            recurrent_biases=again.sum(axis=0, keepdims=True, dtype=np.int32),
            below=below,
            bits=bits,
        )


@dataclass
class Lstm(Recurring):
    """An LSTM that computes all steps in time of a batch."""

    cells: list[Wide] = field(default_factory=list[Wide])
    """Cells, (samples, units), before the first step and after each step."""

    def forward(self) -> Wide:
        """Compute all steps, and return the last state, with STATE_BITS fraction bits."""
        found, (steps, samples, _) = self.weights, self.inputs.shape
        units = len(found.recurrent)
        start = wide(scaled(found.biases, shifted(found.kernel_bits - BIAS_LESS - CELL_BITS - 1)))
        entering = held(found.input_bits + found.kernel_bits - MASTER_SHIFT - CELL_BITS - 1)
        again = shifted(STATE_BITS + found.recurrent_bits - MASTER_SHIFT - CELL_BITS - 1)
        given = product(self.inputs.reshape(steps * samples, -1), found.kernel)
        given = wide(scaled(given, Entry(), entering) + start).reshape(steps, samples, -1)
        zeros = np.zeros((samples, units), np.int16)
        self.cells, self.states = [zeros], [zeros]
        shift = LEAST_SHIFT
        for step in range(steps):
            z = given[step]
            if step:
                z = wide(scaled(product(self.states[-1], found.recurrent), again) + z)
            enter, forget, new, output = np.split(z, 4, axis=1)
            enter, forget, output = map(_sigmoid, (enter, forget, output))
            new = tangent(np.ascontiguousarray(new), CELL_INTEGER_BITS)
            entered = times(enter, new, 2 * 15 - CELL_BITS)
            cell = wide(entered + wide(times(forget, self.cells[-1], 15)))
            state = wide(times(output, tangent(cell, CELL_INTEGER_BITS), 15))
            self.gates.append([enter, forget, new, output])
            self.cells.append(cell)
            self.states.append(state)
            shift = measured(state, shift)
        self.state_bits = held(STATE_SHIFT - shift)
        return self.states[-1]

    def _backward(
        self, given: Sequence[Wide | None], bits: int, count: int, embedded: bool
    ) -> Gradients:
        """Compute the backward pass through time, from gradients of states with `bits` fraction
        bits.

        `given` has, for each step, the gradient of the step's state from the layer above, or None
        for no gradient. The last item is not None.
        """
        found, (steps, samples, _) = self.weights, self.inputs.shape
        most = gradient_bits(steps * count)
        dh, dc = given[-1], None
        assert dh is not None
        recurrent = found.recurrent.T
        again = shifted(found.recurrent_bits - MASTER_SHIFT - 1)
        slopes = np.empty((steps, samples, recurrent.shape[0]), np.int16)
        for step in reversed(range(steps)):
            dz, dc = self._step(step, dh, dc, most)
            slopes[step] = dz
            if step:
                more = given[step - 1]
                dh = wide(scaled(product(dz, recurrent), again) + (0 if more is None else more))
        rows = slopes.reshape(steps * samples, -1)
        return self._gradients(rows, rows, bits, embedded)

    def _step(self, step: int, dh: Wide, dc: Wide | None, most: int) -> tuple[Wide, Wide]:
        """Compute the gradients of the sums of a step's gates, and of the cell before the step.

        `dh` and `dc`: gradients of state and cell after the step. `most`: largest number of
        magnitude bits of the gradient of a sum.
        """
        enter, forget, new, output = self.gates[step]
        tanh = tangent(self.cells[step + 1], CELL_INTEGER_BITS)
        slope_enter = wide(times(slope(enter), new, 15))
        slope_forget = wide(times(slope(forget), self.cells[step], CELL_BITS + 15 - SLOPE_BITS))
        slope_output = wide(times(slope(output), tanh, 15))
        slope_new = wide(times(below_one(wide(times(new, new, 15))), enter, 15))
        through = wide(times(below_one(wide(times(tanh, tanh, 15))), output, 15))
        cell = wide(times(through, dh, 15) + (0 if dc is None else dc))
        dz = (
            times(slope_enter, cell, 15),
            times(slope_forget, cell, SLOPE_BITS),
            times(slope_new, cell, 15),
            times(slope_output, dh, 15),
        )
        limit = (1 << most) - 1
        joined = wide(np.concatenate(dz, axis=1))
        if most < 15:
            joined = np.clip(joined, -limit, limit)
        return joined, wide(times(cell, forget, 15))


def _sigmoid(values: Wide) -> Wide:
    return logistic(np.ascontiguousarray(values))


def slope(gate: Wide) -> Wide:
    """Compute the slope of a sigmoid from its result x: x - x^2."""
    return gate - wide(times(gate, gate, 15))


def below_one(values: Wide) -> Wide:
    return wide(_LARGEST - values.astype(np.int32))
