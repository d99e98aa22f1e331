# SPDX-License-Identifier: Apache-2.0
"""Tests that names, spellings and defaults of Keras work, or are refused in one line."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import systola.training as training
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
    Sequential,
    TrainingError,
    load,
)

RNG = np.random.default_rng(1)
X, Y = RNG.uniform(0, 1, (21, 6)), RNG.integers(0, 3, 21)
LINE = re.compile("[ -~]{1,300}")

SUMMARY = """\
Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ embedding (Embedding)           │ (None, 250, 32)        │       480,000 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ lstm (LSTM)                     │ (None, 100)            │        53,200 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense (Dense)                   │ (None, 16)             │         1,616 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 16)             │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 1)              │            17 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 534,833 (1.02 MB)
 Trainable params: 534,833 (1.02 MB)
 Non-trainable params: 0 (0.00 B)
"""
"""The summary that Keras 3.15 prints for a network, except for the bytes.

A weight has two bytes here, and four in Keras.
"""
WORDS = (
    *(Embedding(15000, 32, input_length=250), LSTM(100), Dense(16, "relu"), Dropout(0.1)),
    Dense(1, "sigmoid"),
)


def compiled(*layers: Any, **how: Any) -> Any:
    model = Sequential(layers or [Dense(5, "relu", input_shape=(6,)), Dense(3)])
    model.compile(**{"optimizer": SGD(0.1), "preset": "8x8-training", "backend": "iss"} | how)
    return model


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    Sequential(WORDS).summary()
    assert capsys.readouterr().out == SUMMARY
    lines: list[str] = []
    Sequential(WORDS).summary(print_fn=lines.append)
    assert "".join(lines) == SUMMARY


def test_summary_of_maps(capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a summary has the shapes and counts that Keras prints for the same layers."""
    model = Sequential(name="maps")
    model.add(Conv2D(4, 3, input_shape=(8, 8, 1), name="mine"))
    for layer in (ReLU(), MaxPooling2D(2, strides=2), Flatten(), Dense(10)):
        model.add(layer)
    model.summary()
    found = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in capsys.readouterr().out.split("\n")]
    assert [row for row in found if row][1:] == [
        ["mine (Conv2D)", "(None, 6, 6, 4)", "40"],
        ["re_lu (ReLU)", "(None, 6, 6, 4)", "0"],
        ["max_pooling2d (MaxPooling2D)", "(None, 3, 3, 4)", "0"],
        ["flatten (Flatten)", "(None, 36)", "0"],
        ["dense (Dense)", "(None, 10)", "370"],
    ]
    assert model.count_params() == 410
    assert Sequential(model.layers).count_params() == 410


def test_summary_before_the_shape_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    model = compiled(Dense(3))
    model.summary()
    assert "│ dense (Dense)                   │ ?                      │   0 (unbuilt) │" in (
        capsys.readouterr().out
    )
    with pytest.raises(TrainingError, match="begin with Input"):
        model.count_params()
    model.predict(X)
    assert model.count_params() == 21


