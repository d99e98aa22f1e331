# SPDX-License-Identifier: Apache-2.0
"""Tests that any one wrong argument in a right call of the Python interface is refused.

There is a fixed list of pairs of an argument and a wrong value. One test takes DRAWN pairs, drawn
with a constant seed. The exhaustive test takes all other pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import systola.training as training
from systola.training import EarlyStopping, Sequential, TrainingError
from systola.verif.plan.selection import exhaustive
from systola.verif.training.test_wrong_calls import LINE, X, Y, model

SEED, DRAWN = 43, 100
NAN = float("nan")
Values = Sequence[Any]
TYPES: Values = (b"1", [], {}, 1j, abs)
COUNT: Values = (*TYPES, -1, 1.5, "3", (2, 3, 4), NAN, True)
SIZE: Values = (*COUNT, 0)
NUMBER: Values = (*TYPES, "half", NAN, (0.5,))
FRACTION: Values = (*NUMBER, -0.5, 1.0, 7)
FLAG: Values = (*TYPES, 2, "yes", NAN)
TEXT: Values = (*TYPES, 5, True, "nonsense", "\x1b[31m\n", "")
NAME: Values = (*TYPES, 5, True, "\x1b[31m\n")
ARRAY: Values = (
    abs,
    {},
    "x",
    X[:0],
    X + NAN,
    X.astype(str),
    X * 1j,
    [[1.0], [1.0, 2.0]],
    X.astype(object),
)
SAMPLES: Values = (*ARRAY, X[:, :3], X * 1e9, X.reshape(2, 2, 2, 4), 1.0, None)
LABELS: Values = (*ARRAY, Y - 1, Y + 3, Y[:5], 1, None, Y + 0.5)
WEIGHTS: Values = (*ARRAY, X, -np.ones(8), np.ones(5), 2.0)
RATE: Values = (*NUMBER, -0.1)
BATCH: dict[str, Values] = {"x": SAMPLES, "y": LABELS, "sample_weight": WEIGHTS}
RUN: dict[str, Values] = {**BATCH, "batch_size": SIZE, "verbose": (*TYPES, 3, -1, "loud")}
LAYER: dict[str, Values] = {
    "name": NAME,
    "activation": TEXT,
    "use_bias": FLAG,
    "kernel_initializer": TEXT,
}
CLIP: dict[str, Values] = {
    "clipvalue": (*NUMBER, 0.0, -1.0, 1e9),
    "weight_decay": (*NUMBER, -0.1, 0.5),
}
MOMENTS: dict[str, Values] = {"learning_rate": RATE, **CLIP, "epsilon": (*TYPES, "half", 1.0)}

CALLS: dict[str, tuple[dict[str, Any], dict[str, Values]]] = {
    "fit": (
        {"x": X, "y": Y, "epochs": 1, "verbose": 0},
        RUN
        | {
            "epochs": COUNT,
            "initial_epoch": COUNT,
            "shuffle": (*FLAG, "batch"),
            "validation_split": FRACTION,
            "validation_data": (5, "x", (X,), (X, Y, Y, Y), (X, Y + 9), (X[:, :2], Y), {}),
            "callbacks": (5, "x", [5], [EarlyStopping], [None], abs),
            "class_weight": (5, "x", [1], {"a": 1}, {0: -1}, {0: "a"}, {0: NAN}),
            "steps_per_epoch": (1, 3, "a"),
        },
    ),
    "evaluate": ({"x": X, "y": Y, "verbose": 0}, RUN | {"return_dict": FLAG, "steps": (1, "a")}),
    "predict": (
        {"x": X, "verbose": 0},
        {name: RUN[name] for name in ("x", "batch_size", "verbose")} | {"steps": (1,)},
    ),
    "train_on_batch": ({"x": X, "y": Y}, BATCH | {"return_dict": FLAG}),
    "test_on_batch": ({"x": X, "y": Y}, BATCH | {"return_dict": FLAG}),
    "compile": (
        {"preset": "8x8-training"},
        {
            "optimizer": (*TEXT, 0.1, training.SGD),
            "loss": (*TEXT, ["mse"]),
            "metrics": (5, "nonsense", ["nonsense"], [5], abs, True),
            "preset": (*TEXT, "small"),
            "backend": TEXT,
            "seed": (*TYPES, 1.5, -1, "3"),
            "cores": SIZE,
            "latency": COUNT,
        },
    ),
    "set_weights": ({}, {"weights": (5, "x", [], [X], [X, X], None, [np.zeros((4, 3))])}),
    "add": ({}, {"layer": (5, "x", None, training.Dense, [training.Dense(3)], abs)}),
    "Sequential": ({}, {"layers": (5, "x", [5], [training.Dense], abs), "name": NAME}),
    "Input": ({"shape": (4,)}, {"shape": (*TYPES, 4, "a", (0,), (-1,), (1.5,), (None,), True)}),
    "Dense": ({"units": 3}, {"units": SIZE, **LAYER, "input_shape": (4, "a", (0,), (1.5,), [-1])}),
    "Conv2D": (
        {"filters": 2, "kernel_size": 3},
        {
            **LAYER,
            **{"filters": SIZE, "kernel_size": (*SIZE, 16), "strides": (*SIZE, 3)},
            **{"padding": TEXT, "data_format": ("channels_first", 5), "dilation_rate": (2, "a")},
        },
    ),
    "DepthwiseConv2D": (
        {"kernel_size": 3},
        {"kernel_size": (*SIZE, 16), "padding": TEXT, "depth_multiplier": (0, 2, "a", None)},
    ),
    "MaxPooling2D": ({}, {"pool_size": (*SIZE, 16), "padding": TEXT, "strides": SIZE}),
    "Dropout": ({"rate": 0.5}, {"rate": FRACTION, "noise_shape": ((1, 4), 5), "name": NAME}),
    "Activation": ({"activation": "relu"}, {"activation": TEXT, "name": NAME}),
    "LSTM": (
        {"units": 3},
        {"units": SIZE, "activation": TEXT, "return_sequences": FLAG, "stateful": (True, "a")},
    ),
    "GRU": ({"units": 3}, {"units": SIZE, "reset_after": (False, 2, "a"), "use_bias": FLAG}),
    "Embedding": (
        {"input_dim": 9, "output_dim": 4},
        {"input_dim": SIZE, "output_dim": SIZE, "mask_zero": (True, 5), "input_length": COUNT},
    ),
    "SGD": (
        {},
        {
            "learning_rate": RATE,
            "momentum": FRACTION,
            "nesterov": (True, 5),
            "rounding": TEXT,
            **CLIP,
        },
    ),
    "Adam": ({}, MOMENTS | {"beta_1": FRACTION, "beta_2": FRACTION, "amsgrad": (True, 5)}),
    "RMSprop": ({}, MOMENTS | {"rho": FRACTION, "centered": (True, 5), "momentum": (0.9, "a")}),
    "EarlyStopping": ({}, {"monitor": (*TYPES, 5), "patience": COUNT, "mode": TEXT}),
    "ExponentialDecay": (
        {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
        {"initial_learning_rate": RATE, "decay_steps": (*NUMBER, 0, -1), "staircase": FLAG},
    ),
    "load": ({"filepath": "m.tpu"}, {"filepath": (*TYPES, 5, None, True, "a\0b")}),
    "save": ({"filepath": "m.tpu"}, {"filepath": (*TYPES, 5, None, True, "."), "overwrite": FLAG}),
}
"""Right arguments of each call, and wrong values for some of these arguments."""
METHODS = (
    *("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "compile"),
    *("set_weights", "add", "save"),
)
ALL = [
    (name, argument, number)
    for name, (_, wrong) in CALLS.items()
    for argument, values in wrong.items()
    for number in range(len(values))
]
CHOSEN = random.Random(SEED).sample(ALL, DRAWN)
OTHERS = [each for each in ALL if each not in CHOSEN]


@pytest.mark.parametrize("calls", [CHOSEN, exhaustive(OTHERS)], ids=["drawn", "others"])
def test_one_line(
    calls: Sequence[tuple[str, str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a wrong call raises a TrainingError of one line, and neither runs nor writes."""
    monkeypatch.chdir(tmp_path)
    wrong = [f"{call}: {found}" for call in calls if (found := _mistake(*call))]
    assert not wrong, "\n".join(wrong)
    assert not any(tmp_path.iterdir())


def test_the_right_calls_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the right calls succeed, from which each wrong call differs in one argument."""
    monkeypatch.chdir(tmp_path)
    for name, (right, _) in CALLS.items():
        if name not in ("set_weights", "add", "load"):
            _function(name, model())(**right)


def _function(name: str, which: Sequential) -> Callable[..., object]:
    return getattr(which if name in METHODS else training, name)


def _mistake(name: str, argument: str, number: int) -> str:
    """Make a call with one wrong argument, and describe a wrong reaction.

    The description is empty if the call raised a TrainingError of one line before anything ran.
    """
    right, wrong = CALLS[name]
    which = model()
    value = wrong[argument][number]
    try:
        _function(name, which)(**right | {argument: value})
    except TrainingError as error:
        if not LINE.fullmatch(str(error)):
            return f"not one line: {error!r}"
    except Exception as error:
        return f"{value!r} is {error!r}"
    else:
        return f"{value!r} is no mistake"
    return "" if not which.steps and which.cycles() is None else "something has run"
