# SPDX-License-Identifier: Apache-2.0
"""Computes the forward and backward pass of a GRU through time.

The numbers are the same as in `systola.training.gru`. The parts of all arrays are in Keras's order:
z, r, and the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from systola.golden.training import held
from systola.training.fast.arithmetic import (
    Wide,
    logistic,
    measured,
    product,
    scaled,
    tangent,
    times,
    wide,
)
from systola.training.fast.lstm import Gradients, Recurring, below_one, slope
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import STATE_BITS
from systola.training.recurrent_backward import SLOPE_BITS, gradient_bits
from systola.training.recurrent_base import CELL_BITS, CELL_INTEGER_BITS, LEAST_SHIFT, STATE_SHIFT
from systola.training.stages import BIAS_LESS
from systola.training.writer import Entry, shifted


@dataclass
class Gru(Recurring):
    """A GRU that computes all steps in time of a batch; inputs are (steps, samples, inputs).

    `gates` has z, r, the candidate n, and q. q is the product of state and recurrent kernel that is
    scaled by r and added to the sum of n.
    """

    def forward(self) -> Wide:
        """Compute all steps, and return the last state, with STATE_BITS fraction bits."""
        found, (steps, samples, _) = self.weights, self.inputs.shape
        units = len(found.recurrent)
        less = BIAS_LESS + CELL_BITS + 1
        start = wide(scaled(found.biases, shifted(found.kernel_bits - less)))
        more = scaled(found.recurrent_biases, shifted(found.recurrent_bits - less))
        start[: 2 * units] = wide(start[: 2 * units] + more[: 2 * units])
        added_alone = wide(more[2 * units :])
        entering = held(found.input_bits + found.kernel_bits - MASTER_SHIFT - CELL_BITS - 1)
        again = shifted(STATE_BITS + found.recurrent_bits - MASTER_SHIFT - CELL_BITS - 1)
        given = product(self.inputs.reshape(steps * samples, -1), found.kernel)
        given = wide(scaled(given, Entry(), entering) + start).reshape(steps, samples, -1)
        state = np.zeros((samples, units), np.int16)
        self.states, shift = [state], LEAST_SHIFT
        for step in range(steps):
            sums = np.concatenate((given[step], np.tile(added_alone, (samples, 1))), axis=1)
            if step:
                own = [*range(2 * units), *range(3 * units, 4 * units)]
                sums[:, own] = wide(scaled(product(state, found.recurrent), again) + sums[:, own])
            update, reset, new, added = map(np.ascontiguousarray, np.split(sums, 4, axis=1))
            update, reset = logistic(update), logistic(reset)
            new = tangent(wide(times(reset, added, 15) + new), CELL_INTEGER_BITS)
            kept = wide(times(update, state, 15))
            state = wide(times(below_one(update), new, 15) + kept)
            self.gates.append([update, reset, new, added])
            self.states.append(state)
            shift = measured(state, shift)
        self.state_bits = held(STATE_SHIFT - shift)
        return state

    def _backward(
        self, given: Sequence[Wide | None], bits: int, count: int, embedded: bool
    ) -> Gradients:
        """Compute the backward pass through time, from gradients of states with `bits` fraction
        bits.

        `given` has, for each step, the gradient of the step's state from the layer above, or None
        for no gradient. The last item is not None.
        """
        found, (steps, samples, _) = self.weights, self.inputs.shape
        dh, units, most = given[-1], len(found.recurrent), gradient_bits(steps * count)
        assert dh is not None
        again = shifted(found.recurrent_bits - MASTER_SHIFT - 1)
        slopes = np.empty((steps, samples, 4 * units), np.int16)
        for step in reversed(range(steps)):
            slopes[step], kept = self._step(step, dh, most)
            if step:
                more = given[step - 1]
                kept = kept if more is None else wide(kept + more.astype(np.int32))
                below = product(_recurrent(slopes[step], units), found.recurrent.T)
                dh = wide(scaled(below, again) + kept)
        rows = slopes.reshape(steps * samples, -1)
        return self._gradients(rows[:, : 3 * units], _recurrent(rows, units), bits, embedded)

    def _step(self, step: int, dh: Wide, most: int) -> tuple[Wide, Wide]:
        """Compute the gradients of the sums of a step, in the order of `gates`.

        The second result is dh z, which is a part of the gradient of the state before the step: the
        part that goes past the recurrent kernel. `dh`: gradient of the state after the step.
        `most`: largest number of magnitude bits of the gradient of a sum.
        """
        update, reset, new, added = self.gates[step]
        slope_update, slope_reset = wide(slope(update)), wide(slope(reset))
        past = wide(times(slope_update, self.states[step], 15)).astype(np.int32)
        slope_update = wide(past - wide(times(slope_update, new, 15)))
        slope_reset = wide(times(slope_reset, added, CELL_BITS + 15 - SLOPE_BITS))
        slope_new = wide(times(below_one(wide(times(new, new, 15))), below_one(update), 15))
        limit = (1 << most) - 1 if most < 15 else 1 << 15

        def limited(a: Wide, b: Wide, right: int = 15) -> Wide:
            return np.clip(wide(times(a, b, right)), -limit, limit).astype(np.int16)

        news = limited(slope_new, dh)
        updates, resets = limited(slope_update, dh), limited(slope_reset, news, SLOPE_BITS)
        sums = updates, resets, news, limited(reset, news)
        return np.concatenate(sums, axis=1), wide(times(update, dh, 15))


def _recurrent(slopes: Wide, units: int) -> Wide:
    """Select the gradients of z, r and q, the sums to which the recurrent kernel contributes."""
    return np.concatenate((slopes[:, : 2 * units], slopes[:, 3 * units :]), axis=1)
