# SPDX-License-Identifier: Apache-2.0
"""Tests of the weights of samples and classes, with which gradients and losses are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systola.training import Dense, Input, Sequential
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

COUNT, BATCH = 21, 8
LOSSES = {
    "sparse_categorical_crossentropy": 3,
    "categorical_crossentropy": 3,
    "binary_crossentropy": 2,
    "mse": 2,
}


def made(loss: str, **how: Any) -> Sequential:
    model = Sequential([Input((5,)), Dense(9, "relu"), Dense(LOSSES[loss])])
    model.compile("sgd", loss, preset="8x8-training", seed=2, **{"backend": "fast", **how})
    return model


def data(loss: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(random_seed())
    x = rng.normal(size=(COUNT, 5))
    if loss.startswith("sparse"):
        return x, rng.integers(0, 3, COUNT)
    if loss == "mse":
        return x, rng.normal(size=(COUNT, 2))
    kinds = LOSSES[loss]
    return x, np.eye(kinds)[rng.integers(0, kinds, COUNT)]


def learnt(model: Sequential) -> list[bytes]:
    return [each.tobytes() for each in model.state().masters]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cores", [1, thorough(2)])
def test_bytes_of_the_golden_model(loss: str, cores: int) -> None:
    x, y = data(loss)
    weights = np.random.default_rng(random_seed()).uniform(0, 3, COUNT)
    found = []
    for how in ({"backend": "fast"}, {"backend": "iss", "cores": cores}):
        model = made(loss, **how)
        options: dict[str, Any] = {"batch_size": BATCH, "epochs": 2, "verbose": 0}
        history = model.fit(x, y, sample_weight=weights, validation_data=(x, y, weights), **options)
        found.append((learnt(model), history.history))
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_two_counts_as_two_samples(loss: str) -> None:
    """Check that a sample with weight 2 moves weights like a batch that has the sample twice.

    Sums of gradients are exact, so both batches have the same sums.
    """
    (x, y), twice = data(loss), 3
    weights = np.ones(BATCH)
    weights[twice] = 2
    one, two = made(loss), made(loss)
    one.train_on_batch(x[:BATCH], y[:BATCH], sample_weight=weights)
    again = np.append(np.arange(BATCH), twice)
    # As in Keras, a step divides by the number of samples, not by the sum of their weights.
    two.optimizer.learning_rate = 0.01 * (BATCH + 1) / BATCH
    two.train_on_batch(x[again], y[again])
    for here, there in zip(one.get_weights(), two.get_weights(), strict=True):
        assert abs(here - there).max() < 2.0**-9
    same = made(loss)
    same.train_on_batch(x[:BATCH], y[:BATCH], sample_weight=3 * np.ones(BATCH))
    plain = made(loss)
    plain.optimizer.learning_rate = 0.03
    plain.train_on_batch(x[:BATCH], y[:BATCH])
    assert learnt(same) == learnt(plain)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_zero_leaves_a_sample_out(loss: str) -> None:
    x, y = data(loss)
    weights = np.ones(COUNT)
    weights[5:] = 0
    one, two = made(loss), made(loss)
    others = np.concatenate((y[:5], y[:4:-1]))
    assert not np.array_equal(others, y)
    one.train_on_batch(x, others, sample_weight=weights)
    two.train_on_batch(x, y, sample_weight=weights)
    assert learnt(one) == learnt(two)
    assert one.evaluate(x, y, sample_weight=weights) == pytest.approx(
        one.evaluate(x[:5], y[:5]) * 5 / COUNT, abs=1e-9
    )


def test_class_weights() -> None:
    """Check that class weights count as weights of samples, and are multiplied with them."""
    loss = "sparse_categorical_crossentropy"
    x, y = data(loss)
    own = np.random.default_rng(random_seed()).uniform(0.5, 2, COUNT)
    by_class = np.array([1.0, 0.25, 3.0])
    options: dict[str, Any] = {"batch_size": BATCH, "verbose": 0}
    one, two = made(loss), made(loss)
    one.fit(x, y, class_weight={1: 0.25, 2: 3.0}, sample_weight=own, **options)
    two.fit(x, y, sample_weight=own * by_class[y], **options)
    assert learnt(one) == learnt(two)


def test_class_weights_of_one_output() -> None:
    """Check class weights of a single output: a label above one half is of class 1."""
    x, y = data("sparse_categorical_crossentropy")
    found: list[list[bytes]] = []
    for weights in ({"class_weight": {1: 2.0}}, {"sample_weight": 1 + y % 2}):
        model = Sequential([Input((5,)), Dense(1, "sigmoid")])
        model.compile("sgd", "binary_crossentropy", backend="fast", preset="8x8-training")
        model.fit(x, y % 2, batch_size=BATCH, verbose=0, **weights)
        found.append(learnt(model))
    assert found[0] == found[1]


def test_metrics_are_not_weighted() -> None:
    loss = "sparse_categorical_crossentropy"
    x, y = data(loss)
    model = made(loss, metrics=["accuracy"])
    plain, weighted = (
        model.evaluate(x, y, sample_weight=each, return_dict=True)
        for each in (None, np.linspace(0, 1, COUNT))
    )
    assert isinstance(plain, dict) and isinstance(weighted, dict)
    assert plain["accuracy"] == weighted["accuracy"] and plain["loss"] != weighted["loss"]
