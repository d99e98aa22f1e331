# SPDX-License-Identifier: Apache-2.0
"""Tests that Keras models are taken as they are.

Instead of Keras, the tests use stand-ins with the layers and weights of a Keras model.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from systola.training import SGD, BatchNormalization, TrainingError, from_keras, to_keras
from systola.verif.training.data import digits


def linear() -> None:
    """Stand in for an activation of Keras, which is a function with a name."""


def relu() -> None: ...


def softmax() -> None: ...


class KerasModel:
    """A stand-in for a Keras model with given layers; each Dense has random weights."""

    def __init__(self, *layers: Any, shape: tuple[int | None, ...] = (None, 8, 8)) -> None:
        self.layers = layers
        self.input_shape = shape
        rng = np.random.default_rng(1)
        self.weights: list[Any] = []
        features = int(np.prod([size for size in shape[1:] if size]))
        for layer in layers:
            if type(layer).__name__ == "Dense":
                self.weights += [rng.normal(0, 0.2, (features, layer.units)), np.zeros(layer.units)]
                features = layer.units

    def get_weights(self) -> list[Any]:
        return self.weights

    def set_weights(self, weights: list[Any]) -> None:
        self.weights = weights


class Sequential(KerasModel):
    """A stand-in for Keras's Sequential model with given layers."""


class Layer(SimpleNamespace):
    """A stand-in for any layer of Keras: get_config() returns its attributes as settings."""

    def get_config(self) -> dict[str, Any]:
        return vars(self)


def layer(kind: str, **about: Any) -> Any:
    return type(kind, (Layer,), {})(**{"name": "it", "trainable": True} | about)


def flatten() -> Any:
    return layer("Flatten", data_format="channels_last")


def relu_layer(**about: Any) -> Any:
    usual = {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}
    return layer("ReLU", **usual | about)


def dense(units: int, activation: Any = linear, use_bias: bool = True, **about: Any) -> Any:
    return layer("Dense", units=units, activation=activation, use_bias=use_bias, **about)


class Functional(KerasModel):
    """A stand-in for Keras's functional model, with layers that have an input and an output."""

    def __init__(self, *layers: Any, outputs: Several[Any], inputs: Any = "x") -> None:
        super().__init__(*layers, shape=(None, 6))
        self.inputs, self.outputs = [inputs], outputs


TWICE = dense(6)
"""A layer that a model uses twice. For such a layer Keras has no input and no output."""


X = layer("InputLayer", input=[], output="x")
HEADS = [dense(3, input="x", output=name) for name in "yz"]


def test_there_and_back() -> None:
    given = Sequential(
        layer("InputLayer"),
        flatten(),
        dense(24, relu),
        layer("Dropout", rate=0.1),
        dense(12),
        relu_layer(),
        dense(10),
        layer("Activation", activation=softmax),
    )
    before = given.get_weights()
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), before, strict=True):
        assert np.abs(found - expected).max() < 2.0**-13
    (x, y), _ = digits()
    model.compile("momentum", preset="8x8-training", backend="iss")
    model.fit(x[:200].reshape(-1, 8, 8), y[:200], verbose=0)
    to_keras(model, given)
    for found, expected in zip(given.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(found, expected)
    assert not np.allclose(given.get_weights()[0], before[0])


def conv(**about: Any) -> Any:
    usual = {
        **{"filters": 3, "kernel_size": (3, 3), "strides": (1, 1), "padding": "same"},
        **{"activation": relu, "use_bias": True, "groups": 1, "dilation_rate": (1, 1)},
        **{"data_format": "channels_last"},
    }
    return layer("Conv2D", **usual | about)


def pool(**about: Any) -> Any:
    usual = {"pool_size": (2, 2), "strides": (2, 2), "padding": "valid"}
    return layer("MaxPooling2D", **usual | {"data_format": "channels_last"} | about)


def depthwise(**about: Any) -> Any:
    usual = {
        **{"depth_multiplier": 1, "kernel_size": (3, 3), "strides": (1, 1), "padding": "same"},
        **{"activation": relu, "use_bias": True, "dilation_rate": (1, 1)},
        **{"data_format": "channels_last"},
    }
    return layer("DepthwiseConv2D", **usual | about)


def test_convolutions() -> None:
    given = Sequential(conv(), pool(), depthwise(), flatten(), dense(4), shape=(None, 8, 8, 2))
    rng = np.random.default_rng(2)
    shapes = (3, 3, 2, 3), (3,), (3, 3, 3, 1), (3,), (48, 4), (4,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), given.get_weights(), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2.0**-13


def normalization(**about: Any) -> Any:
    usual = {"axis": -1, "momentum": 0.9, "epsilon": 0.01, "center": True, "scale": True}
    return layer("BatchNormalization", **usual | {"trainable": True} | about)


def test_normalization() -> None:
    given = Sequential(
        *(conv(), normalization(), normalization(trainable=False), flatten(), dense(4)),
        shape=(None, 8, 8, 2),
    )
    rng = np.random.default_rng(2)
    shapes = (3, 3, 2, 3), *[(3,)] * 9, (192, 4), (4,)
    given.weights = [rng.uniform(0, 0.2, shape) for shape in shapes]
    model = from_keras(given)
    first, second = (each for each in model.layers if isinstance(each, BatchNormalization))
    assert first == BatchNormalization(-1, 0.9, 0.01)
    assert second == BatchNormalization(-1, 0.9, 0.01, trainable=False)
    for found, expected in zip(model.get_weights(), given.get_weights(), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2.0**-13
    with pytest.raises(TrainingError, match="scale False: only True"):
        from_keras(Sequential(dense(3), normalization(scale=False), dense(3)))


def tanh() -> None: ...


def sigmoid() -> None: ...


def lstm(**about: Any) -> Any:
    usual = {
        **{"units": 5, "activation": tanh, "recurrent_activation": sigmoid, "use_bias": True},
        **{"return_sequences": False, "return_state": False, "go_backwards": False},
        **{"stateful": False, "dropout": 0.0, "recurrent_dropout": 0.0},
    }
    return layer("LSTM", **usual | about)


def embedding(**about: Any) -> Any:
    return layer("Embedding", **{"input_dim": 9, "output_dim": 3, "mask_zero": False} | about)


def test_functional() -> None:
    layers = [dense(4, relu, input="x", output="y"), dense(2, input="y", output="z")]
    given = Functional(X, *layers, outputs=["z"])
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), given.get_weights(), strict=True):
        assert np.abs(found - expected).max() < 2.0**-13


