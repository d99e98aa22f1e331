# SPDX-License-Identifier: Apache-2.0
"""Tests of batches without room in the buffer, which are taken in turns: part by part.

A batch in turns leaves the same bytes as a batch that is taken whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.training import (
    LSTM,
    SGD,
    Activation,
    Adam,
    AveragePooling2D,
    BatchNormalization,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    Sequential,
    TrainingError,
    engine,
)
from systola.training.errors import NoRoomError
from systola.training.fit import fitted, layout_of
from systola.training.task import Task
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training import test_branches, test_normalization
from systola.verif.training.graphs import drawn_graph

CLASSES, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"
MACHINE = preset("4x4-training")


@dataclass(frozen=True)
class Case:
    """A network with its loss, a batch size, and the settings of its optimiser."""

    layers: Sequence[Any]
    loss: str
    batch: int
    momentum: float = 0.9
    rounding: str = "nearest"
    adam: bool = False


HIDDEN = Dense(20, "relu"), Dropout(0.3), Dense(9)
CASES = {
    "classes": Case([Input((13,)), *HIDDEN, Dense(5)], CLASSES, 64),
    "kept sums": Case([Input((40,)), Dense(13), Dropout(0.2), Dense(5)], CLASSES, 20),
    "kept gradients": Case([Input((9,)), Dense(8), Dense(40, "relu"), Dense(2)], "mse", 16),
    "binary": Case([Input((30,)), Dense(17, "relu"), Dense(3)], BINARY, 17, 0.0),
    "one stage": Case([Input((50,)), Dense(7)], CLASSES, 32, 0.0),
    "words": Case(
        [*(Input((5,)), Embedding(40, 6), LSTM(7), Dropout(0.2)), Dense(1, "sigmoid")], BINARY, 16
    ),
    "sequences": Case(
        [Input((4, 5)), LSTM(6, use_bias=False), Dense(5, "relu"), Dense(3)], CLASSES, 12, 0.0
    ),
    "adam": Case(
        [Input((9,)), Dense(20, "tanh"), Dropout(0.3), Dense(6, "sigmoid"), Dense(4)],
        CLASSES,
        24,
        adam=True,
    ),
    "words with adam": Case(
        [*(Input((5,)), Embedding(40, 6), LSTM(7)), Dense(1, "sigmoid", use_bias=False)],
        BINARY,
        16,
        adam=True,
    ),
    "two LSTMs": Case(
        [
            *(Input((5,)), Embedding(40, 6), LSTM(9, return_sequences=True), Dropout(0.3)),
            *(LSTM(7), Dropout(0.2), Dense(6, "relu"), Dense(3)),
        ],
        CLASSES,
        24,
    ),
    "three LSTMs": Case(
        [
            *(Input((5,)), Embedding(40, 6), LSTM(9, return_sequences=True), Dropout(0.3)),
            *(LSTM(6, return_sequences=True), LSTM(7), Dropout(0.2), Dense(6, "relu"), Dense(3)),
        ],
        CLASSES,
        24,
        adam=True,
    ),
    "LSTMs of numbers": Case(
        [Input((4, 5)), LSTM(9, return_sequences=True, use_bias=False), LSTM(10), Dense(3)],
        CLASSES,
        40,
    ),
    "deep": Case(
        [Input((9,)), *(Dense(5 + n, "relu") for n in range(7)), Dropout(0.2), Dense(3)],
        CLASSES,
        40,
    ),
    "maps": Case(
        [
            *(Input((6, 6, 3)), Conv2D(5, 3, padding="same", activation="relu"), MaxPooling2D(2)),
            *(Conv2D(6, 2, 2, "same", activation="relu"), Dropout(0.25), Flatten(), Dense(4)),
        ],
        CLASSES,
        20,
    ),
    "means of maps": Case(
        [
            *(Input((7, 6, 2)), Conv2D(5, 3, activation="tanh"), AveragePooling2D(2)),
            *(DepthwiseConv2D(2, activation="relu"), GlobalAveragePooling2D()),
            *(Dense(7, "relu"), Dense(3)),
        ],
        CLASSES,
        20,
        adam=True,
    ),
    "deep maps": Case(
        [
            *(Input((6, 4, 3)), *(Conv2D(5, 3, padding="same") for _ in range(5))),
            *(MaxPooling2D(3, 2), Dropout(0.2), Flatten(), Dense(4)),
        ],
        CLASSES,
        20,
        0.0,
    ),
    "joins": Case(test_branches.rows(), CLASSES, 24),
    "copies": Case(test_branches.copies(), CLASSES, 24, adam=True),
    "joined maps": Case(test_branches.maps(), CLASSES, 16),
    "maps beside maps": Case(test_branches.dense_maps(), CLASSES, 16, 0.0),
    "two of a state": Case(test_branches.after_an_lstm(), CLASSES, 16),
    "joined state": Case(test_branches.state_joined(), CLASSES, 16, adam=True),
    "normal rows": Case(test_normalization.rows(), CLASSES, 24),
    "normal maps": Case(test_normalization.maps(), CLASSES, 16),
    "normal steps": Case(test_normalization.steps(), CLASSES, 16, adam=True),
    "frozen": Case(
        [
            *(Input((9,)), Dense(11), BatchNormalization(trainable=False), Activation("relu")),
            *(Dense(6), BatchNormalization(), Dense(4)),
        ],
        CLASSES,
        24,
    ),
    "at random": Case(
        [Input((20,)), Dense(20, "relu"), Dense(5)], CLASSES, 24, 0.0, rounding="stochastic"
    ),
}


def samples(case: Case, count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(random_seed())
    shape, units = (count, *case.layers[0].shape), case.layers[-1].units
    x = rng.normal(size=shape)
    if isinstance(case.layers[1], Embedding):
        x = np.floor(rng.uniform(0, 1, shape) ** 3 * case.layers[1].input_dim)
    if case.loss == CLASSES:
        return x, rng.integers(0, units, count)
    if case.loss == BINARY:
        return x, rng.integers(0, 2, (count, units)).astype(float)
    return x, rng.normal(size=(count, units))


def trained(case: Case, *, weights: bool = False, **how: Any) -> list[Any]:
    """Train two steps, the second with a smaller batch; return losses, state and predictions."""
    data = samples(case, case.batch + case.batch // 3)
    model = Sequential(list(case.layers))
    plain = SGD(0.2, case.momentum, rounding=case.rounding)
    optimizer = Adam(0.02) if case.adam else plain
    model.compile(optimizer, loss=case.loss, metrics=["accuracy"], seed=3, **how)
    kept = data[0][: case.batch - 5], data[1][: case.batch - 5]
    some = np.linspace(0, 2, len(data[0])) if weights else None
    fit = {"batch_size": case.batch, "validation_data": kept, "verbose": 0}
    history = model.fit(*data, sample_weight=some, **fit)
    state = model.state()
    kept = state.moments
    moments = (*kept.first, *kept.roots) if kept else ()
    kinds = *state.masters, *state.velocities, *moments, *state.statistics
    learnt = [each.tobytes() for each in kinds]
    bits = state.bits, state.unit_bits
    return [history.history, learnt, bits, model.predict(data[0][:11]).tobytes()]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each training appends the number of turns of a batch."""
    made: list[int] = []

    def noted(*about: Any) -> Any:
        task, layout = fitted(*about)
        made.append(task.turns)
        return task, layout

    monkeypatch.setattr(engine, "fitted", noted)
    return made


