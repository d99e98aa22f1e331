# SPDX-License-Identifier: Apache-2.0
"""The test of training steps on the RTL: after each, every byte equals the golden model's."""

from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    Add,
    BatchNormalization,
    Concatenate,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    ReLU,
    Sequential,
)
from systola.training.engine import Engine
from systola.training.functional import linked
from systola.training.optimizers import SGD, Adam, Optimizer, RMSprop
from systola.verif.plan.selection import exhaustive, thorough

INPUTS, CLASSES = 64, 10
DENSE = ("8x8-training", 16, [Input((INPUTS,)), Dense(32, "relu"), Dropout(0.2), Dense(CLASSES)])
SMALL_DENSE = ("small-training", *DENSE[1:])
"""A network on the machine that other quick tests use, so that its simulator is built only once."""
COMPACT = ("8x8-compact-training", *DENSE[1:])
"""A network on a machine with two columns to a lane."""
MAPS = (
    "small-training",
    8,
    [
        Input((6, 6, 1)),
        Conv2D(8, 3, padding="same", activation="relu"),
        MaxPooling2D(2),
        Conv2D(10, 2, strides=2, padding="same", activation="relu"),
        Dropout(0.2),
        Flatten(),
        Dense(CLASSES),
    ],
)
WORDS = (
    "small-training",
    8,
    [
        *(Input((5,)), Embedding(20, 10), LSTM(12), Dropout(0.2)),
        *(Dense(9, "relu"), Dense(CLASSES)),
    ],
)
TURNS = (
    "small-training",
    96,
    [Input((200,)), Dense(64, "relu"), Dropout(0.2), Dense(CLASSES)],
)
"""A network with a batch that does not fit in the buffer."""
MAPS_IN_TURNS = ("small-training", 48, MAPS[2])
"""A network with a Conv2D and a batch that does not fit in the buffer."""
NORMAL = (
    "small-training",
    8,
    [
        *(Input((6, 6, 1)), Conv2D(10, 3, use_bias=False), BatchNormalization(), ReLU()),
        *(MaxPooling2D(2), Flatten(), Dense(9), BatchNormalization(), Dense(CLASSES)),
    ],
)


def _branches() -> list[Any]:
    """Return layers with branches: feature maps are normalised, added and concatenated."""
    x = Input((6, 6, 1))
    first = BatchNormalization()(Conv2D(8, 3, padding="same", use_bias=False)(x))
    added = ReLU()(Add()([Conv2D(8, 3, padding="same")(first), first]))
    flat = Flatten()(Conv2D(4, 2, strides=2, padding="same")(added))
    both = Concatenate()([flat, GlobalAveragePooling2D()(Conv2D(10, 1)(first))])
    return linked(x, Dense(CLASSES)(Dropout(0.2)(both)))


BRANCHES_IN_TURNS = ("small-training", 20, _branches())
"""A network with branches and a batch that does not fit in the buffer."""
STEPS = ("small-training", 8, [Input((4, 5)), LSTM(9), Dense(CLASSES)])


def after_each_step(
    monkeypatch: pytest.MonkeyPatch,
    network,
    backend: str,
    steps: int,
    optimizer: Optimizer,
    latency: int,
) -> tuple[list[bytes], list[float]]:
    """Return the host window after each program of a training, and the losses that the user sees.

    The window has weights, momenta and losses.
    """
    preset, batch, layers = network
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, (4 * batch, *layers[0].shape)).astype(np.float32)
    if isinstance(layers[1], Embedding):
        x = np.floor(x * layers[1].input_dim)
    y = rng.integers(0, CLASSES, len(x))
    memories: list[bytes] = []
    run = Engine._run

    def kept(engine, *about):
        result = run(engine, *about)
        memories.append(engine.hosts[0].tobytes())
        return result

    model = Sequential(layers)
    model.compile(optimizer, preset=preset, backend=backend, latency=latency, seed=5)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_run", kept)
        history = model.fit(x, y, batch_size=batch, epochs=steps // 4, verbose=0)
    return memories, history.history["loss"]


@pytest.mark.parametrize(
    ("network", "steps", "optimizer", "latency"),
    [
        (SMALL_DENSE, 8, SGD(0.1, 0.9), 7),
        (MAPS, 4, SGD(0.1, 0.5), 7),
        thorough(STEPS, 4, SGD(0.1, 0.5), 7),
        (SMALL_DENSE, 4, Adam(), 7),
        exhaustive(SMALL_DENSE, 40, Adam(), 30),
        exhaustive(SMALL_DENSE, 8, RMSprop(), 0),
        exhaustive(MAPS, 8, Adam(), 30),
        exhaustive(WORDS, 8, Adam(), 7),
        exhaustive(SMALL_DENSE, 4, Adam(clipvalue=0.01), 7),
        thorough(NORMAL, 4, SGD(0.1, 0.5), 7),
        thorough(TURNS, 4, SGD(0.1, 0.5), 7),
        thorough(BRANCHES_IN_TURNS, 4, SGD(0.1, 0.5), 7),
        exhaustive(MAPS_IN_TURNS, 4, SGD(0.1, 0.5), 7),
        exhaustive(DENSE, 200, SGD(0.1), 0),
        thorough(DENSE, 40, SGD(0.1, rounding="stochastic"), 7),
        exhaustive(DENSE, 200, SGD(0.1, rounding="stochastic"), 7),
        thorough(COMPACT, 40, SGD(0.1, rounding="stochastic"), 30),
        exhaustive(DENSE, 200, SGD(0.1, 0.9), 30),
        thorough(MAPS, 40, SGD(0.1), 30),
        exhaustive(WORDS, 40, SGD(0.1), 0),
        exhaustive(WORDS, 40, SGD(0.1, rounding="stochastic"), 7),
        thorough(WORDS, 40, SGD(0.1, 0.9), 30),
    ],
)
def test_steps(monkeypatch, network, steps, optimizer, latency):
    expected, losses = after_each_step(monkeypatch, network, "iss", steps, optimizer, latency)
    found, found_losses = after_each_step(monkeypatch, network, "rtl", steps, optimizer, latency)
    assert len(expected) > steps
    assert found == expected
    assert found_losses == losses
    assert losses[-1] < losses[0] or steps == 4
