# SPDX-License-Identifier: Apache-2.0
"""Tests of Conv1D and of average and global poolings: files, other machines, Keras's models.

Both back ends are compared in `test_fast`, and poolings with float32 in `test_convolution`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.runtime import compile
from systola.training import (
    SGD,
    AveragePooling1D,
    AveragePooling2D,
    Conv1D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Input,
    MaxPooling1D,
    MaxPooling2D,
    Sequential,
    TrainingError,
    from_keras,
    load,
)
from systola.verif.plan.selection import thorough
from systola.verif.training import test_keras as keras
from systola.verif.training.data import digits
from systola.verif.training.test_training import compiled, one_hot, referee

NETWORKS: dict[str, list[Any]] = {
    "rows": [
        *(Input((8, 8)), Conv1D(12, 3, padding="same", activation="relu"), AveragePooling1D(2)),
        *(Conv1D(9, 2, activation="tanh"), GlobalMaxPooling1D(), Dropout(0.1), Dense(10)),
    ],
    "flat rows": [
        *(Input((8, 8)), Conv1D(12, 3, 2, "same", "relu"), MaxPooling1D(2), Flatten(), Dense(10))
    ],
    "mean of rows": [
        *(Input((8, 8)), Conv1D(20, 3, activation="relu", use_bias=False)),
        *(GlobalAveragePooling1D(), Dense(10)),
    ],
    "shared pixels": [
        *(Input((8, 8, 1)), Conv2D(9, 2, activation="relu"), MaxPooling2D(3, strides=2)),
        *(Conv2D(7, 1, activation="tanh"), AveragePooling2D(2, strides=1), Flatten(), Dense(10)),
    ],
    "maps": [
        *(Input((8, 8, 1)), Conv2D(9, 3, padding="same", activation="sigmoid")),
        *(AveragePooling2D((3, 2)), Conv2D(12, 2, activation="relu")),
        *(GlobalAveragePooling2D(), Dense(10)),
    ],
}


@pytest.mark.parametrize("name", ["flat rows", "mean of rows", "shared pixels", thorough("rows")])
def test_losses_are_those_of_float32(name: str, data_set: int) -> None:
    (x, y), (x_test, y_test) = digits()
    shape = NETWORKS[name][0].shape
    x, y, x_test = x[:128].reshape(-1, *shape), y[:128], x_test[:60].reshape(-1, *shape)
    optimizer = SGD(0.1, 0.5)
    model = compiled(NETWORKS[name], optimizer, seed=data_set, backend="fast")
    history = model.fit(x, y, epochs=2, batch_size=16, verbose=0).history
    against = referee(model, 64, optimizer, seed=data_set)
    for epoch in range(2):
        loss, _ = against.epoch(x, one_hot(y, 10), 16)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.03)
    loss, _ = against.evaluate(x_test, one_hot(y_test[:60], 10))
    assert model.evaluate(x_test, y_test[:60])[0] == pytest.approx(loss, rel=0.04)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("rows", "small"),
        ("maps", "small"),
        *(thorough(n, "12x8") for n in ("flat rows", "shared pixels")),
    ],
)
def test_saved_networks_predict_the_same(name: str, preset: str, tmp_path: Path) -> None:
    (x, y), _ = digits()
    x = x[:64].reshape(-1, *NETWORKS[name][0].shape)
    model = compiled(NETWORKS[name], SGD(0.3), backend="fast")
    model.fit(x, y[:64], batch_size=16, verbose=0)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.layers == model.layers
    expected = model.predict(x[:20])
    assert np.array_equal(again.predict(x[:20]), expected)
    found = compile(tmp_path / "m", preset=preset, batch=9).run(x[:20], backend="iss").y
    assert np.array_equal(found, expected)


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a summary has the shapes and counts that Keras prints for the same layers."""
    layers = (Conv1D(4, 3), MaxPooling1D(2), Conv1D(5, 2), GlobalAveragePooling1D(), Dense(2))
    Sequential([Input((12, 3)), *layers]).summary()
    found = [line.split() for line in capsys.readouterr().out.split("\n") if "(None" in line]
    assert [" ".join(row[1:-1]).replace(" │", "") for row in found] == [
        "conv1d (Conv1D) (None, 10, 4) 40",
        "max_pooling1d (MaxPooling1D) (None, 5, 4) 0",
        "conv1d_1 (Conv1D) (None, 4, 5) 45",
        "global_average_pooling1d (GlobalAveragePooling1D) (None, 5) 0",
        "dense (Dense) (None, 2) 12",
    ]
    layers = (Conv2D(4, 3), AveragePooling2D((2, 3)), Conv2D(5, 2), GlobalMaxPooling2D(), Dense(2))
    Sequential([Input((8, 9, 1)), *layers]).summary()
    found = [line.split() for line in capsys.readouterr().out.split("\n") if "(None" in line]
    assert [" ".join(row[1:-1]).replace(" │", "") for row in found][1:4] == [
        "average_pooling2d (AveragePooling2D) (None, 3, 2, 4) 0",
        "conv2d_1 (Conv2D) (None, 2, 1, 5) 85",
        "global_max_pooling2d (GlobalMaxPooling2D) (None, 5) 0",
    ]