@pytest.mark.parametrize(
    ("name", "lines", "accumulators", "cores", "expected"),
    [
        ("classes", 256, 128, 1, 16),
        # The accumulators have no room for the logits of all samples at one time.
        ("classes", 8192, 64, 1, 2),
        ("kept sums", 336, 64, 1, 5),
        ("kept gradients", 352, 256, 2, 2),
        ("words", 544, 256, 1, 4),
        ("adam", 304, 256, 1, 3),
        ("two LSTMs", 720, 256, 1, 6),
        thorough("two LSTMs", 1024, 24, 1, 6),
        thorough("three LSTMs", 900, 256, 2, 3),
        thorough("LSTMs of numbers", 900, 256, 2, 5),
        ("deep", 300, 256, 1, 10),
        ("maps", 2048, 512, 1, 5),
        thorough("maps", 2048, 200, 3, 2),
        ("means of maps", 1500, 512, 1, 5),
        thorough("means of maps", 2048, 512, 2, 3),
        thorough("deep maps", 2048, 512, 2, 3),
        ("joins", 400, 256, 1, 6),
        ("normal rows", 400, 256, 1, 2),
        thorough("copies", 360, 256, 2, 3),
        thorough("two of a state", 500, 256, 1, 4),
        thorough("joins", 400, 256, 3, 2),
        thorough("joined maps", 3000, 512, 1, 2),
        thorough("maps beside maps", 1200, 512, 1, 2),
        thorough("joined state", 500, 256, 1, 4),
        thorough("normal rows", 400, 256, 3, 2),
        thorough("normal maps", 3000, 512, 2, 2),
        # The accumulators have no room for all sums of a block of channels at one time.
        thorough("normal maps", 3000, 96, 1, 2),
        thorough("normal steps", 800, 256, 1, 2),
        thorough("frozen", 360, 256, 1, 3),
        thorough("words with adam", 496, 256, 2, 2),
        thorough("sequences", 544, 256, 1, 3),
        thorough("words", 544, 1024, 2, 2),
        # The accumulators have no room for the gradients of states and of inputs side by side.
        thorough("words", 1024, 16, 1, 2),
        thorough("binary", 288, 128, 1, 5),
        thorough("one stage", 352, 256, 3, 3),
        thorough("kept sums", 352, 256, 3, 2),
        thorough("binary", 304, 1024, 2, 3),
        thorough("classes", 256, 1024, 3, 6),
    ],
)
def test_bytes_of_the_numerics(
    turns: list[int], name: str, lines: int, accumulators: int, cores: int, expected: int
) -> None:
    case = CASES[name]
    machine = replace(MACHINE, buffer_lines=lines, accumulator_rows=accumulators)
    weights = name == "binary"
    found = trained(case, weights=weights, preset=machine, backend="iss", cores=cores)
    assert turns == [expected]
    assert found == trained(case, weights=weights, preset=machine, backend="fast")


