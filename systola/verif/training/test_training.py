# SPDX-License-Identifier: Apache-2.0
"""Tests of training on the golden model, against float32 with the same weights, order and masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.training import (
    SGD,
    Activation,
    Callback,
    Dense,
    Dropout,
    Flatten,
    History,
    Input,
    ModelCheckpoint,
    ReLU,
    Sequential,
    TrainingError,
    load,
)
from systola.training.layers import Layer
from systola.training.state import glorot, weights
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.data import clusters, digits
from systola.verif.training.referee import Referee

SMALL = "8x8-training"


def compiled(layers: Sequence[Layer], optimizer: SGD | str = "sgd", **how: Any) -> Sequential:
    model = Sequential(layers)
    model.compile(optimizer, **{"preset": SMALL, "backend": "iss", "metrics": ["accuracy"]} | how)
    return model


def one_hot(labels: NDArray[Any], units: int) -> NDArray[np.float32]:
    return np.eye(units, dtype=np.float32)[labels]


def referee(model: Sequential, features: int, optimizer: SGD, **how: Any) -> Referee:
    found = model.stages(features)
    seed = how.pop("seed", 0)
    start = weights(found, glorot(found, seed))
    return Referee(found, start, optimizer, seed=seed, **{"size": 8} | how)


@pytest.mark.parametrize(
    ("layers", "optimizer"),
    [
        ([Dense(10)], SGD(0.1)),
        ([Dense(48, "relu"), Dense(10)], SGD(0.2)),
        ([Dense(48), ReLU(), Dropout(0.2), Dense(10)], SGD(0.2)),
        ([Dense(40, "relu"), Dropout(0.5), Dense(24), Dropout(0.1), Dense(10)], SGD(0.02, 0.9)),
        ([Dense(24, "relu"), Dense(24, "relu"), Dense(24, "relu"), Dense(10)], SGD(0.05, 0.5)),
    ],
)
def test_losses_are_those_of_float32(layers: list[Layer], optimizer: SGD, data_set: int) -> None:
    """Check losses and accuracies against float32, with bounds that hold for all data sets.

    A data set has its own initial weights, order of samples and dropout masks.
    """
    (x, y), (x_test, y_test) = digits()
    x, y = x[:240], y[:240]
    model = compiled(layers, optimizer, seed=data_set)
    history = model.fit(
        x, y, epochs=2, batch_size=24, validation_data=(x_test, y_test), verbose=0
    ).history
    against = referee(model, 64, optimizer, seed=data_set)
    for epoch in range(2):
        loss, accuracy = against.epoch(x, one_hot(y, 10), 24)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.03)
        assert history["accuracy"][epoch] == pytest.approx(accuracy, abs=0.03)
        loss, _ = against.evaluate(x_test, one_hot(y_test, 10))
        # The bound for an evaluation is wider than for an epoch. An epoch's loss is a mean over the
        # weights of many steps, in which rounding errors cancel.
        assert history["val_loss"][epoch] == pytest.approx(loss, rel=0.08)
    assert history["loss"][-1] < history["loss"][0]


def test_mean_squares(data_set: int) -> None:
    """Check the mean squared error of a network with five outputs against float32.

    All targets are sums of inputs.
    """
    rng = np.random.default_rng(data_set)
    x = rng.uniform(-2, 2, (300, 12)).astype(np.float32)
    y = (x @ rng.uniform(-1, 1, (12, 5))).astype(np.float32)
    model = compiled([Dense(16, "relu"), Dense(5)], SGD(0.05), loss="mse", metrics=[])
    history = model.fit(x, y, epochs=4, batch_size=16, verbose=0, shuffle=False).history
    against = referee(model, 12, SGD(0.05), loss="mse")
    for epoch in range(4):
        loss, _ = against.epoch(x, y, 16, shuffle=False)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.05)
    found, expected = model.predict(x[:50]), x[:50]
    for kernel, bias in zip(against.weights[::2], against.weights[1::2], strict=True):
        expected = expected @ kernel + bias
        expected = np.maximum(expected, 0) if kernel.shape[1] == 16 else expected
    assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()


def test_wide_classes_and_categorical_labels(data_set: int) -> None:
    """Check labels that are probabilities, for more classes than the array has columns."""
    x, y = clusters(400, features=20, classes=19, seed=data_set)
    labels = 0.9 * one_hot(y, 19) + 0.1 / 19
    loss = "categorical_crossentropy"
    model = compiled([Dense(19)], SGD(0.3), loss=loss)
    history = model.fit(x, labels, epochs=3, batch_size=40, verbose=0).history
    against = referee(model, 20, SGD(0.3))
    for epoch in range(3):
        expected, _ = against.epoch(x, labels.astype(np.float32), 40)
        assert history["loss"][epoch] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("units", [1, 11])
def test_binary_labels(units: int, data_set: int) -> None:
    """Check binary labels, some of them between 0 and 1, against float32.

    The sigmoid at the end is only for predict().
    """
    rng = np.random.default_rng(data_set)
    x = rng.uniform(-1, 1, (600, 12)).astype(np.float32)
    chance = 1 / (1 + np.exp(-8 * x @ rng.uniform(-1, 1, (12, units))))
    y = np.where(rng.random((600, units)) < 0.8, chance > 0.5, chance).astype(np.float32)
    loss = "binary_crossentropy"
    layers = [Dense(16, "relu"), Dense(units, "sigmoid")]
    model = compiled(layers, SGD(0.2, 0.5), loss=loss)
    history = model.fit(x, y if units > 1 else y[:, 0], epochs=3, batch_size=20, verbose=0).history
    against = referee(model, 12, SGD(0.2, 0.5), loss=loss)
    for epoch in range(3):
        expected, accuracy = against.epoch(x, y, 20)
        assert history["loss"][epoch] == pytest.approx(expected, rel=0.03)
        assert history["accuracy"][epoch] == pytest.approx(accuracy, abs=0.02)
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    found = model.predict(x[:50])
    hidden = np.maximum(x[:50] @ against.weights[0] + against.weights[1], 0)
    expected = 1 / (1 + np.exp(-(hidden @ against.weights[2] + against.weights[3])))
    assert np.abs(found - expected).max() < 0.1 and 0 <= found.min() < found.max() <= 1


def test_every_preset_has_the_same_numbers() -> None:
    """Check that the size of the array changes no learnt byte if there is no dropout."""
    (x, y), _ = digits()
    states = []
    for preset in ("4x4-training", SMALL, "base-training"):
        model = compiled([Dense(20, "relu"), Dense(10)], SGD(0.1, 0.9), preset=preset)
        model.fit(x[:200], y[:200], epochs=1, batch_size=20, verbose=0)
        states.append(model.state())
    for state in states[1:]:
        assert state.bits == states[0].bits
        for kind in ("masters", "velocities"):
            pairs = zip(getattr(state, kind), getattr(states[0], kind), strict=True)
            assert all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize("optimizer", [SGD(0.2, 0.9), thorough(SGD(0.2, rounding="stochastic"))])
def test_a_saved_model_goes_on_byte_for_byte(tmp_path: Path, optimizer: SGD) -> None:
    (x, y), _ = digits()
    x, y = x[:250], y[:250]
    layers = [Input((64,)), Dense(24, "relu"), Dropout(0.25), Dense(10, "softmax")]
    whole, half = (compiled(layers, optimizer, seed=4) for _ in range(2))
    whole.fit(x, y, epochs=4, batch_size=16, verbose=0)
    saver = ModelCheckpoint(tmp_path / "after{epoch}.tpu")
    half.fit(x, y, epochs=2, batch_size=16, verbose=0, callbacks=[saver])
    again = load(tmp_path / "after2.tpu")
    assert again.epochs == 2
    again.fit(x, y, epochs=4, initial_epoch=2, batch_size=16, verbose=0)
    for found, expected in zip(again.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(again.predict(x), whole.predict(x))
    settings = again.settings
    assert settings and settings["optimizer"] == optimizer
    (tmp_path / "bad").write_bytes(b"nothing")
    with pytest.raises(TrainingError, match="no model that was saved"):
        load(tmp_path / "bad")


@pytest.mark.thorough
def test_small_updates_arrive_when_rounded_at_random() -> None:
    """Check updates far below half the last place of a master.

    Rounding to nearest loses such updates. With rounding at random they add up as in float32.
    """
    (x, y), _ = digits()
    x, y, optimizer = x[:320], y[:320], SGD(2.0**-14)
    layers = [Input((64,)), Dense(10)]
    against = referee(compiled(layers, optimizer, seed=1), 64, optimizer, seed=1)
    start = against.weights[0].copy()
    for _ in range(4):
        against.epoch(x, one_hot(y, 10), 16)
    wanted = (against.weights[0] - start).reshape(-1)
    shares: list[float] = []
    for rounding in ("nearest", "stochastic"):
        model = compiled(layers, SGD(optimizer.learning_rate, rounding=rounding), seed=1)
        before = model.get_weights()[0]
        model.fit(x, y, epochs=4, batch_size=16, verbose=0)
        moved = (model.get_weights()[0] - before).reshape(-1)
        shares.append(float(moved @ wanted / (wanted @ wanted)))
    assert shares[0] < 0.2
    assert 0.85 < shares[1] < 1.15


def test_weights_that_grow_get_room() -> None:
    """Check weights that grow tenfold within an epoch: the exponents of the masters move."""
    (x, y), _ = digits()
    model = compiled([Input((64,)), Dense(10)], SGD(0.5))
    start = [np.full((64, 10), 0.02), np.zeros(10)]
    model.set_weights(start)
    before = model.state().bits
    model.fit(x, y, epochs=2, batch_size=16, verbose=0)
    assert model.state().bits[0] < before[0]
    against = Referee(model.stages(64), start, SGD(0.5))
    for _ in range(2):
        against.epoch(x, one_hot(y, 10), 16)
    differences = np.abs(model.get_weights()[0] - against.weights[0])
    assert differences.max() < 0.05 * np.abs(against.weights[0]).max()


def test_weights_come_back_as_they_were_given() -> None:
    rng = np.random.default_rng(random_seed() % 1000)
    weights = [rng.normal(size=shape) for shape in ((30, 17), (17,), (17, 5), (5,))]
    model = compiled([Input((30,)), Dense(17, "relu"), Dense(5)])
    model.set_weights(weights)
    for given, found in zip(weights, model.get_weights(), strict=True):
        assert np.abs(given - found).max() < 2.0**-10
    model.predict(rng.uniform(-1, 1, (3, 30)))
    for before, after in zip(found_of(model), model.get_weights(), strict=True):
        assert np.array_equal(before, after)


def found_of(model: Sequential) -> list[NDArray[Any]]:
    return weights(model.stages(), model.state())


def test_predict_takes_any_number() -> None:
    (x, y), (x_test, y_test) = digits()
    model = compiled([Flatten(), Dense(32, "relu"), Dense(10), Activation("softmax")], SGD(0.2))
    model.fit(x.reshape(-1, 8, 8), y, epochs=2, batch_size=32, verbose=0, validation_split=0.2)
    images = x_test.reshape(-1, 8, 8)
    every = model.predict(images)
    assert every.shape == (360, 10) and every.dtype == np.float32
    assert np.abs(every.sum(axis=1) - 1).max() < 0.01
    assert np.array_equal(model.predict(images[:1]), every[:1])
    assert np.array_equal(model.predict(images[5:50], batch_size=7), every[5:50])
    loss, accuracy = model.evaluate(images, y_test)
    assert accuracy == (every.argmax(axis=1) == y_test).mean()
    expected = -np.log(np.maximum(every[np.arange(360), y_test], 1e-4)).mean()
    assert loss == pytest.approx(expected, rel=0.03)


def test_callbacks_and_history() -> None:
    (x, y), _ = digits()

    class Watch(Callback):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_train_begin(self, logs: Any = None) -> None:
            self.seen.append("begin")

        def on_epoch_end(self, epoch: int, logs: Any) -> None:
            self.seen.append(f"{epoch} {' '.join(logs)}")
            self.model.stop_training = epoch == 1

        def on_train_end(self, logs: Any = None) -> None:
            self.seen.append("end")

    watch = Watch()
    model = compiled([Dense(10)])
    history = model.fit(
        x[:100],
        y[:100],
        epochs=9,
        batch_size=50,
        verbose=0,
        callbacks=[watch],
        validation_split=0.3,
    )
    names = "loss accuracy val_loss val_accuracy"
    assert watch.seen == ["begin", f"0 {names}", f"1 {names}", "end"]
    assert isinstance(history, History) and history.epoch == [0, 1]
    assert list(history.history) == names.split()


X, Y = np.zeros((8, 4)), np.zeros(8, int)
NETWORK = [Dense(3)]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: compiled([Dense(0)]), "units of Dense must be"),
        (lambda: compiled([Dense(3, "gelu")]), "activation 'gelu' cannot be trained"),
        (lambda: compiled([Dropout(1.0)]), "rate from 0 to 0.99"),
        (lambda: compiled(NETWORK, "lion"), "optimizer 'lion' is not there"),
        (lambda: compiled(NETWORK, SGD(99.0)), "learning_rate must be"),
        (lambda: compiled(NETWORK, SGD(0.1, 1.0)), "momentum must be"),
        (lambda: compiled(NETWORK, SGD(0.1, rounding="up")), "rounding 'up' is not there"),
        (lambda: compiled(NETWORK, SGD(0.1, 0.9, "stochastic")), "velocities are rounded to"),
        (lambda: compiled(NETWORK, loss="hinge"), "loss 'hinge' is not there"),
        (lambda: compiled(NETWORK, metrics=["auc"]), "metric 'auc' is not there"),
        (lambda: compiled(NETWORK, preset="base"), "take 'base-training'"),
        (lambda: Sequential(NETWORK).fit(X, Y), "call compile"),
        (lambda: compiled([Dropout(0.1), Dense(3)]).fit(X, Y), "must come after a Dense"),
        (
            lambda: compiled([Dense(3, "relu")]).fit(X, Y),
            "the last layer must be a Dense, linear, softmax or",
        ),
        (lambda: compiled([Dense(3), Input((4,))]).fit(X, Y), "Input must be the first"),
        (lambda: compiled([Dense(2)] * 16).fit(X, Y), "1 to 15 layers, Add and Concat"),
        (lambda: compiled([Dense(300)]).fit(X, Y), "at most 128 units"),
        (lambda: compiled([Input((5,)), Dense(3)]).fit(X, Y), "x has 4 numbers a sample, not 5"),
        (lambda: compiled(NETWORK).fit(X, Y + 3), "y has label 3, not 0 to 2"),
        (lambda: compiled(NETWORK).fit(X, Y - 1), "y has label -1, not 0 to 2"),
        (lambda: compiled(NETWORK).fit(X, Y + 0.5), "one whole number"),
        (lambda: compiled(NETWORK).fit(X, Y[:7]), "7 labels for 8 samples"),
        (lambda: compiled(NETWORK).fit(X + np.nan, Y), "x has NaN"),
        (lambda: compiled(NETWORK).fit(X, ["a"] * 8), "y is no array of numbers"),
        (lambda: compiled(NETWORK, loss="mse").fit(X, Y), "1 numbers a sample, not 3"),
        (
            lambda: compiled(NETWORK, loss="categorical_crossentropy").fit(X, X[:, :3] + 2),
            "probabilities",
        ),
        (lambda: compiled(NETWORK, loss="binary_crossentropy").fit(X, Y), "1 numbers a sample"),
        (lambda: compiled([Dense(3, "softmax"), Dense(3)]).fit(X, Y), "belongs to the last layer"),
        (lambda: compiled(NETWORK).fit(X, Y, validation_split=1.5), "validation_split"),
        (lambda: compiled(NETWORK).fit(X, Y, validation_data=(X[:, :3], Y)), "validation x has 3"),
        (
            lambda: compiled([Dense(4000, "relu"), Dense(3)]).fit(X, Y, batch_size=8),
            "has no room",
        ),
        (lambda: compiled([Input((4,)), Dense(3)]).set_weights([X]), "do not fit"),
    ],
)
def test_mistakes_are_one_clear_line(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)
