# SPDX-License-Identifier: Apache-2.0
"""The test of training on pods of the RTL: after each step all cores equal one golden core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.training import (
    LSTM,
    SGD,
    Adam,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Input,
    MaxPooling2D,
    Sequential,
)
from systola.training.engine import Engine
from systola.verif.plan.selection import exhaustive

CLASSES = 10


def after_each_program(
    monkeypatch: pytest.MonkeyPatch, network, cores: int, backend: str, latency: int, batches: int
) -> tuple[list[list[bytes]], list[float]]:
    """Return each core's training state after each program, and the losses that the user sees.

    The state has the master weights, and velocities or moments.
    """
    name, batch, optimizer, layers = network
    rng = np.random.default_rng(3)
    # The last batch has fewer samples than the others.
    x = rng.uniform(0, 1, (batches * batch - batch // 3, *layers[0].shape)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(x))
    memories: list[list[bytes]] = []
    run = Engine._run

    def kept(engine, *about):
        result = run(engine, *about)
        end = engine.layout.state_bytes
        memories.append([host[:end].tobytes() for host in engine.hosts])
        return result

    model = Sequential(layers)
    how = {"preset": name, "backend": backend, "latency": latency, "cores": cores}
    model.compile(optimizer, seed=5, **how)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_run", kept)
        history = model.fit(x, y, batch_size=batch, epochs=2, verbose=0)
    return memories, history.history["loss"]


SMALL = (
    *("8x8-training", 64, SGD(0.1, 0.9)),
    [Input((64,)), Dense(32, "relu"), Dropout(0.2), Dense(20), Dense(CLASSES)],
)
MAPS = (
    *("8x8-training", 20, SGD(0.1, 0.9)),
    [
        *(Input((6, 6, 2)), Conv2D(9, 3, activation="relu"), MaxPooling2D(2), Dropout(0.2)),
        *(Conv2D(4, 2), Flatten(), Dense(CLASSES)),
    ],
)
SEQUENCES = (
    *("8x8-training", 20, SGD(0.1)),
    [Input((5, 4)), LSTM(9), Dropout(0.2), Dense(CLASSES)],
)
ADAPTED = (*SMALL[:2], Adam(), SMALL[3])
LITTLE = preset("8x8-training")
ROOMY = replace(preset("base-training"), name="base-training-32768", buffer_lines=1 << 15)
"""A machine with a larger buffer: 128 samples of 784 numbers do not fit the buffer of `base`."""
LATENCY = 30
BAR = 0.8


@pytest.mark.parametrize(
    ("network", "cores", "latency"),
    [
        *(exhaustive(SMALL, *how) for how in ((3, LATENCY), (3, 0), (2, LATENCY))),
        *(exhaustive(network, 3, LATENCY) for network in (ADAPTED, MAPS, SEQUENCES)),
    ],
)
def test_masters(monkeypatch, network, cores, latency):
    expected, losses = after_each_program(monkeypatch, network, 1, "iss", 0, 4)
    found, found_losses = after_each_program(monkeypatch, network, cores, "rtl", latency, 4)
    assert len(found) == len(expected) > 8
    for (one,), several in zip(expected, found, strict=True):
        assert several == [one] * cores
    assert found_losses == losses


def step(
    config: Config, cores: int, sizes: tuple[int, int], batch: int, backend: str
) -> tuple[list[bytes], float, int | None]:
    """Return master weights, loss and cycles of a network's first training step.

    `sizes` are the numbers of inputs and of units of the first layer.
    """
    inputs, units = sizes
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, (batch, inputs)).astype(np.float32)
    y = rng.integers(0, CLASSES, batch)
    model = Sequential([Dense(units, "relu"), Dropout(0.2), Dense(CLASSES)])
    how = {"preset": config, "backend": backend, "latency": LATENCY, "cores": cores}
    model.compile(SGD(0.1), seed=1, **how)
    loss = model.fit(x, y, batch_size=batch, verbose=0).history["loss"][0]
    return [each.tobytes() for each in model.state().masters], loss, model.cycles()


@pytest.mark.parametrize(
    ("config", "cores", "sizes", "share"),
    [
        exhaustive(LITTLE, 3, (196, 64), 64),
        # The simulator of eight cores takes minutes to build.
        pytest.param(
            *(ROOMY, 8, (784, 512), 128), marks=[pytest.mark.thorough, pytest.mark.exhaustive]
        ),
    ],
)
def test_efficiency(config, cores, sizes, share):
    """Check that several cores train with the bytes of one core, and that their efficiency is high.

    Each core has `share` samples, and is compared with one core that trains on as many.
    """
    larger = replace(config, name="larger", buffer_lines=1 << 18, accumulator_rows=1 << 12)
    expected, expected_loss, _ = step(larger, 1, sizes, cores * share, "iss")
    found, loss, cycles = step(config, cores, sizes, cores * share, "rtl")
    assert found == expected and loss == expected_loss
    _, _, alone = step(config, 1, sizes, share, "rtl")
    assert alone and cycles
    print(f"{cores} cores: {cycles} cycles, one core {alone}: {alone / cycles:.1%}")
    assert alone / cycles > BAR
