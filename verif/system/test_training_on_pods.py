# SPDX-License-Identifier: Apache-2.0
"""Training on pods of the RTL: after each step all cores have the masters of one golden core."""

from __future__ import annotations

import numpy as np
import pytest

from systola.training import SGD, Dense, Dropout, Input, Sequential
from systola.training.engine import Engine
from systola.verif.plan.selection import thorough

CLASSES = 10


def after_each_program(
    monkeypatch: pytest.MonkeyPatch, network, cores: int, backend: str, latency: int, batches: int
) -> tuple[list[list[bytes]], list[float]]:
    """Masters and velocities of each core, and the losses that the user sees."""
    preset, batch, momentum, layers = network
    rng = np.random.default_rng(3)
    # The last batch is smaller.
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
    how = {"preset": preset, "backend": backend, "latency": latency, "cores": cores}
    model.compile(SGD(0.1, momentum), seed=5, **how)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_run", kept)
        history = model.fit(x, y, batch_size=batch, epochs=2, verbose=0)
    return memories, history.history["loss"]


SMALL = (
    *("8x8-training", 64, 0.9),
    [Input((64,)), Dense(32, "relu"), Dropout(0.2), Dense(20), Dense(CLASSES)],
)
DIGITS = (
    *("base-training", 256, 0.0),
    [Input((784,)), Dense(512, "relu"), Dropout(0.2), Dense(CLASSES)],
)


@pytest.mark.parametrize(
    ("network", "cores", "latency", "batches"),
    [
        thorough(SMALL, 3, 0, 4),
        thorough(SMALL, 3, 30, 4),
        # The simulator of eight takes seven minutes to build.
        pytest.param(DIGITS, 8, 30, 2, marks=[pytest.mark.thorough, pytest.mark.exhaustive]),
    ],
)
def test_masters(monkeypatch, network, cores, latency, batches):
    expected, losses = after_each_program(monkeypatch, network, 1, "iss", 0, batches)
    found, found_losses = after_each_program(monkeypatch, network, cores, "rtl", latency, batches)
    assert len(found) == len(expected) > 2 * batches
    for (one,), several in zip(expected, found, strict=True):
        assert several == [one] * cores
    assert found_losses == losses
