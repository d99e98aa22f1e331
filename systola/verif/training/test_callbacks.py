# SPDX-License-Identifier: Apache-2.0
"""Tests that training goes on with the settings or weights that a callback sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from systola.training import SGD, Callback, Dense, Input, Sequential
from systola.verif.training.data import clusters

X, Y = clusters(96, features=6, classes=3, seed=5)


def compiled(rate: float) -> Sequential:
    model = Sequential([Input((6,)), Dense(3)])
    compile_with(model, rate)
    return model


def compile_with(model: Any, rate: float) -> None:
    model.compile(SGD(rate), preset="8x8-training", backend="iss")


class Once(Callback):
    """A callback that calls `act` with the model once in epoch 0.

    The call comes at the end of batch `batch`, or of the epoch if `batch` is None.
    """

    def __init__(self, act: Callable[[Any], None], batch: int | None) -> None:
        self._act = act
        self._batch = batch
        self._epoch = 0

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self._epoch = epoch + 1
        if self._batch is None and epoch == 0:
            self._act(self.model)

    def on_train_batch_end(self, batch: int, logs: Any) -> None:
        if self._epoch == 0 and batch == self._batch:
            self._act(self.model)


def test_a_rate_that_is_set_between_epochs() -> None:
    """Check that a learning rate that a callback sets is used from the next epoch on.

    The weights equal the weights after two calls of fit(), each with its own rate.
    """
    changing, parts = compiled(0.5), compiled(0.5)
    lower = Once(lambda model: compile_with(model, 0.125), None)
    changing.fit(X, Y, epochs=3, callbacks=[lower], verbose=0)
    parts.fit(X, Y, epochs=1, verbose=0)
    compile_with(parts, 0.125)
    parts.fit(X, Y, epochs=3, initial_epoch=1, verbose=0)
    assert same(changing, parts)
    unchanged = compiled(0.5)
    unchanged.fit(X, Y, epochs=3, verbose=0)
    assert not same(changing, unchanged)


@pytest.mark.parametrize("batch", [None, 0, 1])
def test_weights_that_are_set_are_trained_on(batch: int | None) -> None:
    """Check that training goes on with the weights that a callback sets.

    The learning rate is too low to move a weight, so the weights at the end are the weights that
    were set.
    """
    model = compiled(2.0**-20)
    rng = np.random.default_rng(1)
    wanted = [rng.integers(-8, 8, (6, 3)) / 8, np.zeros(3)]
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[Once(lambda m: m.set_weights(wanted), batch)])
    assert all(map(np.array_equal, model.get_weights(), wanted))


def same(one: Sequential, other: Sequential) -> bool:
    return all(map(np.array_equal, one.get_weights(), other.get_weights()))
