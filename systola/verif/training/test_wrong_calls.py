# SPDX-License-Identifier: Apache-2.0
"""Tests that wrong calls of the Python interface raise one TrainingError before anything runs."""

from __future__ import annotations

import inspect
import random
import re
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
    EarlyStopping,
    Embedding,
    Flatten,
    Input,
    MaxPooling2D,
    Sequential,
    TrainingError,
    datasets,
    from_keras,
    load,
    to_keras,
    tpu,
)
from systola.verif.kit.seeds import case_seed

X, Y = np.linspace(0, 1, 32).reshape(8, 4), np.arange(8) % 3
LINE = re.compile("[ -~]{1,2000}")
CALLS = 60
"""Number of random calls of each function."""


def model() -> Any:
    found = Sequential([Input((4,)), Dense(3)])
    found.compile(metrics=["accuracy"], preset="8x8-training", backend="iss")
    return found


WRONG: dict[str, Callable[[Any], object]] = {
    "fit: batch_size=1.5": lambda m: m.fit(X, Y, batch_size=1.5),
    "fit: batch_size=None": lambda m: m.fit(X, Y, batch_size=None),
    "fit: batch_size='a'": lambda m: m.fit(X, Y, batch_size="a"),
    "fit: batch_size=0": lambda m: m.fit(X, Y, 0),
    "fit: batch_size=True": lambda m: m.fit(X, Y, True),
    "fit: epochs=1.0": lambda m: m.fit(X, Y, epochs=1.0),
    "fit: epochs=-1": lambda m: m.fit(X, Y, epochs=-1),
    "fit: verbose=3": lambda m: m.fit(X, Y, verbose=3),
    "fit: verbose='loud'": lambda m: m.fit(X, Y, verbose="loud"),
    "fit: shuffle='batch'": lambda m: m.fit(X, Y, shuffle="batch"),
    "fit: shuffle=None": lambda m: m.fit(X, Y, shuffle=None),
    "fit: validation_data of four": lambda m: m.fit(X, Y, validation_data=(X, Y, Y, Y)),
    "fit: validation_data of one": lambda m: m.fit(X, Y, validation_data=(X,)),
    "fit: validation_data an array": lambda m: m.fit(X, Y, validation_data=X),
    "fit: validation_split=1": lambda m: m.fit(X, Y, validation_split=1),
    "fit: validation_split='half'": lambda m: m.fit(X, Y, validation_split="half"),
    "fit: callbacks=[5]": lambda m: m.fit(X, Y, callbacks=[5]),
    "fit: callbacks a class": lambda m: m.fit(X, Y, callbacks=[EarlyStopping]),
    "fit: steps_per_epoch": lambda m: m.fit(X, Y, steps_per_epoch=3),
    "fit: validation_steps": lambda m: m.fit(X, Y, validation_steps=3),
    "fit: validation_freq": lambda m: m.fit(X, Y, validation_freq=2),
    "fit: no such argument": lambda m: m.fit(X, Y, epoch=3),
    "fit: no labels": lambda m: m.fit(X),
    "fit: nothing": lambda m: m.fit(),
    "fit: twice": lambda m: m.fit(X, Y, 8, batch_size=8),
    "fit: a list of unlike rows": lambda m: m.fit([[1.0], [1.0, 2.0]], [0, 1]),
    "fit: labels too many": lambda m: m.fit(X, np.arange(9) % 3),
    "fit: label 3": lambda m: m.fit(X, Y + 1),
    "fit: numbers beyond 127": lambda m: m.fit(X * 1000, Y),
    "evaluate: batch_size=None": lambda m: m.evaluate(X, Y, batch_size=None),
    "evaluate: return_dict=1": lambda m: m.evaluate(X, Y, return_dict=1),
    "evaluate: steps": lambda m: m.evaluate(X, Y, steps=1),
    "evaluate: no labels": lambda m: m.evaluate(X),
    "predict: batch_size='all'": lambda m: m.predict(X, batch_size="all"),
    "predict: a text": lambda m: m.predict("x"),
    "predict: other samples": lambda m: m.predict(X[:, :3]),
    "predict: callbacks": lambda m: m.predict(X, callbacks=[]),
    "train_on_batch: no samples": lambda m: m.train_on_batch(X[:0], Y[:0]),
    "train_on_batch: sample_weight": lambda m: m.train_on_batch(X, Y, sample_weight=X),
    "train_on_batch: one number": lambda m: m.train_on_batch(1.0, 1),
    "test_on_batch: return_dict": lambda m: m.test_on_batch(X, Y, return_dict=None),
    "test_on_batch: None": lambda m: m.test_on_batch(None, Y),
    "compile: seed=None": lambda m: m.compile(seed=None),
    "compile: seed=1.5": lambda m: m.compile(seed=1.5),
    "compile: loss=None": lambda m: m.compile(loss=None),
    "compile: loss a function": lambda m: m.compile(loss=abs),
    "compile: metrics=5": lambda m: m.compile(metrics=5),
    "compile: optimizer=0.1": lambda m: m.compile(optimizer=0.1),
    "compile: optimizer a class": lambda m: m.compile(optimizer=SGD),
    "compile: cores=2.0": lambda m: m.compile(cores=2.0),
    "compile: backend=None of a preset": lambda m: m.compile(preset=8),
    "set_weights: None": lambda m: m.set_weights(None),
    "set_weights: too few": lambda m: m.set_weights([np.zeros((4, 3))]),
    "set_weights: nothing": lambda m: m.set_weights(),
    "add: a class": lambda m: Sequential().add(Dense),
    "add: after weights": lambda m: (m.get_weights(), m.add(Dense(3))),
    "add: two": lambda m: Sequential().add(Dense(3), Dense(3)),
    "save: a folder": lambda m: m.save("."),
    "save: None": lambda m: m.save(None),
    "save: overwrite='no'": lambda m: m.save("m.tpu", overwrite="no"),
    "save: include_optimizer": lambda m: m.save("m.tpu", include_optimizer=False),
    "save_weights: a folder": lambda m: m.save_weights("."),
    "save_weights: a number": lambda m: m.save_weights(5),
    "save_weights: save_format": lambda m: m.save_weights("w", save_format="tf"),
    "load_weights: a number": lambda m: m.load_weights(5),
    "load_weights: skip_mismatch": lambda m: m.load_weights("w", skip_mismatch=True),
    "load: None": lambda m: load(None),
    "load: custom_objects": lambda m: load("m.tpu", custom_objects={}),
    "summary: print_fn": lambda m: m.summary(print_fn="print"),
    "summary: line_length": lambda m: m.summary(line_length=100),
    "Sequential: a layer": lambda m: Sequential(Dense(3)),
    "Sequential: name=5": lambda m: Sequential(name=5),
    "Dense: units=2.0": lambda m: Dense(2.0),
    "Dense: input_shape=4": lambda m: Dense(2, input_shape=4),
    "Dense: name=5": lambda m: Dense(2, name=5),
    "Flatten: channels_first": lambda m: Flatten(data_format="channels_first"),
    "Conv2D: no kernel": lambda m: Conv2D(2),
    "Conv2D: padding=None": lambda m: Conv2D(2, 3, padding=None),
    "Embedding: input_length": lambda m: Embedding(3, 4, input_length="all"),
    "LSTM: units=None": lambda m: LSTM(None),
    "Activation: a number": lambda m: Activation(5),
    "Dropout: rate='half'": lambda m: Dropout("half"),
    "MaxPooling2D: pool_size=0": lambda m: MaxPooling2D(0),
    "from_keras: None": lambda m: from_keras(None),
    "from_keras: compile": lambda m: from_keras(m, compile="yes"),
    "to_keras: nothing": lambda m: to_keras(m, None),
    "SGD: momentum=None": lambda m: SGD(0.1, None),
    "SGD: lr": lambda m: SGD(lr=0.1),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a wrong call raises a TrainingError of one line.

    Nothing runs, nothing is written, and the weights stay as they are.
    """
    monkeypatch.chdir(tmp_path)
    which = model()
    with pytest.raises(TrainingError) as caught:
        WRONG[name](which)
    assert LINE.fullmatch(str(caught.value)), str(caught.value)
    assert not any(tmp_path.iterdir())
    assert which.steps == which.epochs == 0 and which.cycles() is None


class _Odd:
    """An object of a type that no argument allows, with a text of several lines."""

    def __repr__(self) -> str:
        return "odd\n\x1b[31m"


VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 1.5, 0.5, -0.5, 10**30, -(10**400), 1j),
    *(float("nan"), float("inf"), "", "a", "relu", "mse", "accuracy", "sgd", "auto", "same"),
    *("\x1b[31m\n", "a\0b", "x" * 1000, b"a", [], (), {}, [1], (1, 2), (4,), [None], {"a": 1}),
    *("w", "missing/w", ".", "8x8-training", "iss", _Odd(), _Odd, abs, [X], [X, Y], (X, Y)),
    *(X, Y, X[:0], X[:, :2], X.astype(str), X + np.nan, X.astype(object), Y - 1, np.float32(2)),
    *(np.int64(2), np.array(3), np.bool_(True), Dense(3), [Dense(3)], SGD(0.1), EarlyStopping),
)
USUAL: dict[str, tuple[Any, ...]] = {
    **{"x": (X,), "y": (Y,), "filepath": ("w", "m.tpu"), "path": ("w", "m.tpu"), "shape": ((4,),)},
    **{
        "units": (3,),
        "filters": (2,),
        "kernel_size": (3,),
        "rate": (0.5,),
        "layers": ([Dense(3)],),
    },
    **{"preset": ("8x8-training",), "backend": ("iss",), "epochs": (1,), "verbose": (0,)},
    **{"initial_learning_rate": (0.1,), "decay_steps": (10,), "decay_rate": (0.5,)},
    **{"input_dim": (9,), "output_dim": (4,), "activation": ("relu", None), "layer": (Dense(3),)},
    **{"filename": ("log.csv",), "monitor": ("loss",), "schedule": (lambda epoch: 0.1,)},
    **{"num_words": (None, 50), "maxlen": (None, 3), "index_from": (0, 3)},
    **{"sequences": ([[1], [2, 3]],), "padding": ("pre", "same"), "truncating": ("post",)},
    **{"boundaries": ([2],), "values": ([0.1, 0.2],), "keras_model": (None,)},
}
"""Right values for arguments, by the name of the argument."""
METHODS = (
    *("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "compile", "set_weights"),
    *("add", "save", "save_weights", "load_weights", "summary"),
)
NO_CALLS = ("TrainingError", "mixed_precision")
OTHERS: dict[str, Any] = {
    **{name: getattr(training, name) for name in training.__all__ if name not in NO_CALLS},
    "Policy": training.mixed_precision.Policy,
    "set_global_policy": training.mixed_precision.set_global_policy,
    **{name: getattr(tpu, name) for name in ("TPUClusterResolver", "TPUStrategy")},
    **{name: getattr(tpu, name) for name in ("initialize_tpu_system", "keras_to_tpu_model")},
    **{"imdb.load_data": datasets.imdb.load_data, "pad_sequences": datasets.pad_sequences},
}


def random_call(function: Any, rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Return random arguments for a function, by position and by name.

    Some arguments are right, some wrong, and some have names that the function does not know.
    """
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    names += rng.sample(["sample_weight", "name", "colour", "trainable", "input_shape"], 2)

    def value(name: str) -> Any:
        usual = USUAL.get(name)
        return rng.choice(usual if usual and rng.random() < 0.7 else VALUES)

    count = rng.choice((0, 0, 1, 2, 3, len(names)))
    by_name = {name: value(name) for name in names[count:] if name in USUAL and rng.random() < 0.9}
    by_name |= {name: value(name) for name in rng.sample(names, rng.randint(0, 2))}
    return [value(name) for name in names[:count]], by_name


@pytest.mark.parametrize("name", [*METHODS, *OTHERS])
def test_random_calls(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a random call succeeds, or raises a TrainingError of one line.

    Functions that read or write files may raise OSError, as their docstrings state.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", "3")
    rng = random.Random(case_seed())
    model().save_weights("w")
    model().save("m.tpu")
    for _ in range(CALLS):
        function: Any = getattr(model(), name) if name in METHODS else OTHERS[name]
        given, by_name = random_call(function, rng)
        if name == "fit" and len(given) > 3:
            given[3] = 1  # large numbers of epochs are legal, but take long
        elif name == "fit":
            by_name["epochs"] = 1
        if callable(by_name.get("print_fn")):
            del by_name["print_fn"]
        found = outcome(function, given, by_name)
        files = ("load", "save", "save_weights", "load_weights")
        fine = found is None or isinstance(found, TrainingError)
        assert fine or (isinstance(found, OSError) and name in files), (found, given, by_name)
        if isinstance(found, TrainingError):
            assert LINE.fullmatch(str(found)), (str(found), given, by_name)


def outcome(function: Any, given: list[Any], by_name: dict[str, Any]) -> Exception | None:
    """Call a function; return its error, or None if it succeeds."""
    try:
        function(*given, **by_name)
    except Exception as error:
        return error
    return None