def test_summary_without_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a terminal with only ASCII characters gets a table without Unicode lines."""
    plain = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(plain, encoding="ascii"))
    Sequential(WORDS).summary()
    sys.stdout.flush()
    text = plain.getvalue().decode("ascii")
    assert "| lstm (LSTM)                     | (None, 100)            |        53,200 |" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("optimizer", name) for name in ("SGD", "sgd", "Momentum")),
        *(("loss", name) for name in ("MSE", "mean_squared_error", "MeanSquaredError")),
        ("loss", "SparseCategoricalCrossentropy"),
        *(("metrics", name) for name in ("accuracy", "acc", ["sparse_categorical_accuracy"], None)),
        *(("metrics", name) for name in ([], (), "SparseCategoricalAccuracy")),
    ],
)
def test_names_that_work(name: str, value: Any) -> None:
    model = compiled(**{name: value})
    assert model.settings["loss"] in ("mse", "sparse_categorical_crossentropy")
    names = [value] if isinstance(value, str) and name == "metrics" else value or []
    assert list(model.settings["metrics"]) == (list(names) if name == "metrics" else [])


def test_metrics_as_keras_counts_them(tmp_path: Path) -> None:
    """Check metrics against their formulas in float64, from the outputs of predict()."""
    targets = RNG.uniform(-1, 1, (21, 3))
    model = compiled(loss="MSE", metrics=["mse", "mae", "mean_squared_error", "accuracy"])
    found = model.evaluate(X, targets, return_dict=True)
    error = model.predict(X) - targets
    assert found["mse"] == found["mean_squared_error"] == pytest.approx((error**2).mean(), abs=2e-3)
    assert found["loss"] == pytest.approx(found["mse"], abs=2e-3)
    assert found["mae"] == pytest.approx(abs(error).mean(), abs=1e-3)
    model.save(tmp_path / "m.tpu")
    assert load(tmp_path / "m.tpu").evaluate(X, targets, return_dict=True) == found


def test_metrics_of_probabilities() -> None:
    labels = RNG.integers(0, 2, 21)
    last = (Dense(5, "relu", input_shape=(6,)), Dense(1, "sigmoid"))
    model = compiled(*last, loss="BinaryCrossentropy", metrics=["binary_accuracy", "mse"])
    found, p = model.evaluate(X, labels, return_dict=True), model.predict(X)[:, 0]
    assert found["binary_accuracy"] == pytest.approx(((p > 0.5) == labels).mean())
    assert found["mse"] == pytest.approx(((p - labels) ** 2).mean(), abs=1e-3)
    one_hot = np.eye(3)[Y]
    last = (Dense(3, "softmax", input_shape=(6,)),)
    model = compiled(*last, loss="categorical_crossentropy", metrics=["acc", "mse"])
    found, p = model.evaluate(X, one_hot, return_dict=True), model.predict(X)
    assert found["acc"] == pytest.approx((p.argmax(axis=1) == Y).mean())
    assert found["mse"] == pytest.approx(((p - one_hot) ** 2).mean(), abs=1e-3)


def test_accuracy_of_one_number() -> None:
    """Check the accuracy of a single output; as in Keras, an output above a half counts as 1."""
    model = compiled(Dense(1, input_shape=(2,)), loss="mse", metrics="accuracy")
    model.set_weights([np.array([[1.0], [0.0]]), np.zeros(1)])
    x = np.array([[0.25, 0], [0.75, 0], [1.0, 0], [0.0, 0]])
    assert model.evaluate(x, np.array([1, 1, 0, 0]))[1] == 0.5


def test_positions() -> None:
    """Check that arguments may be given by position, in Keras's order."""
    one, other = compiled(metrics="acc"), compiled(metrics="acc")
    one.fit(X, Y, 8, 2, 0)
    other.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert one.evaluate(X, Y, 7) == other.evaluate(X, Y, batch_size=21, verbose=0)
    assert np.array_equal(one.predict(X, 3), other.predict(X))


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("count", [1, 6, 21])
def test_any_number_of_samples(cores: int, count: int) -> None:
    """Check predictions and losses of any number of samples, in batches of any size.

    Some numbers of samples are not a multiple of the number of cores.
    """
    model = compiled(seed=2, cores=cores)
    model.fit(X, Y, batch_size=16, verbose=0)
    expected = compiled(seed=2)
    expected.fit(X, Y, batch_size=16, verbose=0)
    for batch_size in (1, 128 * 8):
        found = model.predict(X[:count], batch_size=batch_size)
        assert np.array_equal(found, expected.predict(X[:count]))
        loss = model.evaluate(X[:count], Y[:count], batch_size=batch_size)
        assert loss == expected.evaluate(X[:count], Y[:count])


def test_batches_by_hand(tmp_path: Path) -> None:
    """Check that batches that are trained one by one give the bytes and outputs of fit().

    The bytes are equal because the scales of units stay the same for all batches.
    """
    by_hand, fitted = compiled(seed=3), compiled(seed=3)
    fitted.fit(X[:16], Y[:16], batch_size=8, shuffle=False, verbose=0)
    losses = [by_hand.train_on_batch(X[n : n + 8], Y[n : n + 8]) for n in (0, 8)]
    assert fitted.steps == by_hand.steps == 2
    first = compiled(seed=3)
    assert losses[0] == first.test_on_batch(X[:8], Y[:8])
    assert all(map(np.array_equal, by_hand.get_weights(), fitted.get_weights()))
    assert np.array_equal(by_hand.predict(X), fitted.predict(X))
    assert by_hand.state().unit_bits == fitted.state().unit_bits != ()
    by_hand.train_on_batch(X[:3], Y[:3])
    by_hand.save(tmp_path / "m.tpu")
    assert np.array_equal(load(tmp_path / "m.tpu").predict(X), by_hand.predict(X))
    assert by_hand.test_on_batch(X, Y, return_dict=True).keys() == {"loss"}