SHAPES = (3, 3, 2, 3), (3,), (3, 3, 3, 3), (3,)


def row_layer(**about: Any) -> Any:
    usual = {"filters": 4, "kernel_size": (3,), "strides": (1,), "dilation_rate": (1,)}
    return keras.conv(**usual | about)


def test_from_keras() -> None:
    sizes = {"pool_size": (2,), "strides": (2,), "padding": "valid"}
    last = {"data_format": "channels_last", "keepdims": False}
    given = keras.Sequential(
        keras.layer("Conv1D", **vars(row_layer())),
        keras.layer("MaxPooling1D", **sizes, data_format="channels_last"),
        keras.layer("Conv1D", **vars(row_layer(padding="same", use_bias=False))),
        keras.layer("GlobalAveragePooling1D", **last),
        keras.dense(2),
        shape=(None, 8, 3),
    )
    rng = np.random.default_rng(2)
    shapes = (3, 3, 4), (4,), (3, 4, 4), (4, 2), (2,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), given.weights, strict=True):
        assert found.shape == expected.shape and np.abs(found - expected).max() < 2.0**-13
    given = keras.Sequential(
        *(keras.conv(), keras.layer("AveragePooling2D", **vars(keras.pool(strides=(3, 1))))),
        *(keras.conv(), keras.layer("GlobalMaxPooling2D", **last), keras.dense(4)),
        shape=(None, 8, 8, 2),
    )
    given.weights = [rng.normal(0, 0.2, shape) for shape in (*SHAPES, (3, 4), (4,))]
    kinds = [type(each) for each in from_keras(given).layers[2:]]
    assert from_keras(given).layers[2] == AveragePooling2D(2, (3, 1))
    assert kinds == [AveragePooling2D, Conv2D, GlobalMaxPooling2D, Dense]


def built(*layers: Any) -> Any:
    return Sequential(layers).stages()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Conv1D(3, 16), "kernel_size must be a whole number from 1 to 15"),
        (lambda: Conv1D(3, (3, 3)), "kernel_size must be a whole number"),  # type: ignore[arg-type]
        (lambda: Conv1D(3, 3, padding="causal"), "padding must be valid or same"),
        (lambda: AveragePooling2D(3, strides=0), "strides must be 1 to 15"),
        (lambda: MaxPooling1D(3, strides=16), "strides must be a whole number from 1 to 15"),
        (lambda: MaxPooling1D(padding="same"), "MaxPooling1D has the padding valid"),
        (lambda: built(Input((8, 8, 1)), Conv1D(3, 3)), "Conv1D takes steps and channels"),
        (lambda: built(Input((8, 8)), Conv1D(3, 9), Dense(2)), "does not fit a map"),
        (lambda: built(Input((8, 8)), Conv1D(3, 3), Dense(2)), "there must be Flatten"),
        (
            lambda: built(Input((8, 8)), Conv1D(3, 3), MaxPooling2D(2)),
            "MaxPooling2D must come after a Conv2D",
        ),
        (
            lambda: built(Input((8, 8, 1)), Conv2D(3, 3), GlobalMaxPooling1D()),
            "GlobalMaxPooling1D must come after a Conv1D",
        ),
        (
            lambda: built(Input((20, 20, 1)), Conv2D(3, 3), GlobalMaxPooling2D()),
            "GlobalMaxPooling2D takes maps of up to 15 x 15",
        ),
        (
            lambda: built(Input((8, 8, 1)), Conv2D(3, 3), AveragePooling2D(2), MaxPooling2D(2)),
            "MaxPooling2D must come after a Conv2D",
        ),
        (lambda: GlobalMaxPooling2D(keepdims=True), "the result is a row of channels"),
    ],
)
def test_mistakes(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        build()
