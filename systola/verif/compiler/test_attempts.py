# SPDX-License-Identifier: Apache-2.0
"""Tests that the compilation of a large network does no needless work, by counts of calls.

The compiler makes several attempts to turn the operations into steps of a program. After each
attempt that needs too much of the buffer, one more value goes to host memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.lower import convolution, lowering, placement, spilling
from systola.compiler.lower.batching import Batch, batches_to_try
from systola.compiler.lower.feature_map import Lines
from systola.compiler.lower.placement import Life, most_at_once
from systola.compiler.network import DeviceStage, compile_network
from systola.compiler.operations import Operations
from systola.timing import estimate as timing
from systola.verif.compiler.stored_networks import stored_model
from systola.verif.kit.seeds import random_seed

SMALL = preset("small")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return counters of calls of the functions in which a compilation spends most of its time."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        before = getattr(module, name)

        def after(*arguments: Any) -> Any:
            counted[name] += 1
            return before(*arguments)

        monkeypatch.setattr(module, name, after)

    count(spilling, "Lowering")
    count(lowering, "node_steps")
    count(convolution, "window_tiles")
    count(timing, "Walk")
    return counted


def test_attempts(calls: Counter[str]) -> None:
    """Check that the compiler makes tiles of weights only for the attempt that fits the buffer.

    A compilation for another batch begins with the attempt that fitted before. All attempts
    together make steps for less than three times as many operations as this attempt alone.
    """
    network = stored_model("mobilenet_v1_025_96")
    first = compile_network(SMALL, network, 16)
    attempts = calls["node_steps"]
    assert calls == {"Lowering": 9, "window_tiles": 166, "node_steps": attempts}
    compile_network(SMALL, network, 1)
    assert calls["Lowering"] == 10
    assert attempts < 3 * (calls["node_steps"] - attempts)
    (stage,) = (stage for stage in first.stages if isinstance(stage, DeviceStage))
    for _ in range(2):
        timing.estimate(SMALL, stage.program.image)
    assert calls["Walk"] == 1


def test_batches_without_hope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the compiler tries no larger batch if even the smallest batch cannot fit."""
    network = stored_model("mobilenet_v1_025_96")
    (operations,) = (stage for stage in network.stages if isinstance(stage, Operations))
    asked: list[Batch] = []

    def is_hopeless(batch: Batch) -> bool:
        asked.append(batch)
        return True

    base = preset("base")
    tried = list(batches_to_try(base, operations, 64, is_hopeless))
    everything = list(batches_to_try(base, operations, 64, lambda batch: False))
    assert [each for each in tried if not each[1]] == [(Batch(), False)]
    assert [each for each in tried if each[1]] == [each for each in everything if each[1]]
    sizes = {batch.size for batch, spilling in everything if batch.nodes and not spilling}
    assert asked
    assert {batch.size for batch in asked} == {min(sizes)}


def test_placing_in_time() -> None:
    """Check that the fast `fill_in_time` places lines in the buffer as the slower `fill` does."""
    rng = np.random.default_rng(random_seed())
    failed = 0
    for _ in range(200):
        lives: list[Life] = []
        for number in range(int(rng.integers(1, 40))):
            first = int(rng.integers(-1, 60))
            last = 60 if rng.random() < 0.2 else first + int(rng.integers(0, 9))
            lines = Lines(f"{number}", int(rng.integers(1, 30)))
            lives.append(Life(lines, first, last, f"operator {number}"))
        order = sorted(lives, key=lambda life: life.first)
        size = int(rng.integers(30, 300))
        quick: dict[Lines, int] = {}
        general: dict[Lines, int] = {}
        failure = placement.fill_in_time(order, size, quick)
        assert failure is placement.fill(order, size, general)
        assert quick == general
        failed += failure is not None
        most = max(
            sum(life.lines.count for life in lives if life.first <= step <= life.last)
            for step in range(-1, 70)
        )
        assert most_at_once(lives) == most
    assert 20 < failed < 180