def test_branches() -> None:
    """Check a Keras model with branches: its weights stay in the order of Keras's layers."""
    layers = [
        *(dense(6, relu, input="x", output="a"), dense(6, input="a", output="b")),
        *(layer("Add", input=["a", "b"], output="c"), dense(3, input="x", output="d")),
        layer("Concatenate", axis=-1, input=["c", "d"], output="e"),
        dense(2, input="e", output="f"),
    ]
    given = Functional(X, *layers, outputs=["f"])
    rng = np.random.default_rng(4)
    shapes = (6, 6), (6,), (6, 6), (6,), (6, 3), (3,), (9, 2), (2,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), given.get_weights(), strict=True):
        assert np.abs(found - expected).max() < 2.0**-13
    model.compile(SGD(0.5), preset="8x8-training", backend="fast")
    x = rng.normal(size=(5, 6))
    found = model.predict(x)
    weights = model.get_weights()
    first = np.maximum(x @ weights[0] + weights[1], 0)
    joined = first + first @ weights[2] + weights[3], x @ weights[4] + weights[5]
    expected = np.concatenate(joined, axis=1) @ weights[6] + weights[7]
    assert np.abs(found - expected).max() < 0.1


def test_words_there_and_back() -> None:
    given = Sequential(embedding(), lstm(), dense(1, sigmoid), shape=(None, 6))
    rng = np.random.default_rng(3)
    shapes = (9, 3), (3, 20), (5, 20), (20,), (5, 1), (1,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    before = given.get_weights()
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), before, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2.0**-10
    how: dict[str, Any] = {"preset": "8x8-training", "backend": "iss"}
    model.compile(SGD(1.0, 0.9), "binary_crossentropy", **how)
    model.fit(rng.integers(0, 8, (16, 6)), rng.integers(0, 2, 16), verbose=0, batch_size=4)
    to_keras(model, given)
    for found, expected in zip(given.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(found, expected)
    assert not np.allclose(given.get_weights()[0][:8], before[0][:8], atol=2.0**-10)
    # The row of a word that never occurs keeps its values.
    assert np.allclose(given.get_weights()[0][8], before[0][8], atol=2.0**-14)


def test_two_lstms() -> None:
    first = lstm(units=4, return_sequences=True)
    given = Sequential(first, lstm(), dense(1, sigmoid), shape=(None, 6, 3))
    rng = np.random.default_rng(3)
    shapes = (3, 16), (4, 16), (16,), (4, 20), (5, 20), (20,), (5, 1), (1,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    model = from_keras(given)
    for found, expected in zip(model.get_weights(), given.get_weights(), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2.0**-10


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Sequential(layer("Conv3D"), dense(3)), "layer 'it', a Conv3D, cannot be trained"),
        (Sequential(conv(groups=3), shape=(None, 8, 8, 3)), "groups 3: only 1"),
        (Sequential(depthwise(depth_multiplier=2), shape=(None, 8, 8, 3)), "only 1 can be"),
        (Sequential(conv(), pool(padding="same"), shape=(None, 8, 8, 3)), "padding same: only"),
        (Sequential(lstm(return_state=True)), "return_state True: only False"),
        (Sequential(lstm(activation=relu)), "LSTM 'it' has activation relu: only tanh"),
        (Sequential(embedding(mask_zero=True)), "mask_zero True: only False"),
        (Sequential(dense(3), shape=(None, None, 8)), "build it first"),
        (object(), "build it first"),
        (KerasModel(dense(3)), "only Sequential and functional Keras models"),
        (Sequential(dense(3, trainable=False)), "trainable False: only True"),
        (Sequential(dense(3, kernel_regularizer="l2")), "has a kernel_regularizer: training would"),
        (Sequential(conv(bias_constraint="non_neg")), "has a bias_constraint: training would"),
        (Sequential(layer("Dropout", rate=0.1, noise_shape=(1, 4))), "has a noise_shape: training"),
        (Sequential(relu_layer(max_value=5.0)), "max_value must be 6 or None"),
        (Sequential(layer("Softmax", axis=1)), "Softmax 'it' has axis 1: only -1"),
        (Sequential(layer("Flatten", data_format="channels_first")), "channels_first: only"),
        (Sequential(*[TWICE] * 2), "uses a layer twice"),
        (
            Functional(X, dense(3, input="x", output="y"), TWICE, outputs=["z"]),
            "'it' of the Keras model is used twice",
        ),
        (
            Functional(*(X, *HEADS), outputs=["y", "z"]),
            "several outputs",
        ),
        (
            Functional(X, dense(3, input="w", output="y"), outputs=["y"]),
            "'it' of the Keras model takes no layer before it",
        ),
        (
            Functional(
                X,
                dense(3, input="x", output="y"),
                dense(3, input="y", output="z"),
                outputs=["z", "y"],
            ),
            "several outputs",
        ),
    ],
)
def test_what_is_not_trained(given: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        from_keras(given)
