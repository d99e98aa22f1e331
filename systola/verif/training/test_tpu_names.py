# SPDX-License-Identifier: Apache-2.0
"""Tests that TensorFlow's names for a TPU stand for a pod of simulated cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.runtime import Strategy
from systola.runtime import compile as compile_network
from systola.training import Dense, Dropout, Sequential, TrainingError
from systola.training.tpu import (
    TPUClusterResolver,
    TPUDistributionStrategy,
    TPUStrategy,
    experimental_connect_to_cluster,
    initialize_tpu_system,
    keras_to_tpu_model,
)
from systola.verif.training.test_keras_compile import compiled as compiled_keras

RNG = np.random.default_rng(2)
X, Y = RNG.uniform(0, 1, (27, 5)), RNG.integers(0, 3, 27)
MACHINE: dict[str, Any] = {"preset": "8x8-training", "backend": "iss"}
LAYERS = (Dense(8, activation="relu", input_shape=(5,)), Dropout(0.2), Dense(3))


def pod(cores: int = 3) -> TPUStrategy:
    """Return a strategy for a pod, made as in the first lines of TensorFlow's TPU tutorials."""
    resolver = TPUClusterResolver(tpu="grpc://10.0.0.2:8470", cores=cores, **MACHINE)
    experimental_connect_to_cluster(resolver)
    initialize_tpu_system(resolver)
    assert resolver.master() == "grpc://10.0.0.2:8470"
    return TPUStrategy(resolver)


def trained(model: Any) -> list[Any]:
    model.fit(X, Y, epochs=2, batch_size=18, verbose=0)
    return model.get_weights()


def expected() -> list[Any]:
    model = Sequential(LAYERS)
    model.compile(metrics=["accuracy"], **MACHINE)
    return trained(model)


def test_eight_cores() -> None:
    strategy = TPUStrategy(TPUClusterResolver(tpu="local"))
    assert (strategy.num_replicas_in_sync, strategy.config.name) == (8, "base-training")
    assert TPUClusterResolver().master() == "local"
    assert TPUDistributionStrategy().num_replicas_in_sync == 8


@pytest.mark.parametrize("inside", [True, False])
def test_a_model_that_is_made_in_the_scope(inside: bool) -> None:
    """Check that a model trains on the pod of its scope, compiled in the scope or later.

    The pod learns the bytes of one core.
    """
    strategy = pod()
    assert strategy.num_replicas_in_sync == 3
    with strategy.scope():
        model = Sequential(LAYERS)
        if inside:
            model.compile("sgd", metrics=["accuracy"])
    if not inside:
        model.compile("sgd", metrics=["accuracy"])
    assert model.settings
    found = {name: model.settings[name] for name in ("cores", "backend")}
    assert found == {"cores": 3, "backend": "iss"}
    assert model.settings["preset"].name == "8x8-training"
    assert all(map(np.array_equal, trained(model), expected()))
    assert model.predict(X[:7]).shape == (7, 3)
    assert model.sync_to_cpu() is model


def test_fast_by_itself(tmp_path: Path) -> None:
    """Check a strategy without a back end: models learn in numpy, networks run on golden models."""
    strategy = TPUStrategy(TPUClusterResolver(cores=3, preset="8x8-training"))
    with strategy.scope():
        model = Sequential(LAYERS)
        model.compile("sgd", metrics=["accuracy"])
    assert model.settings
    assert (model.settings["backend"], model.settings["cores"]) == ("fast", 3)
    assert all(map(np.array_equal, trained(model), expected()))
    model.save(tmp_path / "model.tpu")
    with strategy.scope():
        network = compile_network(tmp_path / "model.tpu")
    run = network.run({network.inputs[0].name: X})
    assert [each.samples for each in run.cores] == [9, 9, 9]
    assert np.array_equal(run.y.argmax(axis=1), model.predict(X).argmax(axis=1))
    with strategy.scope():
        model.compile("sgd", backend="iss")
    assert model.settings["backend"] == "iss"


@pytest.mark.parametrize("backend", ["rtl", "iss", "fast"])
def test_a_back_end_of_ones_own(backend: str) -> None:
    strategy = TPUStrategy(TPUClusterResolver(backend=backend))
    assert strategy.training_backend == backend
    assert strategy.backend == ("iss" if backend == "fast" else backend)


def test_another_scope_goes_first() -> None:
    with pod(2).scope():
        model = Sequential(LAYERS)
    with pod(3).scope():
        model.compile()
    assert model.settings and model.settings["cores"] == 3
    model.compile(cores=1)
    assert model.settings["cores"] == 1


def test_a_keras_model_on_a_pod() -> None:
    """Check that the weights learnt on a pod go back into the Keras model."""
    given = compiled_keras()
    before = [each.copy() for each in given.get_weights()]
    model: Any = keras_to_tpu_model(given, strategy=pod())
    assert model.settings["cores"] == 3
    trained(model)
    assert model.sync_to_cpu() is given
    assert all(map(np.array_equal, given.get_weights(), model.get_weights()))
    assert not np.allclose(given.get_weights()[0], before[0])


def test_a_model_that_moves() -> None:
    """Check that a model that moves to a pod after an epoch learns the bytes of one core."""
    model = Sequential(LAYERS)
    model.compile(metrics=["accuracy"], **MACHINE)
    model.fit(X, Y, batch_size=18, verbose=0)
    assert keras_to_tpu_model(model, pod()) is model
    assert model.settings and model.settings["cores"] == 3
    model.fit(X, Y, epochs=2, initial_epoch=1, batch_size=18, verbose=0)
    assert all(map(np.array_equal, model.get_weights(), expected()))
    fresh = Sequential(LAYERS)
    with pod(2).scope():
        keras_to_tpu_model(fresh)
    fresh.compile()
    assert fresh.settings and fresh.settings["cores"] == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: TPUClusterResolver(5),
        lambda: TPUClusterResolver(cores=0),
        lambda: TPUClusterResolver(cores=2.0),
        lambda: TPUClusterResolver(preset="nonsense"),
        lambda: TPUClusterResolver(preset=8),
        lambda: TPUClusterResolver(backend="board"),
        lambda: TPUClusterResolver(latency=-1),
        lambda: TPUClusterResolver(zone="europe-west4-a"),
        lambda: TPUClusterResolver(colour="red"),
        lambda: TPUStrategy("grpc://10.0.0.2"),
        lambda: TPUStrategy(TPUClusterResolver(), None),
        lambda: experimental_connect_to_cluster("grpc://10.0.0.2"),
        lambda: experimental_connect_to_cluster(),
        lambda: initialize_tpu_system(8),
        lambda: keras_to_tpu_model(5),
        lambda: keras_to_tpu_model(Sequential(LAYERS), "pod"),
        lambda: keras_to_tpu_model(compiled_keras(), Strategy(2, split=True)),
    ],
)
def test_mistakes(call: Any) -> None:
    with pytest.raises(TrainingError) as caught:
        call()
    assert "\n" not in str(caught.value)
