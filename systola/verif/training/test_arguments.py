# SPDX-License-Identifier: Apache-2.0
"""Tests that wrong arguments in training raise one TrainingError before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import (
    GRU,
    LSTM,
    SGD,
    Activation,
    Callback,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Input,
    MaxPooling2D,
    Sequential,
    TrainingError,
    from_keras,
    load,
    to_keras,
)

X, Y = np.zeros((8, 4)), np.zeros(8, int)
LINE = re.compile("[ -~]{1,400}")
NO_COUNT = (0, -1, 1.5, 2.0, "a", "2", None, True, [1], np.float64(2), np.array([1, 2]))
NO_FLAG = ("x", 0, 1, None, [True])
NO_NUMBER = ("a", None, [0.1], True, float("nan"), float("inf"), 1j, 10**400)
NO_NAME = ("nonsense", "", 5, None, [], ["sgd"], b"sgd", "\x1b[31m\n")
NO_LIST = ("nonsense", 5, {"a": 1}, object())
NO_SAMPLES: tuple[Any, ...] = (
    *(None, 5, "text", [], {}, object(), [[1, 2], [3]], ["a"], X + 1j, X + np.nan, X + np.inf),
    *(X.astype(object), X.astype("datetime64[s]"), X.astype(str), np.zeros(8)),
    *(np.zeros((0, 4)), np.zeros((8, 0))),
)
OTHER_SHAPES = (np.zeros((8, 5)), np.zeros((8, 2, 3)))
NO_LABELS: tuple[Any, ...] = (
    *(None, 5, "text", [], {}, Y[:7], np.zeros(9), Y + 3, Y - 1, Y + 0.5, Y + np.nan, ["a"] * 8),
    *(X, Y + 1j, np.zeros((8, 2)), Y.astype(object)),
)


class NoCallback:
    """A class that has some methods of a callback, but not all."""

    def on_train_begin(self) -> None: ...


def model() -> Sequential:
    found = Sequential([Input((4,)), Dense(3)])
    found.compile(preset="8x8-training", backend="iss")
    return found


def test_the_arguments_that_are_right() -> None:
    """Check that the right arguments succeed; each other test makes one of them wrong."""
    trained = model()
    history = trained.fit(
        *(X, Y),
        **{"batch_size": np.int64(4), "epochs": 1, "verbose": False, "callbacks": (Callback(),)},
        **{"validation_data": [X, Y], "shuffle": np.bool_(True), "initial_epoch": 0},
    )
    assert history.epoch == [0]
    assert trained.evaluate(X.tolist(), Y.tolist(), batch_size=8, return_dict=True).keys() == {
        "loss"
    }
    assert trained.predict(X).shape == (8, 3)


FIT: dict[str, tuple[Any, ...]] = {
    "batch_size": NO_COUNT,
    "epochs": NO_COUNT[1:],
    "initial_epoch": NO_COUNT[1:],
    "verbose": ("x", 3, -1, None, 1.5),
    "callbacks": (*NO_LIST, [5], [Callback], [NoCallback()], [Callback(), None]),
    "validation_split": (*NO_NUMBER, 2, 1.0, -0.5),
    "validation_data": (
        *(
            5,
            X,
            (X,),
            (X, Y, -X),
            (X, Y, None, None),
            [],
            "xy",
            (X, Y[:7]),
            (X[:, :3], Y),
            (X, None),
            (X, Y + 3),
        ),
    ),
    "shuffle": NO_FLAG,
    "class_weight": ({0: -1.0}, {9: 1.0}, {0: "a"}, {"a": 1.0}, Y, 0),
    "sample_weight": (Y[:3], -np.ones(8), np.zeros(8), "a", np.full(8, np.nan)),
    "steps_per_epoch": (1,),
    "validation_batch_size": (8,),
}
COMPILE: dict[str, tuple[Any, ...]] = {
    "optimizer": NO_NAME,
    "loss": NO_NAME,
    "metrics": (*NO_LIST, 0, "", ["auc"], [5], [["accuracy"]], ["mse"], "binary_accuracy"),
    "seed": (*NO_COUNT[1:], 1 << 31),
    "preset": ("nonsense", "base", 5, [], "8x8", b"8x8-training", "\x1b[31m"),
    "backend": ("nonsense", 5, [], "serial"),
    "latency": (-1, 1.5, "a", 10**7),
    "cores": (0, -1, 1.5, "a", True, 1025),
    "run_eagerly": (True,),
    "loss_weights": ([1.0],),
    "jit_compile": (False,),
}


def refused(call: Callable[[], Any], *names: str) -> None:
    """Fail if a call raises no TrainingError, or if its message has none of `names` in it."""
    with pytest.raises(TrainingError) as caught:
        call()
    assert LINE.fullmatch(str(caught.value)), str(caught.value)
    assert not names or any(name in str(caught.value) for name in names), str(caught.value)


@pytest.mark.parametrize("name", FIT)
def test_fit(name: str) -> None:
    which = model()
    in_line = "validation" if name.startswith("validation_d") else name.removesuffix("s")
    for value in FIT[name]:
        options: dict[str, Any] = {"verbose": 0, name: value}
        refused(lambda options=options: which.fit(X, Y, **options), in_line)
        assert which.steps == which.epochs == 0 and which.cycles() is None


@pytest.mark.parametrize("name", COMPILE)
def test_compile(name: str) -> None:
    which = Sequential([Input((4,)), Dense(3)])
    usual: dict[str, Any] = {"preset": "8x8-training", "backend": "iss"}
    words = {"backend": ("back end",), "preset": ("preset", "training")}
    for value in COMPILE[name]:
        options = usual | {name: value}
        in_line = words.get(name, (name.removesuffix("s"),))
        refused(lambda options=options: which.compile(**options), *in_line)
        assert which.settings is None


def test_samples() -> None:
    which = model()
    for bad in (*NO_SAMPLES, *OTHER_SHAPES):
        for call in (
            lambda bad=bad: which.fit(bad, Y, verbose=0),
            lambda bad=bad: which.evaluate(bad, Y),
            lambda bad=bad: which.predict(bad),
            lambda bad=bad: which.fit(X, Y, validation_data=(bad, Y), verbose=0),
        ):
            refused(call, "x ")


def test_first_samples_tell_the_shape() -> None:
    """Check that a network without an Input takes its shape from the first valid samples."""
    which = Sequential([Dense(3)])
    which.compile(preset="8x8-training", backend="iss")
    for bad in NO_SAMPLES:
        refused(lambda bad=bad: which.fit(bad, Y, verbose=0), "x ", "Input")
    which.predict(X)


def test_labels() -> None:
    which = model()
    for bad in NO_LABELS:
        for call in (
            lambda bad=bad: which.fit(X, bad, verbose=0),
            lambda bad=bad: which.evaluate(X, bad),
            lambda bad=bad: which.fit(X, Y, validation_data=(X, bad), verbose=0),
        ):
            refused(call, "y ")


def test_batch_sizes() -> None:
    which = model()
    for value in NO_COUNT:
        refused(lambda value=value: which.evaluate(X, Y, batch_size=value), "batch_size")
        refused(lambda value=value: which.predict(X, batch_size=value), "batch_size")


def test_other_options() -> None:
    which: Any = model()
    for value in NO_FLAG:
        refused(lambda value=value: which.evaluate(X, Y, return_dict=value), "return_dict")
    refused(lambda: which.evaluate(X, Y, steps=1), "steps")
    for value in ("x", 3, -1, None, 1.5):
        refused(lambda value=value: which.predict(X, verbose=value), "verbose")
        refused(lambda value=value: which.evaluate(X, Y, verbose=value), "verbose")
    refused(lambda: Sequential([Dense(3)]).evaluate(X, Y), "compile")


LAYERS: dict[Any, dict[str, tuple[Any, ...]]] = {
    Input: {"shape": (None, 5, "4", (), (0,), (-1, 4), (1.5,), ("a",), (1 << 30,), (1 << 20,) * 2)},
    Dense: {"units": (*NO_COUNT, 10**9), "activation": ("gelu", 5, ["relu"], X)},
    Conv2D: {
        "filters": NO_COUNT,
        "kernel_size": (*NO_COUNT, (1, 2, 3), (0, 1), 16, "33", (1, None)),
    },
    MaxPooling2D: {"pool_size": (*NO_COUNT[:8], (1, 2, 3), 16)},
    Activation: {"activation": ("gelu", 5, None, ["relu"])},
    Dropout: {"rate": (*NO_NUMBER, 1, -0.1)},
    Embedding: {"input_dim": NO_COUNT, "output_dim": NO_COUNT},
    GRU: {"units": (*NO_COUNT, 513)},
    LSTM: {"units": (*NO_COUNT, 513)},
    SGD: {
        "learning_rate": (*NO_NUMBER, 0, -1, 9),
        "momentum": (*NO_NUMBER, 1, -0.1),
        "rounding": ("up", None, 5, []),
    },
}
USUAL: dict[Any, dict[str, Any]] = {
    Dense: {"units": 3},
    Conv2D: {"filters": 2, "kernel_size": 3},
    Embedding: {"input_dim": 5, "output_dim": 2},
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: Any) -> None:
    for name, values in LAYERS[kind].items():
        for value in values:
            options = USUAL.get(kind, {}) | {name: value}
            refused(lambda options=options: kind(**options), name.removesuffix("_rate"), "Input")


def test_no_layers() -> None:
    for given in (5, "layers", [5], [Dense], [None]):
        refused(lambda given=given: Sequential(given), "layers", "is no layer")
        refused(lambda given=given: Sequential().add(given), "is no layer")
    refused(lambda: Sequential(Dense(3)), "layers")  # type: ignore[arg-type]


def test_networks_that_are_too_large() -> None:
    """Check that too large networks are refused before any memory is allocated.

    The networks would take gigabytes and more.
    """
    for layers in (
        [Input((1 << 20,)), Dense(128)],
        [Input((64,)), Dense(1 << 24), Dense(3)],
        [Input((1 << 13, 1)), LSTM(4), Dense(3)],
    ):
        which = Sequential(layers)
        which.compile(preset="8x8-training", backend="iss")
        refused(which.get_weights, "weights are too many", "steps, not")


NO_WEIGHTS: tuple[Any, ...] = (
    *(None, 5, "w", [], [X], [X, Y, Y], [np.zeros((4, 3)), np.zeros(2)]),
    *([np.zeros((4, 3)), "abc"], [np.full((4, 3), np.nan), np.zeros(3)]),
    *([np.zeros((4, 3)), None], [np.zeros((4, 3)) * 1j, np.zeros(3)]),
    [np.full((4, 3), 1e300), np.zeros(3)],
)


def test_weights() -> None:
    which = model()
    for weights in NO_WEIGHTS:
        refused(lambda weights=weights: which.set_weights(weights), "weights")


def test_tiny_numbers_are_as_good_as_none() -> None:
    which = model()
    which.set_weights([np.full((4, 3), 5e-324), np.zeros(3)])
    assert not any(each.any() for each in which.get_weights())
    assert not which.predict(np.full((8, 4), 5e-324)).any()


def test_files(tmp_path: Path) -> None:
    which = model()
    for path in (None, 5, b"m.tpu", [tmp_path]):
        refused(lambda path=path: which.save(path), "path")
        refused(lambda path=path: load(path), "path")
    refused(lambda: which.save(tmp_path), "it is a folder")
    refused(lambda: Sequential([Dense(3)]).save(tmp_path / "m"), "compile")
    which.save(tmp_path / "m.tpu")
    for options in ({"seed": 1.5}, {"loss": 5}, {"preset": 5}, {"compile": False}):
        refused(lambda options=options: load(tmp_path / "m.tpu", **options), *options)


def test_no_keras_models() -> None:
    for given in (None, 5, object(), "model.keras"):
        refused(lambda given=given: from_keras(given), "Keras")
        refused(lambda given=given: to_keras(model(), given), "Keras")
        refused(lambda given=given: to_keras(given, None), "Sequential")
    refused(lambda: from_keras(Sequential([Dense(3)])), "Keras")
