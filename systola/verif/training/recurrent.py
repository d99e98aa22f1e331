# SPDX-License-Identifier: Apache-2.0
"""Embedding and LSTM in float32 with numpy, by Keras's equations, forward and back through time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.training.stages import Recurrence

Floats = NDArray[np.float32]


class Recurrent:
    """An LSTM in float32, with an Embedding before it if there is a vocabulary.

    Weights are in Keras's form and order: embeddings, kernel, recurrent kernel, biases.
    """

    def __init__(self, lstm: Recurrence) -> None:
        self._lstm = lstm
        self._kept: list[tuple[Floats, ...]] = []
        self._x = np.zeros(0, np.float32)
        self._weights: Sequence[Floats] = ()

    @property
    def arrays(self) -> int:
        """Number of arrays of weights that the layer has, 3 or 4."""
        return 3 + bool(self._lstm.vocabulary)

    def forward(self, x: NDArray[np.floating], weights: Sequence[Floats]) -> Floats:
        """Return the layer's last state (samples, units) for the words or numbers of samples.

        An LSTM that gives sequences returns all states (samples, steps, units).
        """
        lstm, self._x, self._weights = self._lstm, x, weights
        if lstm.vocabulary:
            embeddings, *weights = weights
            inputs = embeddings[x.astype(int)]
        else:
            inputs = x.reshape(len(x), lstm.steps, -1).astype(np.float32)
        kernel, recurrent, biases = weights[:3]
        state = cell = np.zeros((len(x), lstm.units), np.float32)
        self._kept, states = [], []
        for step in range(lstm.steps):
            before, given = cell, inputs[:, step]
            z = given @ kernel + state @ recurrent + biases
            i, f, g, o = np.split(z, 4, axis=1)
            i, f, g, o = logistic(i), logistic(f), np.tanh(g), logistic(o)
            cell = f * before + i * g
            self._kept.append((given, state, before, i, f, g, o, np.tanh(cell)))
            state = o * np.tanh(cell)
            states.append(state)
        return np.stack(states, axis=1) if lstm.sequences else state

    def backward(self, gradient: Floats) -> tuple[list[Floats], Floats]:
        """Return the gradients of the weights, and of the inputs if they are numbers.

        `gradient` is the gradient of the result of forward().
        """
        words, every = bool(self._lstm.vocabulary), gradient
        if self._lstm.sequences:
            gradient = every[:, -1]
        below: list[Floats] = []
        updates = [np.zeros_like(each) for each in self._weights[: 3 + words]]
        kernel, recurrent = self._weights[words : 2 + words]
        cell = np.zeros_like(gradient)
        for step in reversed(range(self._lstm.steps)):
            given, state, before, i, f, g, o, tanh = self._kept[step]
            cell = cell + gradient * o * (1 - tanh**2)
            z = np.concatenate(
                (
                    cell * g * i * (1 - i),
                    cell * before * f * (1 - f),
                    cell * i * (1 - g**2),
                    gradient * tanh * o * (1 - o),
                ),
                axis=1,
            )
            updates[words] += given.T @ z
            updates[1 + words] += state.T @ z
            updates[2 + words] += z.sum(axis=0)
            below.append(z @ kernel.T)
            if words:
                np.add.at(updates[0], self._x[:, step].astype(int), below[-1])
            gradient, cell = z @ recurrent.T, cell * f
            if self._lstm.sequences and step:
                gradient = gradient + every[:, step - 1]
        return updates, np.stack(below[::-1], axis=1)


def logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))
