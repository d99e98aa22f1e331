# SPDX-License-Identifier: Apache-2.0
"""A GRU in floating point with numpy, by Keras's equations, forward and back through time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.training.stages import Recurrence
from systola.verif.training.recurrent import Floats, Recurrent, logistic


class Gru(Recurrent):
    """A GRU in floating point that resets after the product with the recurrent kernel.

    The GRU computes in the type of its weights, which have Keras's form. So biases have two rows.
    """

    def forward(self, x: NDArray[np.floating], weights: Sequence[Floats]) -> Floats:
        """Return the last state (samples, units), or all states (samples, steps, units).

        All states are returned if the layer gives sequences.
        """
        gru, self._x, self._weights = self._lstm, x, weights
        if gru.vocabulary:
            embeddings, *weights = weights
            inputs = embeddings[x.astype(int)]
        else:
            inputs = x.reshape(len(x), gru.steps, -1).astype(weights[0].dtype)
        kernel, recurrent, biases = weights[:3]
        state = np.zeros((len(x), gru.units), kernel.dtype)
        self._kept, states = [], []
        for step in range(gru.steps):
            before, given = state, inputs[:, step]
            own = np.split(given @ kernel + biases[0], 3, axis=1)
            of_state = np.split(before @ recurrent + biases[1], 3, axis=1)
            z, r = logistic(own[0] + of_state[0]), logistic(own[1] + of_state[1])
            new = np.tanh(own[2] + r * of_state[2])
            self._kept.append((given, before, z, r, new, of_state[2]))
            state = z * before + (1 - z) * new
            states.append(state)
        return np.stack(states, axis=1) if gru.sequences else state

    def backward(self, gradient: Floats) -> tuple[list[Floats], Floats]:
        """Return the gradients of the weights, and of the inputs of all steps."""
        words, every = bool(self._lstm.vocabulary), gradient
        if self._lstm.sequences:
            gradient = every[:, -1]
        below: list[Floats] = []
        updates = [np.zeros_like(each) for each in self._weights[: 3 + words]]
        kernel, recurrent = self._weights[words : 2 + words]
        for step in reversed(range(self._lstm.steps)):
            given, before, z, r, new, added = self._kept[step]
            news = gradient * (1 - z) * (1 - new**2)
            gates = gradient * (before - new) * z * (1 - z), news * added * r * (1 - r)
            own, of_state = (np.concatenate((*gates, last), axis=1) for last in (news, news * r))
            updates[words] += given.T @ own
            updates[1 + words] += before.T @ of_state
            updates[2 + words] += np.stack((own.sum(axis=0), of_state.sum(axis=0)))
            below.append(own @ kernel.T)
            if words:
                np.add.at(updates[0], self._x[:, step].astype(int), below[-1])
            gradient = of_state @ recurrent.T + gradient * z
            if self._lstm.sequences and step:
                gradient = gradient + every[:, step - 1]
        return updates, np.stack(below[::-1], axis=1)


def recurrent(about: Recurrence) -> Recurrent:
    """Return a floating-point LSTM or GRU for the layer that is described by `about`."""
    return Gru(about) if about.gru else Recurrent(about)
