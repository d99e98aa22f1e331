# SPDX-License-Identifier: Apache-2.0
"""Tests that training on pods of any number of cores gives the bytes and losses of one core."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.compiler.collectives import share_of_rows
from systola.golden.pod import Pod
from systola.runtime import Strategy
from systola.training import (
    SGD,
    Dense,
    Dropout,
    Input,
    Sequential,
    TrainingError,
    load,
)
from systola.training.building import stages
from systola.training.exchange import LEAST, agree, most_own_rows
from systola.training.layers import Layer
from systola.training.layout import Layout
from systola.training.task import SHIFT, SPARE, Task
from systola.training.writer import HALF, WIDE, Entry, Writer
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.data import digits

(X, Y), (X_TEST, Y_TEST) = digits()
SMALL = "8x8-training"
MOST = 36


def trained(
    cores: int, layers: Sequence[Layer], batch: int, samples: int, **how: Any
) -> tuple[list[bytes], dict[str, list[float]], Sequential]:
    """Train for two epochs; return the state, the history of losses, and the model.

    The state is masters and velocities with their fraction bits, as bytes.
    """
    model = Sequential(layers)
    settings = {"preset": SMALL, "backend": "iss", "seed": random_seed() % 1000} | how
    optimizer = settings.pop("optimizer", SGD(0.1, 0.9))
    model.compile(optimizer, metrics=["accuracy"], cores=cores, **settings)
    fit = model.fit(
        X[:samples],
        Y[:samples],
        batch_size=batch,
        epochs=2,
        validation_data=(X_TEST[:30], Y_TEST[:30]),
        verbose=0,
    )
    state = model.state()
    left = [each.tobytes() for each in (*state.masters, *state.velocities)]
    return [*left, bytes(state.bits), bytes(state.unit_bits)], fit.history, model


SIMPLE = (Dense(32, "relu"), Dense(10))
DEEP = (Dense(30, "relu"), Dropout(0.3), Dense(20), Dropout(0.1), Dense(10))


@pytest.mark.parametrize(
    ("cores", "layers", "batch", "samples"),
    [
        (2, SIMPLE, 64, 64),
        (3, DEEP, 64, 84),
        thorough(3, SIMPLE, 64, 200),
        thorough(4, DEEP, 21, 100),
        thorough(8, DEEP, 64, 148),
        thorough(5, (Dense(10),), 40, 101),
    ],
)
def test_bytes_of_one_core(cores: int, layers: Sequence[Layer], batch: int, samples: int) -> None:
    """Check that a pod learns the bytes of one core, with shares of a batch of several sizes.

    Some shares are without samples, and the last batch is smaller.
    """
    expected, history, one = trained(1, layers, batch, samples)
    found, found_history, pod = trained(cores, layers, batch, samples)
    assert found == expected
    assert found_history == history
    assert np.array_equal(pod.predict(X_TEST[:70]), one.predict(X_TEST[:70]))


@pytest.mark.thorough
@pytest.mark.parametrize("cores", [2, 3])
def test_bytes_of_one_core_rounded_at_random(cores: int) -> None:
    """Check that random rounding on a pod gives the bytes of one core.

    A core updates a share of the rows of weights, and draws random numbers for this share alone.
    """
    optimizer = SGD(0.1, rounding="stochastic")
    expected, _, _ = trained(1, DEEP, 64, 84, optimizer=optimizer)
    found, _, _ = trained(cores, DEEP, 64, 84, optimizer=optimizer)
    assert found == expected


@pytest.mark.thorough
@pytest.mark.exhaustive
def test_bytes_of_one_core_of_base() -> None:
    """Check that a training step of 784-512-10 with dropout and momentum leaves the same bytes."""
    rng = np.random.default_rng(random_seed())
    x, y = rng.uniform(0, 1, (64, 784)), rng.integers(0, 10, 64)
    left: list[list[bytes]] = []
    for cores in (1, 2, 3, 8):
        model = Sequential([Dense(512, "relu"), Dropout(0.2), Dense(10)])
        model.compile(SGD(0.1, 0.9), preset="base-training", backend="iss", cores=cores)
        model.fit(x, y, batch_size=64, verbose=0)
        state = model.state()
        left.append([each.tobytes() for each in (*state.masters, *state.velocities)])
    assert all(each == left[0] for each in left)


def test_rows_without_samples() -> None:
    """Check that measurements leave out rows that hold no sample of a core's share of the batch.

    Such rows fill up the core's blocks. The biases alone make their units larger than all samples
    do.
    """
    left: list[list[bytes]] = []
    for cores in (1, 2):
        model = Sequential([Input((64,)), Dense(16, "relu"), Dense(16, "relu"), Dense(10)])
        model.compile(SGD(0.01), preset=SMALL, backend="iss", cores=cores)
        weights = model.get_weights()
        weights[0], weights[2] = abs(weights[0]) / 10, -abs(weights[2])
        weights[3] = np.full_like(weights[3], 4.1)
        model.set_weights(weights)
        # The batch has three blocks of samples. Each of two cores has room for two blocks, so one
        # core has an empty block.
        model.fit(X[:24], Y[:24], batch_size=24, verbose=0)
        left.append([each.tobytes() for each in model.state().masters])
    assert left[0] == left[1]


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_shares(size: int, cores: int) -> None:
    """Check that the shares of a batch have all samples, in whole blocks.

    The shares differ by at most a block.
    """
    for count in (1, 7, 16, 60, 64, 128, 1000):
        task = Task(stages(SIMPLE, 64), 6, (15, 15), "mse", count=count, cores=cores)
        shares = [replace(task, core=core).share(size) for core in range(cores)]
        assert [n for share in shares for n in share] == list(range(count))
        blocks = [-(-len(share) // size) for share in shares]
        assert max(blocks) - min(blocks) <= 1
        assert all(share.start % size == 0 for share in shares)


@pytest.mark.parametrize("cores", [2, 3, 8])
def test_the_largest_exponent(cores: int) -> None:
    """Check that all cores agree on the largest of their exponents, whichever core has it."""
    config, rng = preset(f"{SMALL}-links"), random.Random(random_seed())
    found = stages(SIMPLE, 64)
    layout = Layout(config, found, 8, beside=0)
    pod = Pod(config, cores)
    for most in range(LEAST, MOST + 1):
        values = [rng.randint(LEAST, most) for _ in range(cores)]
        values[rng.randrange(cores)] = most
        images: list[Image] = []
        for core, value in enumerate(values):
            writer = Writer(config, layout)
            task = Task(found, 6, (15, 15), "mse", count=64, core=core, cores=cores)
            one = np.full((2, 8), 64, np.int8)
            one[0] = 0
            source, result = writer.constant(one), writer.allocate(2)
            writer.measure(SHIFT, value=value)
            agree(writer, task, SPARE)
            # Register SHIFT must have `most`, the largest exponent of all cores. Only then does the
            # shift by SHIFT turn 2^14 into 2^6.
            writer.measure(SHIFT, first=SHIFT, value=7 - most)
            writer.copy(source.start, result.start, 1, Entry(HALF), WIDE, exponent=SHIFT)
            writer.write(layout.survey, result)
            code = writer.code()
            host = np.zeros(layout.window, np.uint8)
            for place, data in (
                (layout.program, np.frombuffer(code, np.uint8)),
                (layout.entries, writer.entries()),
                (layout.constants, writer.constants()),
            ):
                host[place : place + len(data)] = data
            images.append(Image(code, host, layout.program, np.zeros(0, np.uint8)))
        assert all(outcome.fault is None for outcome in pod.run(images))
        for image in images:
            assert image.host[layout.survey] == 64, (most, values)


def test_in_the_scope_of_a_strategy(tmp_path: Path) -> None:
    """Check that in the scope of a strategy, compile() takes missing settings from the strategy.

    A model that is loaded in the scope of a strategy has the same bytes.
    """
    layers = [Input((64,)), Dense(16, "relu"), Dense(10)]
    one = Sequential(layers)
    one.compile(preset=SMALL, backend="iss")
    with Strategy(2, "8x8", backend="iss", latency=3).scope():
        pod = Sequential(layers)
        pod.compile()
    for model in (one, pod):
        model.fit(X[:32], Y[:32], batch_size=32, verbose=0)
        model.save(tmp_path / "m.tpu")
    assert pod.settings and one.settings
    expected = {"preset": preset(SMALL), "backend": "iss", "latency": 3, "cores": 2}
    assert pod.settings.items() >= expected.items()
    assert load(tmp_path / "m.tpu").settings == pod.settings
    with Strategy(3, "8x8", backend="iss").scope():
        loaded = load(tmp_path / "m.tpu")
    assert loaded.settings and loaded.settings["cores"] == 3
    assert all(
        np.array_equal(a, b) for a, b in zip(loaded.get_weights(), one.get_weights(), strict=True)
    )


def test_room_for_own_rows() -> None:
    """Check the room for the rows of weights that a core updates: at most two rows too many."""
    for cores in (1, 2, 3, 5, 8, 16):
        task = Task(stages(SIMPLE, 64), 6, (15, 15), "mse", count=64, cores=cores)
        for rows in range(1, 100):
            shares = [
                sum(map(len, share_of_rows(core, cores, rows))) if cores > 1 else rows
                for core in range(cores)
            ]
            room = most_own_rows(task, rows)
            assert max(shares) <= room <= max(shares) + 2


def test_mistakes() -> None:
    for cores in (0, 1025, True, 2.0):
        with pytest.raises(TrainingError, match="cores must be a whole number from 1 to 1024"):
            Sequential([Dense(10)]).compile(cores=cores)  # pyright: ignore[reportArgumentType]
    for strategy in (Strategy(2, split=True), Strategy(2, scheduler="tcp://host:1")):
        with strategy.scope(), pytest.raises(TrainingError, match="split or scheduler"):
            Sequential([Dense(10)]).compile()
