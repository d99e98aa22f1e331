# SPDX-License-Identifier: Apache-2.0
"""Tests that velocities decay until they move no weight, and that a new optimiser keeps them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from systola.training import SGD, Dense, Input, Sequential, TrainingError, load

ZEROS, LABELS = np.zeros((4, 3)), np.zeros(4, int)


def trained(momentum: float) -> Sequential:
    """Return a model after one training step, which leaves velocities."""
    model = Sequential([Input((3,)), Dense(4)])
    compile_with(model, momentum)
    model.fit(np.eye(4, 3) / 8, LABELS, verbose=0)
    return model


def compile_with(model: Sequential, momentum: float) -> None:
    model.compile(SGD(0.1, momentum), preset="8x8-training", backend="iss")


@pytest.mark.parametrize("momentum", [0.9, 0.95, 0.97, 0.99, 0.999])
def test_weights_without_gradients_come_to_rest(momentum: float) -> None:
    """Check that weights without gradients come to rest.

    Rounding to nearest stops the decay of small velocities. The largest velocity code that can
    remain is at most 1 / (2 - 2 momentum), and must move no weight.
    """
    model = trained(momentum)
    rest = int(1 / (2 - 2 * Fraction(str(momentum))))
    state = model.state()
    kept = np.array([rest, -rest, rest - 1, 1 - rest], np.int16)
    velocities = tuple(np.broadcast_to(kept, each.shape) for each in state.velocities)
    model.restore(replace(state, velocities=velocities), 6, epochs=1, steps=1)
    model.fit(ZEROS, LABELS, epochs=4, verbose=0)
    # The last row of the masters is left out: these are biases, which have gradients.
    assert np.array_equal(model.state().masters[0][:-1], state.masters[0][:-1])


def test_another_momentum_takes_velocities_over() -> None:
    model = trained(0.9)
    before = model.state()
    compile_with(model, 0.99)
    model.fit(ZEROS, LABELS, epochs=0, verbose=0)
    after = model.state()
    assert after.velocity_bits == before.velocity_bits + 2
    expected = np.clip(4 * before.velocities[0].astype(int), -(1 << 15), (1 << 15) - 1)
    assert np.array_equal(after.velocities[0], expected)


def test_too_much_momentum_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"momentum must be 0, or 2\^-10 to 0.999, not 0.9999"):
        SGD(0.1, 0.9999)


def test_a_saved_model_keeps_them(tmp_path: Path) -> None:
    model = trained(0.99)
    model.save(tmp_path / "model.tpu")
    saved, state = load(tmp_path / "model.tpu").state(), model.state()
    assert saved.velocity_bits == state.velocity_bits == 7
    assert np.array_equal(saved.velocities[0], state.velocities[0])
