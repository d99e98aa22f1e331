# SPDX-License-Identifier: Apache-2.0
"""Tests of activations that are tables, of initial weights, and of layers without biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.runtime import compile
from systola.training import (
    LSTM,
    SGD,
    Activation,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    MaxPooling2D,
    ReLU,
    Rescaling,
    Sequential,
    TrainingError,
    from_keras,
    load,
)
from systola.training.curves import CURVES, scaled_up
from systola.training.initializers import NAMES
from systola.training.layers import Layer
from systola.verif.plan.selection import thorough
from systola.verif.training import test_keras as keras
from systola.verif.training.data import digits, images
from systola.verif.training.test_training import compiled, one_hot, referee

FUNCTIONS: dict[str, Any] = {
    "tanh": (np.tanh, lambda x: np.cosh(x) ** -2.0),
    "sigmoid": (lambda x: 0.5 + 0.5 * np.tanh(x / 2), lambda x: 0.25 * np.cosh(x / 2) ** -2.0),
    "hard_sigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), lambda x: (abs(x) < 3) / 6),
    "relu6": (lambda x: np.clip(x, 0, 6), lambda x: ((x > 0) & (x < 6)) * 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables(name: str) -> None:
    """Check that each value in an activation's table is the int8 code nearest to the function.

    Beyond the ends of the table, slopes are zero.
    """
    curve, (value, slope) = CURVES[name], FUNCTIONS[name]
    sums = np.arange(256).astype(np.int8) / 2.0**curve.sum_bits
    assert np.abs(curve.values() / 2.0**curve.bits - value(sums)).max() <= 0.5 / 2**curve.bits
    error = np.abs(curve.slopes() / 2.0**curve.slope_bits - slope(sums))
    # A slope of 1 may need the code 2^7, which int8 lacks, so an error of one code is allowed.
    assert error.max() <= 1 / 2**curve.slope_bits
    assert slope(sums.max()) < 0.002 or name == "relu6"
    ends = value(np.array([-1e3, 1e3]))
    assert np.abs(ends - value(np.array([sums.min(), sums.max()]))).max() <= 0.5 / 2**curve.bits
    for rate in (0.01, 0.2, 0.5, 0.75, 0.99):
        scale = scaled_up(name, rate)
        largest = value(sums).max() / (1 - rate) * 2.0**scale.bits
        assert 60 <= largest <= 128
        factor = scale.multiplier / 2.0 ** (31 + scale.right) * 2.0 ** (curve.bits - scale.bits)
        assert factor == pytest.approx(1 / (1 - rate))


NETWORKS: dict[str, list[Layer]] = {
    "tanh": [Dense(32, "tanh"), Dropout(0.2), Dense(24, "tanh"), Dense(10)],
    "sigmoid": [Dense(32), Activation("sigmoid"), Dense(16, "hard_sigmoid"), Dense(10)],
    "relu6": [Dense(32), ReLU(6), Dropout(0.3), Dense(10, use_bias=False)],
    "no biases": [Dense(32, "tanh", False), Dense(24, "relu", use_bias=False), Dense(10)],
}


@pytest.mark.parametrize("name", ["tanh", *map(thorough, ("sigmoid", "relu6", "no biases"))])
def test_losses_are_those_of_float32(name: str, data_set: int) -> None:
    (x, y), (x_test, y_test) = digits()
    x, y = x[:240], y[:240]
    optimizer = SGD(0.3 if name != "no biases" else 0.1)
    model = compiled(NETWORKS[name], optimizer, seed=data_set, backend="fast")
    test = x_test, y_test
    how: dict[str, Any] = {"epochs": 3, "batch_size": 24, "verbose": 0, "validation_data": test}
    history = model.fit(x, y, **how).history
    against = referee(model, 64, optimizer, seed=data_set)
    for epoch in range(3):
        loss, accuracy = against.epoch(x, one_hot(y, 10), 24)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.03)
        assert history["accuracy"][epoch] == pytest.approx(accuracy, abs=0.05)
        loss, _ = against.evaluate(x_test, one_hot(y_test, 10))
        assert history["val_loss"][epoch] == pytest.approx(loss, rel=0.08)


def test_maps(data_set: int) -> None:
    (x, y), _ = images()
    x, y = x[:128], y[:128]
    layers = [
        *(Input((8, 8, 1)), Conv2D(9, 3, activation="tanh", use_bias=False), MaxPooling2D(2)),
        *(Flatten(), Dense(10)),
    ]
    optimizer = SGD(0.1)
    model = compiled(layers, optimizer, seed=data_set, backend="fast")
    history = model.fit(x, y, epochs=3, batch_size=16, verbose=0).history
    against = referee(model, 64, optimizer, seed=data_set)
    for epoch in range(3):
        loss, _ = against.epoch(x, one_hot(y, 10), 16)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.03)


@pytest.mark.parametrize("preset", ["small", thorough("12x8")])
def test_saved_networks_predict_the_same(preset: str, tmp_path: Path) -> None:
    (x, y), _ = images()
    layers = [
        *(Input((8, 8, 1)), Conv2D(9, 3, activation="sigmoid", use_bias=False), MaxPooling2D(2)),
        *(Flatten(), Dropout(0.2), Dense(11, "tanh"), Dense(7, "relu6", use_bias=False)),
        Dense(10),
    ]
    model = compiled(layers, SGD(0.3), backend="fast")
    model.fit(x[:64], y[:64], batch_size=16, verbose=0)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.layers == model.layers
    expected = model.predict(x[:20])
    assert np.array_equal(again.predict(x[:20]), expected)
    found = compile(tmp_path / "m", preset=preset, batch=9).run(x[:20], backend="iss").y
    assert np.array_equal(found, expected)
    for each in (model, again):
        each.fit(x[:32], y[:32], batch_size=8, verbose=0, epochs=2, initial_epoch=1)
    assert all(map(np.array_equal, again.get_weights(), model.get_weights()))


@pytest.mark.parametrize("first", [Flatten(), thorough(Conv2D(9, 3)), thorough(LSTM(5))])
def test_rescaling(first: Any, tmp_path: Path) -> None:
    """Check that bytes and a Rescaling layer train like samples that were scaled before."""
    (x, y), _ = images()
    given = np.rint(x[:40] * 255).astype(np.uint8)
    shape = (8, 8) if isinstance(first, LSTM) else (8, 8, 1)
    rest = () if isinstance(first, LSTM) else (Flatten(),)
    scaling = Rescaling(1 / 127.5, offset=-1)
    layers = [Input(shape), scaling, first, *rest, Dense(1)]
    by_hand = given.astype(np.float32) * np.float32(1 / 127.5) + np.float32(-1)
    one, other = (
        compiled(each, loss="mse", metrics=[], backend="fast")
        for each in (layers, [layers[0], *layers[2:]])
    )
    given, by_hand = given.reshape(-1, *shape), by_hand.reshape(-1, *shape)
    assert np.array_equal(one.predict(given), other.predict(by_hand))
    histories = [m.fit(z, y[:40] / 10, verbose=0) for m, z in ((one, given), (other, by_hand))]
    assert histories[0].history == histories[1].history
    one.save(tmp_path / "m")
    assert load(tmp_path / "m").layers == layers
    found = (
        compile(tmp_path / "m", preset="small", batch=9)
        .run(given[:9].astype(np.float32), backend="iss")
        .y
    )
    assert np.array_equal(found, one.predict(given[:9]))


def test_an_lstm_without_biases(tmp_path: Path) -> None:
    layers = [Input((5,)), Embedding(9, 4), LSTM(6, use_bias=False), Dense(3)]
    model = compiled(layers, SGD(1.0))
    assert [each.shape for each in model.get_weights()] == [(9, 4), (4, 24), (6, 24), (6, 3), (3,)]
    x, y = np.arange(40).reshape(8, 5) % 9, np.arange(8) % 3
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    assert not model.state().masters[0][-1].any() and model.state().masters[1][-1].any()
    model.save(tmp_path / "m")
    assert np.array_equal(load(tmp_path / "m").predict(x), model.predict(x))
    found = compile(tmp_path / "m", preset="small", batch=8).run(x, backend="iss").y
    assert np.array_equal(found, model.predict(x))
    model.save_weights(tmp_path / "w")
    other = compiled(layers, seed=5)
    other.load_weights(tmp_path / "w")
    assert all(map(np.array_equal, other.get_weights(), model.get_weights()))
    given = keras.Sequential(keras.lstm(use_bias=False), keras.dense(2), shape=(None, 3, 4))
    given.weights = [np.ones(shape) / 8 for shape in ((4, 20), (5, 20), (5, 2), (2,))]
    assert from_keras(given).layers[1] == LSTM(5, use_bias=False)


def test_fresh_weights_of_an_lstm() -> None:
    initial = {"kernel_initializer": "he_normal", "recurrent_initializer": "ones"}
    layers = [Input((5,)), Embedding(9, 4, embeddings_initializer="zeros"), LSTM(6, **initial)]
    embeddings, kernel, recurrent, biases, *_ = Sequential([*layers, Dense(3)]).get_weights()
    assert not embeddings.any() and kernel.std() > 0.3 and (recurrent == 1).all()
    assert biases.reshape(4, 6).mean(axis=1).tolist() == [0, 1, 0, 0]
    assert Embedding(9, 4).embeddings_initializer == "random_uniform"


def test_weights_without_biases(tmp_path: Path) -> None:
    (x, y), _ = digits()
    model = compiled([Dense(9, "tanh", use_bias=False, input_shape=(64,)), Dense(10)])
    assert [each.shape for each in model.get_weights()] == [(64, 9), (9, 10), (10,)]
    assert model.count_params() == 64 * 9 + 9 * 10 + 10
    model.fit(x[:32], y[:32], batch_size=16, verbose=0)
    assert not model.state().masters[0][-1].any() and model.state().masters[1][-1].any()
    model.save_weights(tmp_path / "w")
    other = compiled(model.layers, seed=5)
    other.load_weights(tmp_path / "w")
    assert all(map(np.array_equal, other.get_weights(), model.get_weights()))


def test_from_keras() -> None:
    given = keras.Sequential(
        keras.layer("Rescaling", scale=0.5, offset=0),
        keras.flatten(),
        keras.dense(9, keras.tanh, use_bias=False),
        keras.dense(5),
        keras.relu_layer(max_value=6.0),
        keras.dense(3),
    )
    given.weights = [each for number, each in enumerate(given.weights) if number != 1]
    model = from_keras(given)
    assert model.layers[1:] == [
        Rescaling(0.5),
        Flatten(),
        Dense(9, "tanh", False),
        Dense(5),
        ReLU(6),
        Dense(3),
    ]
    for found, expected in zip(model.get_weights(), given.weights, strict=True):
        assert np.abs(found - expected).max() < 2.0**-13


@pytest.mark.parametrize("name", NAMES)
def test_fresh_weights(name: str) -> None:
    """Check the standard deviations and bounds of initial weights against Keras's documentation."""
    model = Sequential([Input((200,)), Dense(100, kernel_initializer=name), Dense(3)])
    kernel = model.get_weights()[0]
    scales = {"glorot": 2 / 300, "he": 2 / 200, "lecun": 1 / 200}
    family, _, kind = name.partition("_")
    deviation = np.sqrt(scales.get(family, 0.05**2))
    if name in ("zeros", "ones"):
        assert (kernel == float(name == "ones")).all()
        return
    if name == "orthogonal":
        assert np.abs(kernel.T @ kernel - np.eye(100)).max() < 1e-3
        return
    if kind == "uniform":
        limit = 0.05 if family == "random" else deviation * np.sqrt(3)
        assert 0.99 * limit < np.abs(kernel).max() <= limit * 1.001
        return
    cut = 1 if family == "random" else 0.8796
    spread = deviation * cut if family == "truncated" else deviation
    assert kernel.std() == pytest.approx(spread, rel=0.03)
    assert family == "random" or np.abs(kernel).max() <= 2.001 * spread / 0.8796


