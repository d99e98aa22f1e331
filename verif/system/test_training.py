# SPDX-License-Identifier: Apache-2.0
"""Steps of training on the RTL: after each, every byte is that of the golden model."""

import numpy as np
import pytest

from systola.training import Dense, Dropout, Input, Sequential
from systola.training.engine import Engine
from systola.training.optimizers import SGD
from systola.verif.plan.selection import thorough

INPUTS, UNITS, CLASSES, BATCH = 64, 32, 10, 16
PRESET = "8x8-training"


def after_each_step(
    monkeypatch: pytest.MonkeyPatch, backend: str, steps: int, momentum: float, latency: int
) -> tuple[list[bytes], list[float]]:
    """The host window after each program, weights, momenta and losses in it, and the losses that
    the user sees."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, (4 * BATCH, INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(x))
    memories: list[bytes] = []
    run = Engine._run

    def kept(engine, *about):
        result = run(engine, *about)
        memories.append(engine.host.tobytes())
        return result

    model = Sequential([Input((INPUTS,)), Dense(UNITS, "relu"), Dropout(0.2), Dense(CLASSES)])
    model.compile(SGD(0.1, momentum), preset=PRESET, backend=backend, latency=latency, seed=5)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_run", kept)
        history = model.fit(x, y, batch_size=BATCH, epochs=steps // 4, verbose=0)
    return memories, history.history["loss"]


@pytest.mark.parametrize(
    ("steps", "momentum", "latency"),
    [(8, 0.9, 7), thorough(200, 0.0, 0), thorough(200, 0.9, 30)],
)
def test_steps(monkeypatch, steps, momentum, latency):
    expected, losses = after_each_step(monkeypatch, "iss", steps, momentum, latency)
    found, found_losses = after_each_step(monkeypatch, "rtl", steps, momentum, latency)
    assert len(expected) > steps
    assert found == expected
    assert found_losses == losses
    assert losses[-1] < losses[0]
