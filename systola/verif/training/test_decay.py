# SPDX-License-Identifier: Apache-2.0
"""Tests of weight decay: bytes of both back ends, size of the decay, files, and wrong arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    SGD,
    Adam,
    AdamW,
    Dense,
    Embedding,
    Input,
    RMSprop,
    Sequential,
    TrainingError,
    from_keras,
    load,
)
from systola.training.decay import DECAY_STEPS, decay_entry
from systola.verif.plan.selection import thorough
from systola.verif.training import test_keras as keras
from systola.verif.training.test_training import compiled

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(8, 6)), RNG.integers(0, 3, 8)
WORDS = RNG.integers(0, 9, (8, 3))


def learnt(model: Sequential, x: Any, steps: int) -> Any:
    for _ in range(steps):
        model.train_on_batch(x, Y)
    state = model.state()
    moments = (*state.moments.first, *state.moments.roots) if state.moments else ()
    kept = (*state.masters, *state.velocities, *moments)
    return [each.tobytes() for each in kept], state.bits


@pytest.mark.parametrize(
    ("words", "optimizer", "cores"),
    [
        (False, SGD(0.1, weight_decay=0.1), 1),
        thorough(True, SGD(0.5, 0.9, weight_decay=0.01), 2),
        thorough(False, AdamW(0.01, weight_decay=0.1), 2),
        thorough(False, SGD(2.0**-10, weight_decay=1e-4), 3),
    ],
)
def test_bytes_of_the_golden_model(words: bool, optimizer: SGD | AdamW, cores: int) -> None:
    layers = [Input((6,)), Dense(5, "tanh"), Dense(3)]
    if words:
        layers = [Input((3,)), Embedding(9, 4), LSTM(5), Dense(3)]
    found: list[Any] = []
    for backend in ("iss", "fast"):
        how = {"preset": "4x4-training", "backend": backend, "cores": cores}
        model = compiled(layers, optimizer, seed=3, **how)
        found.append(learnt(model, WORDS if words else X, DECAY_STEPS + 1))
    assert found[0] == found[1]
    plain = compiled(layers, SGD(0.1), seed=3, preset="4x4-training", backend="fast")
    assert found[0] != learnt(plain, WORDS if words else X, DECAY_STEPS + 1)


@pytest.mark.parametrize("make", [SGD, AdamW, RMSprop])
def test_weights_without_gradients_decay_as_in_real_numbers(make: Any) -> None:
    """Check that weights without gradients decay as they would in real numbers.

    Inputs of zero leave a kernel without gradients, so only the decay moves it.
    """
    rate, decay, steps = 0.05, 0.1, 20 * DECAY_STEPS
    layers, how = [Input((8,)), Dense(9)], {"loss": "mse", "metrics": [], "backend": "fast"}
    model = compiled(layers, make(rate, weight_decay=decay), **how)
    kernel = model.get_weights()[0]
    for _ in range(steps):
        model.train_on_batch(np.zeros((1, 8)), np.zeros((1, 9)))
    found, expected = model.get_weights()[0], kernel * (1 - rate * decay) ** steps
    unit = 2.0 ** -model.state().bits[0]
    # Each of the 20 roundings is off by less than a unit, and their offsets are spread evenly.
    assert np.abs(found - expected).max() < 3 * unit
    assert np.abs(found - expected).mean() < unit
    assert np.abs(expected - kernel).max() > 1000 * unit


def test_offsets() -> None:
    """Check that very small decays are right on average over many steps; code 0 stays 0."""
    entries = [decay_entry(1e-3, 2.0**-8, DECAY_STEPS * n) for n in range(1, 1 << 12)]
    part = 1 - (1 - 1e-3 / 256) ** DECAY_STEPS
    for code in (0, 1, -1, 100, -3000, 16000):
        lost = 0
        for entry in entries:
            assert entry
            scale = entry.multiplier * 2.0 ** (entry.left - entry.right - 31)
            lost += int(np.floor((code + entry.bias) * scale + 0.5))
        assert lost == pytest.approx(code * part * len(entries), abs=3)
        assert code or not lost
    assert decay_entry(1e-3, 1.0, 15) is decay_entry(0.0, 1.0, 16) is None
    assert decay_entry(1e-9, 2.0**-20, 16) is None


def test_files_and_keras(tmp_path: Path) -> None:
    model = compiled([Input((6,)), Dense(3)], AdamW(0.01), backend="fast")
    learnt(model, X, DECAY_STEPS - 1)
    model.save(tmp_path / "m.tpu")
    again = load(tmp_path / "m.tpu")
    assert again.settings and again.settings["optimizer"] == AdamW(0.01, weight_decay=0.004)
    assert learnt(again, X, 2) == learnt(model, X, 2)
    given: Any = keras.Sequential(keras.dense(3), shape=(None, 6))
    given.compiled = True
    config = {"class_name": "AdamW", "config": {"name": "adamw", "weight_decay": 0.02}}
    given.get_compile_config = lambda: {"optimizer": config, "loss": "mse"}
    settings = from_keras(given, backend="fast").settings
    assert settings and settings["optimizer"] == AdamW(weight_decay=0.02)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop])
@pytest.mark.parametrize("value", ["a", -0.1, 0.2, float("nan"), True])
def test_mistakes(kind: Any, value: Any) -> None:
    with pytest.raises(TrainingError, match="weight_decay must be"):
        kind(weight_decay=value)