def test_names_of_initialisers() -> None:
    for given, name in (
        *(("HeNormal", "he_normal"), ("Zeros", "zeros"), ("normal", "random_normal")),
        *(("RandomUniform", "random_uniform"), ("OrthogonalInitializer", "orthogonal")),
    ):
        assert Dense(3, kernel_initializer=given).kernel_initializer == name
    assert Conv2D(3, 3, bias_initializer="Ones").bias_initializer == "ones"
    model = Sequential([Input((4,)), Dense(3, bias_initializer="ones")])
    assert (model.get_weights()[1] == 1).all()


dense: Any = Dense


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Dense(3, "swish"), "activation 'swish' cannot be trained"),
        (lambda: dense(3, use_bias=None), "use_bias must be True or False"),
        (lambda: Dense(3, kernel_initializer="identity"), "kernel_initializer must be one of"),
        (lambda: dense(3, bias_initializer=None), "bias_initializer must be one of"),
        (lambda: Rescaling("a"), "scale of Rescaling must be a finite number"),
        (lambda: Rescaling(1e30), "scale of Rescaling is too large"),
        (
            lambda: Sequential([Input((4,)), Dense(4), Rescaling(2.0), Dense(3)]).stages(),
            "Rescaling must come before all other layers",
        ),
        (
            lambda: Sequential([Input((4,)), Rescaling(2.0), Embedding(3, 4)]).stages(),
            "words cannot be rescaled",
        ),
        (
            lambda: compiled([Rescaling(1e9), Dense(3)]).predict(np.full((2, 3), 1e38)),
            "too large for Rescaling",
        ),
        (lambda: ReLU(5), "max_value must be 6 or None"),
        (lambda: Sequential([Input((4,)), Dense(3, "tanh")]).stages(), "the last layer must be"),
        (
            lambda: Sequential([Input((4,)), Dense(4, "softmax"), Dense(3)]).stages(),
            "softmax belongs to the last layer",
        ),
        (
            lambda: Sequential([Input((4,)), Dense(4, "tanh"), ReLU(), Dense(3)]).stages(),
            "must come right after",
        ),
    ],
)
def test_mistakes(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        build()
