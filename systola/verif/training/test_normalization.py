# SPDX-License-Identifier: Apache-2.0
"""Tests that BatchNormalization learns the same bytes on programs, pods and back end "fast"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import (
    SGD,
    Activation,
    Adam,
    Add,
    BatchNormalization,
    Concatenate,
    Conv1D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    ReLU,
    Sequential,
    TrainingError,
    load,
)
from systola.training.fast.normal import Normalized
from systola.training.functional import linked
from systola.training.optimizers import Optimizer
from systola.training.stages import Normalization
from systola.training.state import weights
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.normal import Normal
from systola.verif.training.referee import Referee
from systola.verif.training.test_branches import Layers, data, same, trained


def rows() -> Layers:
    """Make a network with a BatchNormalization before a ReLU, and another after a ReLU."""
    return [
        *(Input((9,)), Dense(11), BatchNormalization(), Activation("relu"), Dropout(0.2)),
        *(Dense(6, "relu"), BatchNormalization(momentum=0.5, epsilon=0.01), Dense(4)),
    ]


def maps() -> Layers:
    """Make a network that normalises maps; it pools a map and adds it to another map."""
    x = Input((6, 5, 2))
    a = BatchNormalization()(Conv2D(9, 3, padding="same", use_bias=False)(x))
    a = MaxPooling2D(2)(a)
    b = ReLU()(BatchNormalization(axis=3)(Conv2D(9, 1, activation="relu")(a)))
    both, means = Conv2D(9, 1)(Add()([a, b])), GlobalAveragePooling2D()(Conv2D(4, 1)(b))
    return linked(x, Dense(3)(Concatenate()([Flatten()(both), means])))


def steps() -> Layers:
    """Make a network that normalises the steps of sequences."""
    x = Input((6, 3))
    return linked(x, Dense(3)(Flatten()(BatchNormalization()(Conv1D(5, 2, activation="tanh")(x)))))


def longest() -> Layers:
    """Make a network of as many stages as a network can have.

    Each stage has dropout masks, curves or tables of its own.
    """
    four: Layers = []
    for n in range(4):
        four += [Dense(6 + n), BatchNormalization(), Activation("tanh"), Dropout(0.1)]
    return [Input((9,)), *four, Dense(7, "relu"), Dense(5, "sigmoid"), Dense(4)]


CASES: dict[str, Callable[[], Layers]] = {
    each.__name__: each for each in (rows, maps, steps, longest)
}


@pytest.mark.parametrize(
    ("name", "optimizer", "cores"),
    [
        ("rows", SGD(0.2, 0.9), 1),
        thorough("maps", SGD(0.2), 1),
        thorough("steps", Adam(0.01), 1),
        thorough("longest", Adam(0.01), 1),
        thorough("rows", Adam(0.01), 2),
        thorough("maps", SGD(0.2, 0.9), 3),
    ],
)
def test_bytes_of_the_golden_model(name: str, optimizer: Optimizer, cores: int) -> None:
    """Check BatchNormalization on the golden model against back end "fast".

    Batches of 12 and 6 samples fill no block. With more than two cores, a core has no sample.
    """
    layers = CASES[name]()
    how: dict[str, Any] = {"preset": "8x8-training"}
    golden = trained(layers, optimizer, backend="iss", cores=cores, **how)
    assert same(golden, trained(layers, optimizer, backend="fast", **how))


@pytest.mark.parametrize("optimizer", [SGD(0.2, 0.9), thorough(Adam(0.01))])
def test_frozen(optimizer: Optimizer) -> None:
    """Check that a frozen layer takes its moving mean and variance, and learns nothing.

    All other layers learn.
    """
    frozen = BatchNormalization(trainable=False)
    first = Input((9,)), Dense(11), frozen, Activation("relu")
    layers: Layers = [*first, Dense(6), BatchNormalization(), Dense(4)]
    x, y = data(layers, 20)
    left: list[Any] = []
    for backend in ("iss", "fast"):
        model = Sequential(layers)
        model.compile(optimizer, preset="8x8-training", backend=backend, seed=1)
        before = model.get_weights()
        rng = np.random.default_rng(random_seed())
        before[2:6] = [rng.uniform(0.5, 2, each.shape) for each in before[2:6]]
        model.set_weights(before)
        before = model.get_weights()
        losses = [model.train_on_batch(x, y) for _ in range(3)]
        after = model.get_weights()
        changed = [bool((a != b).any()) for a, b in zip(before, after, strict=True)]
        assert changed[2:6] == [False] * 4 and all(changed[:2] + changed[6:])
        state = model.state()
        kinds = state.masters, *state.beside, state.statistics
        learnt = [each.tobytes() for kind in kinds for each in kind]
        left.append((losses, learnt, model.predict(x).tolist()))
    assert left[0] == left[1]


def test_gradients_beside_float64() -> None:
    """Check the gradients of a BatchNormalization in numpy, and a step against them.

    Differences in float64 give the gradients, and a step moves weights as in numpy.
    """
    rng = np.random.default_rng(random_seed())
    x, given = rng.normal(size=(7, 3)) * 2 + 1, rng.normal(size=(7, 3))
    normal = Normal(Normalization(0.9, 1e-3))
    normal.mean, normal.variance = np.zeros((2, 3))
    normal.forward(x)
    below = normal.backward(given)
    for place in ((0, 0), (3, 1), (6, 2)):
        step = np.zeros_like(x)
        step[place] = 1e-5
        apart = normal.forward(x + step) - normal.forward(x - step)
        assert below[place] == pytest.approx((apart * given).sum() / 2e-5, rel=1e-4, abs=1e-7)

    layers = [each for each in rows() if not isinstance(each, Dropout)]
    samples, labels = data(layers, 60, seed=1)
    samples = np.round(samples * 32) / 32
    model = Sequential(layers)
    model.compile(SGD(2.0**-4), preset="8x8-training", backend="fast")
    referee = Referee(model.stages(), weights(model.stages(), model.state()), SGD(2.0**-4))
    start = [each.copy() for each in referee.weights]
    model.train_on_batch(samples, labels)
    referee.step(samples, np.eye(4)[labels], 60)
    after = Referee(model.stages(), weights(model.stages(), model.state()), SGD()).weights
    for one, found, wanted in zip(start, after, referee.weights, strict=True):
        # Biases before a BatchNormalization change nothing, so their gradients are only rounding
        # errors.
        if np.linalg.norm(wanted - one) > 1e-4:
            assert np.linalg.norm(found - wanted) < 0.25 * np.linalg.norm(wanted - one)


def test_roots() -> None:
    """Check means, variances and inverse standard deviations of channels.

    The standard deviations of the channels differ by a factor of up to 230.
    """
    rng = np.random.default_rng(random_seed())
    spread = np.array([0.1, 1, 2, 5, 7, 11, 16, 23])
    x = np.clip(np.rint(rng.normal(size=(4096, 8)) * spread + rng.normal(size=8) * 4), -128, 127)
    found = Normalized.of(x.astype(np.int8), 4, 1e-3)
    given = x / 2.0**4
    roots = found.root / 2.0**found.root_bits
    measured = found.measured.numbers()
    np.testing.assert_allclose(measured[0], given.mean(axis=0), atol=2.0**-4 / 100)
    np.testing.assert_allclose(measured[1], given.var(axis=0), rtol=0.02, atol=1 / 2.0**8)
    wanted = 1 / np.sqrt(measured[1] + 1e-3)
    np.testing.assert_allclose(roots[3:], wanted[3:], rtol=1 / 100)


def test_moving_statistics() -> None:
    """Check that get_weights() returns the moving mean and variance, and predict() takes them.

    The momentum is zero, so mean and variance are the last batch's.
    """
    layers = [Input((9,)), Dense(5), BatchNormalization(momentum=0), Dense(3)]
    model, (x, y) = Sequential(layers), data(layers, 64)
    model.compile(SGD(2.0**-20), preset="8x8-training", backend="fast", seed=1)
    kernel, _, gamma, beta, mean, variance, *_ = model.get_weights()
    assert [each.shape for each in (gamma, beta, mean, variance)] == [(5,)] * 4
    assert np.all(gamma == 1) and np.all(variance == 1) and not mean.any() and not beta.any()
    model.fit(x, y, batch_size=64, verbose=0)
    sums = x @ kernel
    _, _, _, _, mean, variance, *_ = model.get_weights()
    np.testing.assert_allclose(mean, sums.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(variance, sums.var(axis=0), rtol=0.05)
    changed = model.get_weights()
    before = model.predict(x)
    changed[4] = changed[4] + 1
    model.set_weights(changed)
    kernel, biases = changed[-2:]
    hidden = (sums - changed[4]) / np.sqrt(changed[5] + 1e-3)
    np.testing.assert_allclose(model.predict(x), hidden @ kernel + biases, atol=0.15)
    assert abs(model.predict(x) - before).max() > 0.3


def test_a_file_goes_on(tmp_path: Path) -> None:
    """Check that moving means and variances are saved byte for byte, and training goes on."""
    layers = rows()
    x, y = data(layers)
    model = Sequential(layers)
    model.compile(SGD(0.2), preset="8x8-training", backend="fast", seed=1)
    model.fit(x, y, batch_size=10, verbose=0)
    model.save(tmp_path / "m.tpu")
    again = load(tmp_path / "m.tpu")
    for each in (model, again):
        each.fit(x, y, batch_size=10, verbose=0)
    pairs = zip(model.state().statistics, again.state().statistics, strict=True)
    assert all(a.tobytes() == b.tobytes() and a.any() for a, b in pairs)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Input((9,)), BatchNormalization(), Dense(3)], "after a Dense or Conv2D"),
        ([Input((9,)), Dense(3), BatchNormalization()], "the last layer must be a Dense"),
        ([Input((9,)), Dense(3), BatchNormalization(axis=2), Dense(3)], "axis must be -1, not 2"),
        (
            [Input((5, 5, 1)), Conv2D(3, 3), Flatten(), BatchNormalization(), Dense(3)],
            "flattened maps: put it before them",
        ),
    ],
)
def test_refused(layers: Layers, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Sequential(layers).stages()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"momentum": 2}, "momentum must be 0 to 1, not 2"),
        ({"epsilon": 0}, "epsilon must be 1e-06 to 1, not 0"),
        ({"scale": False}, "gamma is learnt"),
        ({"gamma_initializer": "zeros"}, "set_weights"),
        ({"trainable": 1}, "trainable must be True or False, not 1"),
    ],
)
def test_wrong_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        BatchNormalization(**given)
