# SPDX-License-Identifier: Apache-2.0
"""Tests of the energy and the operations of a training step, which are in History."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    SGD,
    Adam,
    Conv2D,
    Dense,
    Embedding,
    Flatten,
    Input,
    Sequential,
)
from systola.training.engine import Engine
from systola.training.step_energy import step_macs
from systola.verif.training.data import digits

SMALL = "8x8-training"


def fitted(samples: int = 40, batch: int = 16, *, optimizer: Any = None, **how: Any) -> Any:
    (x, y), _ = digits()
    model = Sequential([Dense(24, "relu"), Dense(10)])
    model.compile(optimizer or SGD(0.1), **{"preset": SMALL, "backend": "fast"} | how)
    validation = (x[:9], y[:9])
    return model.fit(
        x[:samples], y[:samples], batch_size=batch, verbose=0, validation_data=validation
    )


@pytest.mark.parametrize(
    ("layers", "macs"),
    [
        # Multiply-accumulates are for the sums, for the gradients of weights and, except in the
        # first layer, for the gradient of the inputs.
        ([Input((784,)), Dense(512, "relu"), Dense(10)], 2 * 784 * 512 + 3 * 512 * 10),
        # The convolution has 6 x 6 pixels of 4 filters, each of 3 x 3 taps of 2 channels.
        (
            [Input((8, 8, 2)), Conv2D(4, 3), Flatten(), Dense(10)],
            2 * 36 * 9 * 2 * 4 + 3 * 144 * 10,
        ),
        # An LSTM has four gates, each of 5 units, and 7 steps. A gate takes the 3 numbers of a
        # word, and the state.
        ([Input((7,)), Embedding(20, 3), LSTM(5), Dense(2)], 3 * 7 * (3 + 5) * 20 + 3 * 5 * 2),
        # With numbers in place of words, no gradient of the LSTM's inputs is needed.
        ([Input((7, 3)), LSTM(5), Dense(2)], 7 * (2 * 3 + 3 * 5) * 20 + 3 * 5 * 2),
    ],
)
def test_operations_by_hand(layers: list[Any], macs: int) -> None:
    assert step_macs(Sequential(layers).stages()) == macs


def test_energy_of_a_step() -> None:
    found = fitted().energy
    assert (found.samples, found.operations) == (16, 2 * 16 * (2 * 64 * 24 + 3 * 24 * 10))
    # No weights come from weight memory, as training keeps them in the unified buffer. Each step
    # reads and writes the masters in host memory.
    done = found.activity
    assert done.weights == done.links == 0
    assert done.host > 2 * 2 * 2 * (64 * 24 + 24 * 10)
    # Some operands have 16 bits, so there are more multiply-adds of bytes than useful operations.
    assert done.macs + done.wide_macs > found.operations / 2
    assert list(found.joules) == ["45 nm", "7 nm"]
    assert found.cycles is None and found.operations_per_second(100) is None


def test_back_ends_and_cores() -> None:
    """Check that all back ends count the same operations, and two cores as many as one."""
    one, other = fitted().energy, fitted(backend="iss").energy
    assert one == other
    two = fitted(cores=2).energy
    assert two.operations == one.operations and two.activity.links > 0
    assert two.activity.macs + two.activity.wide_macs >= one.activity.macs + one.activity.wide_macs


def test_state_beside_the_masters_takes_more() -> None:
    optimizers = SGD(0.1), SGD(0.1, 0.9), Adam()
    plain, momentum, moments = (fitted(optimizer=each).energy for each in optimizers)
    assert plain.activity.host < momentum.activity.host < moments.activity.host
    assert plain.operations == momentum.operations == moments.operations


def test_a_batch_in_turns() -> None:
    """Check the energy of a batch without room in the buffer, which is taken in turns (parts).

    The products of all samples count as operations. Work for sums that are kept between the turns,
    and read again, does not count.
    """
    one, many = fitted().energy, fitted(batch=1200, samples=1400).energy
    assert many.operations == 75 * one.operations
    assert many.activity.macs + many.activity.wide_macs > many.operations / 2
    assert many.activity.host / 75 < one.activity.host  # a batch reads and writes masters once


def test_words_in_turns() -> None:
    """Check that a batch in turns (parts) reads a row of the masters for each word of a text."""
    words = np.random.default_rng(0).integers(0, 300, (1280, 5))
    energies: list[Any] = []
    for batch in (16, 1280):
        model = Sequential([Input((5,)), Embedding(300, 8), LSTM(8), Dense(1)])
        model.compile(SGD(0.1), loss="binary_crossentropy", preset=SMALL, backend="fast")
        labels = np.zeros(len(words))
        energies.append(model.fit(words, labels, batch_size=batch, verbose=0).energy)
    one, many = energies
    assert many.operations == 80 * one.operations
    assert many.activity.host > 1280 * 5 * 2 * 8


def test_a_step_without_a_program() -> None:
    """Check that there is no energy for layers that only back end "fast" can train.

    The machine has no program for such layers.
    """
    model = Sequential([Input((40_000,)), Dense(10)])
    model.compile(SGD(0.1), preset=SMALL, backend="fast")
    x = np.zeros((8, 40_000), np.float32)
    assert model.fit(x, np.zeros(8, int), batch_size=8, verbose=0).energy is None


def test_cycles_of_a_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that only steps of whole batches count, not the rest of an epoch or an evaluation."""
    run = Engine._run  # type: ignore[reportPrivateUsage]
    calls: list[int] = []

    def numbered(self: Engine, *of_the_batch: Any) -> int:
        run(self, *of_the_batch)
        calls.append(len(calls))
        return len(calls)

    monkeypatch.setattr(Engine, "_run", numbered)
    monkeypatch.setattr("systola.training.engine.survey_is_due", lambda steps: False)
    found = fitted(backend="iss").energy  # 16, 16 and 8 samples are trained, and 9 evaluated
    assert (found.cycles, len(calls)) == (2, 4)
    assert found.operations_per_second(100) == found.operations * 100e6 / 2