@pytest.mark.parametrize("name", ["w", "w.npz", "w.weights.h5", "x.h5"])
def test_weights_in_files(name: str, tmp_path: Path) -> None:
    if name.endswith("h5"):
        pytest.importorskip("h5py")
    layers = (Embedding(9, 4, input_length=3), LSTM(5), Dense(2, name="mine"), Dense(3))
    one, other = compiled(*layers, seed=1), compiled(*layers, seed=2)
    one.save_weights(tmp_path / name, overwrite=True)
    other.load_weights(tmp_path / name)
    assert all(map(np.array_equal, one.get_weights(), other.get_weights()))
    with pytest.raises(TrainingError, match="there already: take another name, or overwrite=True"):
        one.save_weights(tmp_path / name, overwrite=False)
    for wrong in (compiled(), compiled(*layers[:2], Dense(2))):
        with pytest.raises(TrainingError, match="it has"):
            wrong.load_weights(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for length in range(0, len(whole), len(whole) // 40):
        (tmp_path / name).write_bytes(whole[:length])
        refused(lambda: other.load_weights(tmp_path / name), name)


def test_weights_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    refused(lambda: compiled().save_weights(tmp_path / "w.weights.h5"), "pip install h5py")
    assert not any(tmp_path.iterdir())
    (tmp_path / "k.h5").write_bytes(b"\x89HDF\r\n\x1a\n more")
    refused(lambda: compiled().load_weights(tmp_path / "k.h5"), "h5py is needed to read")


def test_arguments_that_change_nothing() -> None:
    """Check that arguments without an effect are accepted if they have Keras's default values."""
    initial = {"kernel_initializer": "glorot_uniform", "bias_initializer": "zeros"}
    model = compiled(
        Conv2D(2, 3, data_format="channels_last", groups=1, use_bias=True, input_shape=(6, 6, 1)),
        MaxPooling2D((2, 2), (2, 2), "valid"),
        Flatten(name="flat"),
        Dropout(0.1, noise_shape=None, seed=None),
        Dense(3, kernel_regularizer=None, trainable=True, **initial),
        optimizer=SGD(0.1, nesterov=False, weight_decay=None, clipnorm=None),
        run_eagerly=False,
        loss_weights=None,
    )
    x = RNG.uniform(0, 1, (8, 6, 6, 1))
    model.fit(x, Y[:8], callbacks=None, class_weight=None, sample_weight=None, verbose=0)
    LSTM(3, activation="tanh", return_sequences=False, dropout=0.0)
    Embedding(3, 4, mask_zero=False)


TRIED: dict[str, Callable[[], object]] = {
    "no rate": lambda: SGD("fast"),
    "clipnorm": lambda: SGD(0.1, clipnorm=1.0),
    "weight_decay": lambda: SGD(0.1, weight_decay=0.5),
    "nesterov": lambda: SGD(0.1, 0.9, nesterov=True),
    "loss mae": lambda: compiled(loss="mae"),
    "loss huber": lambda: compiled(loss="huber"),
    "metric mse of classes": lambda: compiled(metrics=["mse"]),
    "metric auc": lambda: compiled(metrics="auc"),
    "mask_zero": lambda: Embedding(9, 3, mask_zero=True),
    "use_bias": lambda: LSTM(3, unit_forget_bias=False),
    "kernel_initializer": lambda: Dense(3, kernel_initializer="identity"),
    "kernel_regularizer": lambda: Dense(3, kernel_regularizer="l2"),
    "return_sequences alone": lambda: compiled(
        LSTM(3, return_sequences=True, input_shape=(6, 1)), Dense(3)
    ).fit(X, Y),
    "gelu": lambda: Activation("gelu"),
    "strides of 3": lambda: Conv2D(3, 3, strides=3),
    "padding of a pool": lambda: MaxPooling2D(3, padding="same"),
    "no such argument": lambda: Dense(3, colour="red"),
    "no units": lambda: Dense(),
    "too many": lambda: Dense(3, "relu", True, "zeros", "zeros", None),
    "no labels": lambda: compiled().fit(X),
    "input_shape of the second": lambda: Sequential([Dense(3), Dense(4, input_shape=(3,))]),
    "both lengths": lambda: Embedding(3, 4, input_length=3, input_shape=(3,)),
    "two of a name": lambda: Sequential([Dense(3, name="a"), Dense(4, name="a")]),
    "no name": lambda: Dense(3, name=""),
    **{
        name: (lambda name=name: getattr(training, name))
        for name in (
            *("SimpleRNN", "Bidirectional", "Conv3D"),
            *("LayerNormalization", "SeparableConv2D", "Multiply"),
            *("Normalization",),
        )
    },
}
"""Calls of Keras that training refuses, by the name that a user of Keras types."""


def refused(call: Callable[[], object], says: str = "") -> None:
    """Fail if a call raises no TrainingError of one line with `says` in it."""
    with pytest.raises(TrainingError) as caught:
        call()
    assert LINE.fullmatch(str(caught.value)) and says in str(caught.value), str(caught.value)


@pytest.mark.parametrize("name", TRIED)
def test_names_that_are_refused(name: str) -> None:
    refused(TRIED[name])


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError):
        _ = training.nonsense
    assert Input((3,)).name is None