@pytest.mark.parametrize("cores", [1, thorough(2)])
def test_updates_that_are_rounded_at_random(turns: list[int], cores: int) -> None:
    """Check that updates rounded at random are the same in a batch of several turns as of one.

    The random numbers of a weight do not depend on the turns.
    """
    case = CASES["at random"]
    machines = (replace(MACHINE, buffer_lines=lines) for lines in (8192, 352))
    whole, parts = (
        trained(case, preset=machine, backend="iss", cores=cores) for machine in machines
    )
    assert turns[0] == 1 < turns[1]
    assert whole == parts


Drawn = tuple[Case, int, int, int, int]
"""A random case: network, rows of the array, lines of a bank, accumulator rows, and cores."""


def check_until_turns(turns: list[int], draw: Callable[[], Drawn]) -> None:
    """Compare random cases with back end "fast", until a batch is taken in turns."""
    while not turns or turns[-1] == 1:
        case, size, lines, rows, cores = draw()
        machine = preset(f"{size}x{size}-training")
        lines *= machine.buffer_banks
        machine = replace(machine, buffer_lines=lines, accumulator_rows=rows)
        try:
            found = trained(case, preset=machine, backend="iss", cores=cores)
        except NoRoomError:
            continue
        assert found == trained(case, preset=machine, backend="fast")


