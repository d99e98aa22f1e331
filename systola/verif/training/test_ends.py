# SPDX-License-Identifier: Apache-2.0
"""Tests of losses and gradients at the ends of their codes and beyond, against exact arithmetic.

The network is one Dense layer. In each sample a single number is 1, so each row of the kernel has
the logits of one sample. Logits beyond 32 stay at the end of their code. Softmax takes logits
beyond 31.75 as 31.75. A loss of 16 or more stays at the end of its code. In binary cross-entropy,
BINARY, so does the loss of each output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.training import SGD, Dense, Input, Sequential
from systola.training.loss import BINARY

UNITS = 10
SOFTMAX = "sparse_categorical_crossentropy"
END, MOST_SOFTMAX, MOST_LOSS = 32 - 2.0**-10, 31.75, 16 - 2.0**-11
LOSS_STEP = 2.0**-11
ROWS = np.array(
    [
        np.full(UNITS, 40),
        np.full(UNITS, -40),
        np.full(UNITS, 31.75),
        [0, 0, 0, 31.9, 0, 0, 0, 0, 0, 0],
        [31.5, 31.75, 31.9, 32, 40, 1, 2, 3, 4, 5],
        [-31.5, -31.75, -31.9, -32, -40, 0, 0.25, -0.25, 8, -8],
        [31.75, 31.25, 31, 30.75, 30.5, 30.25, 30, 29.75, 29.5, 29.25],
        [-40, 40, 40, -40, -40, -40, -40, -40, -40, -40],
    ]
)
"""Logits of the test's samples, at the ends of their codes and beyond."""


def network(rows: NDArray[Any], loss: str) -> tuple[Sequential, NDArray[np.float64]]:
    """Make a network, and samples for which the network's logits are `rows`, one a sample."""
    samples = np.eye(len(rows))
    model = Sequential([Input((len(rows),)), Dense(rows.shape[1])])
    model.compile(SGD(1.0), loss, preset="8x8-training", backend="iss")
    model.set_weights([rows, np.zeros(rows.shape[1])])
    return model, samples


def exact_losses(logits: NDArray[np.float64], targets: NDArray[np.float64], loss: str) -> Any:
    """Calculate the loss of each sample, and its gradient for each logit, in float64."""
    if loss == SOFTMAX:
        z = np.minimum(logits, MOST_SOFTMAX)
        logs = z - np.logaddexp.reduce(z, axis=1, keepdims=True)
        return -(targets * logs).sum(axis=1), np.exp(logs) - targets
    if loss == BINARY:
        losses = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
        return np.minimum(losses, MOST_LOSS).mean(axis=1), (
            1 / (1 + np.exp(-logits)) - targets
        ) / logits.shape[1]
    error = logits - targets
    return (error**2).mean(axis=1), 2 * error / logits.shape[1]


@pytest.mark.parametrize("label", [0, 3, 4])
def test_softmax(label: int) -> None:
    labels = np.full(len(ROWS), label)
    check(ROWS, labels, np.eye(UNITS)[labels], SOFTMAX)


@pytest.mark.parametrize("label", [0, 1])
def test_binary(label: int) -> None:
    labels = np.full(ROWS.shape, label)
    check(ROWS, labels, labels, BINARY)


def test_mean_squares() -> None:
    """Check the mean square of errors of up to 3.

    docs/training.md has the range of targets, which are int16 codes with 10 fraction bits.
    """
    rows = np.array([[0.5, -0.5, 3.75, -3.75], [5, -5, 0, 0.25]])
    targets = np.array([[0.25, -0.25, 1, -1], [2, -2, 3, 3]])
    check(rows, targets, targets, "mse")


def check(rows: NDArray[Any], labels: Any, targets: NDArray[Any], loss: str) -> None:
    """Compare the losses and gradients of a network with given logits to exact arithmetic."""
    model, samples = network(rows, loss)
    model.fit(samples, labels, epochs=0, batch_size=1, verbose=0)
    logits = np.clip(model.predict(samples).astype(float), -32, END)
    losses, gradients = exact_losses(logits, np.asarray(targets, float), loss)
    # In a BINARY loss the loss of each output is rounded, by up to half of LOSS_STEP.
    tolerance = (1 + UNITS / 2 * (loss == BINARY)) * LOSS_STEP
    for number, expected in enumerate(losses):
        found = model.evaluate(samples[number : number + 1], labels[number : number + 1])
        assert found == pytest.approx(min(expected, MOST_LOSS), abs=tolerance), number
        assert found >= -LOSS_STEP

    # At this rate a training step subtracts the gradient of a sample from each weight. The largest
    # gradient is exact to 7 bits, and a weight of up to 40 to 8 fraction bits.
    before = model.get_weights()[0]
    model.compile(SGD(len(rows)), loss, preset="8x8-training", backend="iss")
    model.fit(samples, labels, batch_size=len(rows), verbose=0)
    step = np.abs(gradients).max() / 64 + 2.0**-8
    assert np.abs(model.get_weights()[0] - before + gradients).max() <= step
