# SPDX-License-Identifier: Apache-2.0
"""Tests that a compiled network predicts the same as the trained model that it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.compiler.errors import CompileError, ModelError
from systola.compiler.operations import Product
from systola.runtime import compile, load
from systola.training import (
    SGD,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    Input,
    MaxPooling2D,
    Sequential,
    TrainingError,
)
from systola.training.network import translate_trained
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.data import digits
from systola.verif.training.test_recurrent import NETWORKS, samples
from systola.verif.training.test_training import compiled

(X, Y), (X_TEST, _) = digits()


def saved(path: Path, *layers: Any, optimizer: SGD | None = None, epochs: int = 2) -> Sequential:
    """Train a network on some of the digits, save it as `path`, and return it."""
    model = compiled(layers, optimizer or SGD(0.2, 0.9))
    x = X[:200].reshape(-1, *layers[0].shape) if isinstance(layers[0], Input) else X[:200]
    if epochs:
        model.fit(x, Y[:200], epochs=epochs, batch_size=16, verbose=0)
    model.save(path)
    return model


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NDArray[Any]]:
    """Return the file of a trained network, and its predictions for the test images."""
    path = tmp_path_factory.mktemp("trained") / "digits.tpu"
    layers = (Dense(40, "relu"), Dropout(0.2), Dense(20), Dense(10))
    return path, saved(path, *layers).predict(X_TEST)


@pytest.mark.parametrize("preset", ["8x8-training", "small", "base"])
@pytest.mark.parametrize("batch", [1, 17, 64])
def test_predictions_are_those_of_the_model(
    trained: tuple[Path, NDArray[Any]], preset: str, batch: int
) -> None:
    path, expected = trained
    run = compile(path, preset=preset, batch=batch).run(X_TEST[:100], backend="iss")
    assert run.y.dtype == np.float32 and np.array_equal(run.y, expected[:100])


def test_on_the_rtl_and_from_a_program(trained: tuple[Path, NDArray[Any]], tmp_path: Path) -> None:
    path, expected = trained
    compile(path.read_bytes(), preset="small", batch=20).save(tmp_path / "program")
    model = load(tmp_path / "program")
    assert model.semantics.value == "training"
    assert np.array_equal(model.run(X_TEST[:50], backend="rtl", latency=9).y, expected[:50])


def test_predictions_do_not_depend_on_the_batch(trained: tuple[Path, NDArray[Any]]) -> None:
    path, expected = trained
    x = np.concatenate((20 * X_TEST[:1], X_TEST[1:20]))
    found = compile(path, preset="8x8", batch=20).run(x, backend="iss").y
    assert np.array_equal(found[1:], expected[1:20])


def test_weights_are_those_that_were_trained(tmp_path: Path) -> None:
    path = tmp_path / "m"
    model = saved(path, Dense(10), optimizer=SGD(0.5))
    (node,) = (
        item for item in translate_trained(path.read_bytes()).items if isinstance(item, Product)
    )
    unit = 2.0 ** (8 - model.state().bits[0])
    differences = np.abs(node.layer.weights * unit - model.get_weights()[0])
    assert differences.max() <= unit / 2


@pytest.mark.parametrize("preset", ["small", "base"])
def test_convolutions(preset: str, tmp_path: Path) -> None:
    layers = (
        Input((8, 8, 1)),
        Conv2D(9, 3, padding="same", activation="relu"),
        MaxPooling2D(2),
        Conv2D(12, 3, 2, "same", "relu"),
        DepthwiseConv2D(2, padding="same", activation="relu"),
        Flatten(),
        Dense(10),
    )
    model = saved(tmp_path / "m", *layers, optimizer=SGD(0.1), epochs=1)
    images = X_TEST[:40].reshape(-1, 8, 8, 1)
    found = compile(tmp_path / "m", preset=preset, batch=9).run(images, backend="iss").y
    assert np.array_equal(found, model.predict(images))


@pytest.mark.parametrize(
    ("name", "preset", "batch", "backend"),
    [
        ("words", "small", 41, "iss"),
        thorough("words", "base", 64, "iss"),
        thorough("rows", "12x8", 20, "iss"),
        thorough("rows", "8x12", 1, "iss"),
        thorough("deep", "small", 16, "rtl"),
        ("two", "small", 41, "iss"),
    ],
)
def test_sequences(name: str, preset: str, batch: int, backend: str, tmp_path: Path) -> None:
    """Check that compiled LSTMs and GRUs predict the same bytes as the trained model.

    The weights are so large and the samples so many that any other rounding would show.
    """
    (x, y), _, loss = samples(name, 200, random_seed() % 1000)
    model = compiled(NETWORKS[name], SGD(0.1), loss=loss)
    model.predict(x[:8])
    model.set_weights([4 * each for each in model.get_weights()])
    model.fit(x[:40], y[:40], batch_size=8, verbose=0)
    model.save(tmp_path / "m")
    expected = model.predict(x)
    assert len(np.unique(expected)) > 5
    given = x if name == "rows" else x.astype(int)
    found = compile(tmp_path / "m", preset=preset, batch=batch).run(given, backend=backend).y
    assert np.array_equal(found, expected)


def test_softmax_and_shapes(tmp_path: Path) -> None:
    model = saved(tmp_path / "m", Input((8, 8)), Dense(16, "relu"), Dense(10, "softmax"))
    images = X_TEST[:40].reshape(-1, 8, 8)
    y = compile(tmp_path / "m", preset="small").run(images, backend="iss").y
    expected = model.predict(images)
    assert np.abs(y - expected).max() < 2e-3
    assert np.array_equal(y.argmax(axis=1), expected.argmax(axis=1))


def test_mistakes(trained: tuple[Path, NDArray[Any]], tmp_path: Path) -> None:
    path, _ = trained
    with pytest.raises(CompileError, match="Dense 2: the machine 'tiny' has no 16-bit modes"):
        compile(path, preset="tiny")
    with pytest.raises(ModelError, match="has the semantics training"):
        compile(path, semantics="onnx")
    saved(tmp_path / "fresh", Input((64,)), Dense(10), epochs=0)
    with pytest.raises(ModelError, match="has never been trained"):
        compile(tmp_path / "fresh")
    content = path.read_bytes()
    for damaged in (content[:100], content[: len(content) // 2]):
        with pytest.raises(ModelError, match="no model that was saved by training"):
            compile(damaged)
    with pytest.raises(TrainingError, match="beyond 127"):
        compiled([Dense(3)]).fit(np.full((4, 4), 255), np.zeros(4))