@pytest.mark.parametrize("drawn", [0, *map(thorough, range(1, 8))])
def test_networks_by_chance(turns: list[int], drawn: int) -> None:
    """Check random perceptrons, buffers and numbers of cores, until a batch is taken in turns."""
    rng = np.random.default_rng(random_seed() + drawn)

    def draw() -> Drawn:
        inputs, units, classes = (int(rng.integers(1, most)) for most in (90, 60, 11))
        hidden = [Dense(units, rng.choice(["relu", "linear"])), Dropout(0.25)]
        layers = [Input((inputs,)), *hidden[: rng.integers(0, 3)], Dense(classes)]
        loss = str(rng.choice([CLASSES, BINARY, "mse"]))
        momentum = float(rng.choice([0, 0.9]))
        case = Case(layers, loss, int(rng.integers(8, 40)), momentum)
        size, lines = int(rng.choice([3, 4, 5])), int(rng.integers(60, 400))
        return case, size, lines, int(2 ** rng.integers(7, 10)), int(rng.integers(1, 4))

    check_until_turns(turns, draw)


@pytest.mark.parametrize("drawn", [0, *map(thorough, range(1, 12))])
def test_networks_with_branches_by_chance(turns: list[int], drawn: int) -> None:
    """Check random networks with branches on random machines, until a batch is taken in turns."""
    rng = random.Random(random_seed() + drawn)

    def draw() -> Drawn:
        layers = drawn_graph(rng, 3)
        batch, momentum = rng.randint(8, 30), rng.choice((0.0, 0.9))
        case = Case(layers, CLASSES, batch, momentum, adam=rng.random() < 0.5)
        size, cores = rng.choice((3, 4, 5)), rng.choice((1, 1, 2, 3))
        return case, size, rng.randint(60, 400), 1 << rng.randint(6, 9), cores

    check_until_turns(turns, draw)


@pytest.mark.thorough
@pytest.mark.exhaustive
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_cores_and_turns(monkeypatch: pytest.MonkeyPatch, cores: int, adam: bool) -> None:
    """Check that a batch leaves the same bytes with each number of turns from 1 to 16."""
    case = replace(CASES["classes"], batch=520, adam=adam)
    machine = replace(MACHINE, buffer_lines=1 << 16, accumulator_rows=2048)
    expected = trained(case, preset=machine, backend="fast")
    for turns in range(1, 17):

        def forced(config: Config, task: Task, batch: int, turns: int = turns) -> Any:
            task = replace(task, count=batch, turns=turns)
            return task, layout_of(config, task)

        monkeypatch.setattr(engine, "fitted", forced)
        assert trained(case, preset=machine, backend="iss", cores=cores) == expected, turns


def test_no_room_for_one_block_of_samples() -> None:
    """Check the message for a network without room even for one block of samples.

    The message has the number of missing lines. Fewer samples in a batch would not help.
    """
    machine = replace(MACHINE, buffer_lines=256)
    model = Sequential([Input((13,)), Dense(900), Dense(2)])
    model.compile(preset=machine, backend="iss")
    says = (
        r"256 lines, has no room for \d+ more, even with 4 samples at a time: take a larger preset"
    )
    with pytest.raises(TrainingError, match=says):
        model.fit(np.zeros((64, 13)), np.zeros(64), batch_size=64, verbose=0)


@pytest.mark.thorough
@pytest.mark.exhaustive
def test_a_batch_of_the_tutorial(turns: list[int]) -> None:
    """Check a batch of 1,024 samples for the network 784-512-10 on `base`, taken in turns."""
    layers = [Input((784,)), Dense(512, "relu"), Dropout(0.2), Dense(10)]
    rng = np.random.default_rng(random_seed())
    x, y = rng.uniform(0, 1, (1024, 784)), rng.integers(0, 10, 1024)
    left: list[list[bytes]] = []
    for backend in ("iss", "fast"):
        model = Sequential(layers)
        model.compile(SGD(0.1, 0.9), preset="base-training", backend=backend)
        model.fit(x, y, batch_size=1024, verbose=0)
        state = model.state()
        left.append([each.tobytes() for each in (*state.masters, *state.velocities)])
    assert turns[0] > 1
    assert left[0] == left[1]
