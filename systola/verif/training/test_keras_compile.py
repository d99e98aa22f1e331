# SPDX-License-Identifier: Apache-2.0
"""Tests that settings of compiled Keras models are taken over, or refused.

The settings are optimiser, loss and metrics, in the form of get_compile_config() of Keras 3.15.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systola.training import (
    SGD,
    CosineDecay,
    ExponentialDecay,
    PiecewiseConstantDecay,
    TrainingError,
    from_keras,
    to_keras,
)
from systola.verif.training.test_keras import Sequential, dense, sigmoid, softmax

MACHINE: dict[str, Any] = {"preset": "8x8-training", "backend": "iss", "seed": 3}
OFF: dict[str, Any] = {
    **{"weight_decay": None, "clipnorm": None, "global_clipnorm": None, "clipvalue": None},
    **{"use_ema": False, "ema_momentum": 0.99, "ema_overwrite_frequency": None},
    **{"loss_scale_factor": None, "gradient_accumulation_steps": None},
}
SPARSE = "sparse_categorical_crossentropy"


def sgd(rate: Any = 0.25, **about: Any) -> dict[str, Any]:
    config = {"name": "sgd_1", "learning_rate": rate, "momentum": 0.0, "nesterov": False}
    return {"module": "keras.optimizers", "class_name": "SGD", "config": OFF | config | about}


def schedule(kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": kind, **config}, "registered_name": None}


def loss(kind: str, **config: Any) -> dict[str, Any]:
    usual = {"name": "a_loss", "reduction": "sum_over_batch_size"}
    return {"module": "keras.losses", "class_name": kind, "config": usual | config}


def metric(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, "dtype": "float32", **config}}


def compiled(last: Any = None, **settings: Any) -> Any:
    model: Any = Sequential(dense(3) if last is None else last, shape=(None, 5))
    usual = {"optimizer": sgd(), "loss": SPARSE, "loss_weights": None, "metrics": None}
    more = {"weighted_metrics": None, "run_eagerly": False, "steps_per_execution": 1}
    model.compiled = True
    model.get_compile_config = lambda: usual | more | {"jit_compile": True} | settings
    return model


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (SGD(0.25), SPARSE, ())),
        ({"optimizer": sgd(0.5, momentum=0.9)}, (SGD(0.5, 0.9), SPARSE, ())),
        ({"optimizer": "sgd"}, (SGD(), SPARSE, ())),
        (
            {"loss": loss("SparseCategoricalCrossentropy", from_logits=True, ignore_class=None)},
            (SGD(0.25), SPARSE, ()),
        ),
        (
            {"loss": {"class_name": "function", "config": "mean_squared_error"}},
            (SGD(0.25), "mse", ()),
        ),
        ({"loss": loss("MeanSquaredError"), "metrics": ["mae"]}, (SGD(0.25), "mse", ("mae",))),
        (
            {"metrics": ["accuracy", metric("SparseCategoricalAccuracy", "acc")]},
            (SGD(0.25), SPARSE, ("accuracy", "acc")),
        ),
        (
            {"metrics": [metric("SparseCategoricalAccuracy", "sparse_categorical_accuracy")]},
            (SGD(0.25), SPARSE, ("sparse_categorical_accuracy",)),
        ),
        (
            {
                "optimizer": sgd(
                    schedule(
                        "ExponentialDecay",
                        **{"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.5},
                        staircase=False,
                    )
                )
            },
            (SGD(ExponentialDecay(0.5, 10, 0.5)), SPARSE, ()),
        ),
        (
            {
                "optimizer": sgd(
                    schedule("PiecewiseConstantDecay", boundaries=[3], values=[0.5, 0.25])
                )
            },
            (SGD(PiecewiseConstantDecay([3], [0.5, 0.25])), SPARSE, ()),
        ),
        (
            {
                "optimizer": sgd(
                    schedule(
                        "CosineDecay",
                        **{"initial_learning_rate": 0.5, "decay_steps": 9, "alpha": 0.0},
                        **{"warmup_target": None, "warmup_steps": 0},
                    )
                )
            },
            (SGD(CosineDecay(0.5, 9)), SPARSE, ()),
        ),
    ],
)
def test_taken_over(settings: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Check that a compiled Keras model trains as if it had been compiled here.

    The learnt weights then go back into the Keras model.
    """
    given = compiled(**settings)
    model: Any = from_keras(given, **MACHINE)
    assert tuple(model.settings[name] for name in ("optimizer", "loss", "metrics")) == expected
    other = from_keras(given, compile=False)
    assert other.settings is None
    other.compile(expected[0], expected[1], expected[2], **MACHINE)
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 1, (8, 5)), rng.integers(0, 3, 8)
    targets = np.eye(3)[y] if expected[1] == "mse" else y
    for each in (model, other):
        each.fit(x, targets, batch_size=4, verbose=0)
    assert all(map(np.array_equal, model.get_weights(), other.get_weights()))
    to_keras(model, given)
    assert all(map(np.array_equal, model.get_weights(), given.get_weights()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimizer": {"class_name": "Adamax", "config": {}}}, "optimizer Adamax is not there"),
        ({"optimizer": {"class_name": "Mine", "config": {}}}, "optimizer Mine is not there"),
        ({"optimizer": sgd(nesterov=True)}, "nesterov=True: momentum is there"),
        ({"optimizer": sgd(clipnorm=1.0)}, "does not take clipnorm=1.0"),
        ({"optimizer": sgd(weight_decay=0.5)}, "weight_decay must be 0 to 0.1, not 0.5"),
        ({"optimizer": sgd(use_ema=True)}, "does not take use_ema=True"),
        ({"optimizer": sgd(1e-9)}, "learning_rate must be"),
        ({"optimizer": sgd(schedule("MySchedule"))}, "schedule MySchedule is not there"),
        ({"optimizer": None}, "optimizer None of the Keras model"),
        ({"loss": None}, "loss None of the Keras model"),
        ({"loss": {"dense": "mse"}}, "of the Keras model is not one that is there"),
        ({"loss": loss("Huber", delta=1.0)}, "loss Huber has delta 1.0: it would be ignored"),
        ({"loss": "huber"}, "loss 'huber' is not there"),
        (
            {"loss": loss("CategoricalCrossentropy", label_smoothing=0.1)},
            "has label_smoothing 0.1: it would be ignored",
        ),
        ({"loss": loss("MeanSquaredError", reduction="sum")}, "has reduction 'sum'"),
        ({"metrics": {"dense": ["accuracy"]}}, "metrics of the Keras model must be a list"),
        ({"metrics": [["accuracy"]]}, "metric ['accuracy'] of the Keras model"),
        ({"metrics": [metric("AUC", "auc")]}, "metric 'AUC' is not there"),
        (
            {
                "loss": "binary_crossentropy",
                "metrics": [metric("BinaryAccuracy", "b", threshold=1)],
            },
            "has threshold 1: it would be ignored",
        ),
        ({"loss_weights": [1.0]}, "loss_weights=[1.0]: there is one loss"),
        ({"weighted_metrics": ["mse"]}, "weighted_metrics=['mse']: metrics= is there"),
    ],
)
def test_refused(settings: dict[str, Any], says: str) -> None:
    given = compiled(**settings)
    with pytest.raises(TrainingError) as caught:
        from_keras(given, **MACHINE)
    assert says in str(caught.value) and "(compile=False leaves it out)" in str(caught.value)
    assert "\n" not in str(caught.value)
    from_keras(given, compile=False)


@pytest.mark.parametrize("end", [softmax, sigmoid])
def test_probabilities_are_no_logits(end: Any) -> None:
    taken = loss("SparseCategoricalCrossentropy", from_logits=False)
    from_keras(compiled(dense(3, end), loss=taken), **MACHINE)
    refused = loss("SparseCategoricalCrossentropy", from_logits=True)
    with pytest.raises(TrainingError, match="takes logits, but the last layer gives probabil"):
        from_keras(compiled(dense(3, end), loss=refused), **MACHINE)


def test_a_machine_without_a_compile() -> None:
    with pytest.raises(TrainingError, match="backend: the Keras model has no compile"):
        from_keras(Sequential(dense(3), shape=(None, 5)), backend="iss")
