# SPDX-License-Identifier: Apache-2.0
"""Tests of Adam and RMSprop in integers, against float64 and at the ends of their codes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.training import (
    SGD,
    Adam,
    Dense,
    Input,
    RMSprop,
    Sequential,
    TrainingError,
    load,
)
from systola.training.building import stages
from systola.training.fast.adaptive import AdaptiveUpdate, surveyed
from systola.training.fast.arithmetic import quotient
from systola.training.moments import (
    LEAST_TOLD,
    SURVEY_STEPS,
    Moments,
    MomentStep,
    Scale,
    Scales,
    raised,
)
from systola.training.optimizers import Optimizer
from systola.training.state import State, glorot, weights
from systola.training.task import Task
from systola.training.writer import Entry
from systola.verif.kit.seeds import random_seed
from systola.verif.training.data import digits
from systola.verif.training.referee import Referee

ENDS = np.array([-(1 << 15), 1 - (1 << 15), -129, -2, -1, 0, 1, 2, 127, 1 << 14, (1 << 15) - 1])
STAGES = stages([Input((3,)), Dense(5)], None)
SUM_BITS = 20
LARGE = 1 << 14


@pytest.mark.parametrize("right", [0, 1, 14, 31])
@pytest.mark.parametrize("bias", [0, -(1 << 30), 12345])
def test_quotients(right: int, bias: int) -> None:
    values, divisors = (each.astype(np.int16) for each in np.meshgrid(ENDS, ENDS))
    entry = Entry((1 << 31) - 5, right, bias=bias)
    found = quotient(divisors, values, entry)
    for value, divisor, each in zip(values.flat, divisors.flat, found.flat, strict=True):
        bits = int(divisor if divisor >= 0 else ~divisor).bit_length()
        dividend = Fraction(int(value) * 2 ** (15 - bits) + bias)
        exact = dividend * entry.multiplier / 2 ** (31 + right)
        assert each == floor(exact + Fraction(1, 2))


def fresh(optimizer: Adam | RMSprop, shape: tuple[int, int]) -> State:
    """Return a training state in which masters, with 16 fraction bits, and moments are zero."""
    zeros = np.zeros(shape, np.int16)
    first = (zeros,) if optimizer.decays.first else ()
    return State((zeros,), (), (16,), moments=Moments(first, (zeros,), (), 0, optimizer.decays))


def updated(state: State, optimizer: Adam | RMSprop, gradient: NDArray[np.float64]) -> State:
    task = Task(STAGES, 6, (16,), "binary", 1, 2.0**-8, decays=optimizer.decays)
    update = AdaptiveUpdate(task, state)
    update.add(0, np.rint(-gradient * 2**SUM_BITS).astype(np.int32), 16, SUM_BITS)
    after = update.state()
    assert after.moments
    if after.moments.updates % SURVEY_STEPS == 0:
        after = replace(after, moments=surveyed(after.moments))
    return after


class Float64:
    """An Adam or RMSprop in float64 with a rate of 2^-8, the reference for the integer one."""

    def __init__(self, optimizer: Adam | RMSprop, shape: tuple[int, int]) -> None:
        self.decays = optimizer.decays
        self.weights, self.first, self.square = (np.zeros(shape) for _ in range(3))
        self.steps = 0

    def update(self, gradient: NDArray[np.float64]) -> None:
        b1, b2 = self.decays.first, self.decays.second
        self.steps += 1
        self.first = b1 * self.first + (1 - b1) * gradient
        self.square = b2 * self.square + (1 - b2) * gradient**2
        rate = 2.0**-8
        if self.decays.corrected:
            rate *= sqrt(1 - b2**self.steps) / (1 - b1**self.steps)
        self.weights -= rate * self.first / (np.sqrt(self.square) + 1e-7)


@pytest.mark.parametrize("often", [1.0, 0.05])
@pytest.mark.parametrize("optimizer", [Adam(), Adam(beta_1=0.8, beta_2=0.99), RMSprop()])
def test_weights_move_as_in_float64(optimizer: Adam | RMSprop, often: float) -> None:
    """Check that weights move as in float64.

    The machine divides by a power of two instead of the root, and is wrong by a factor of up to
    sqrt(2). The mean of this factor over many weights is 1. The machine's formula for roots is
    exact to the first order only. If all gradients grow from step to step, the roots are 10 % too
    large.
    """
    rng, shape = np.random.default_rng(random_seed()), (60, 50)
    state, exact = fresh(optimizer, shape), Float64(optimizer, shape)
    size = 2.0 ** rng.uniform(-8, -3, shape)
    middle = size * rng.choice([-0.5, 0.5], shape)
    for step in range(200):
        # From step 80 to step 110 all gradients grow by a factor of 2^6, as at the end of a plateau
        # of the loss.
        level = 2.0 ** min(max(step - 80, 0) / 5, 6)
        there = rng.uniform(size=shape) < often
        gradient = (middle + size * rng.normal(size=shape)) * there * level / 64
        state = updated(state, optimizer, gradient)
        exact.update(np.rint(gradient * 2**SUM_BITS) / 2**SUM_BITS)
    here, there = state.masters[0].ravel() / 2.0**16, exact.weights.ravel()
    assert here @ there / sqrt((here @ here) * (there @ there)) > 0.98
    assert 0.88 < here @ there / (there @ there) < 1.12


@pytest.mark.parametrize("optimizer", [Adam(), Adam(beta_1=0.99), RMSprop(), Adam(beta_2=0.5)])
def test_weights_without_gradients_come_to_rest(optimizer: Adam | RMSprop) -> None:
    rng, shape = np.random.default_rng(random_seed()), (20, 30)
    state = fresh(optimizer, shape)
    for _ in range(20):
        state = updated(state, optimizer, rng.normal(size=shape) / 64)
    still = np.zeros(shape)
    for _ in range(1500):
        state = updated(state, optimizer, still)
    rest = state.masters[0]
    for _ in range(50):
        state = updated(state, optimizer, still)
    assert np.array_equal(state.masters[0], rest)


@pytest.mark.parametrize("optimizer", [Adam(), RMSprop()])
def test_roots_and_their_bounds(optimizer: Adam | RMSprop) -> None:
    """Check that roots are never negative, and that no first moment is beyond its bound."""
    rng, shape = np.random.default_rng(random_seed()), (20, 30)
    state = fresh(optimizer, shape)
    for step in range(300):
        level = 2.0 ** rng.integers(-14, 3)
        state = updated(state, optimizer, rng.normal(size=shape) * level)
        moments = state.moments
        assert moments and moments.roots[0].min() >= 0
        [scales] = moments.scales
        assert scales.root.bound <= 1 << 15 and scales.first.bound <= 1 << 15
        if optimizer.decays.first and scales.first.bound < LARGE:
            assert abs(moments.first[0].astype(int)).max() <= scales.first.bound + step + 1


def test_scales_far_from_one() -> None:
    """Check that the parameter entries of a step can be encoded for gradients of any size."""
    for before in (-64, 0, 96):
        for unit in (2.0**-250, 1.0, 2.0**100, 2.0**250):
            scales = Scales(before, Scale(unit, LARGE), Scale(1 / unit, LARGE))
            for decays in (Adam().decays, RMSprop().decays):
                step = MomentStep(decays, 1 << 20, scales, 2.0**-10, 8.0)
                shared = step.gradient_entry, step.first_entry
                for entry in (*shared, step.ratio_entry, step.root_entry, step.update_entry(32)):
                    assert 0 <= entry.multiplier < 1 << 31
                    assert 0 <= entry.left <= 7 and 0 <= entry.right <= 31
                    assert abs(entry.bias) <= 1 << 30
                used = shared if decays.first else shared[:1]
                assert max(entry.multiplier for entry in used) >= 1 << 30


@pytest.mark.parametrize("optimizer", [Adam(), RMSprop(0.0005)])
def test_losses_are_those_of_float32(optimizer: Optimizer) -> None:
    """Check the losses on digits against float32, in each of three epochs.

    The loss is within 5 %, and the accuracy on test images within 1.5 points.
    """
    (x, y), test = digits()
    layers = [Input((64,)), Dense(64, "relu"), Dense(10)]
    found = stages(layers, None)
    referee = Referee(found, weights(found, glorot(found, 0)), optimizer)
    model = Sequential(layers)
    model.compile(optimizer, metrics=["accuracy"], backend="fast")
    history = model.fit(x, y, batch_size=32, epochs=3, validation_data=test, verbose=0).history
    eye = np.eye(10, dtype=np.float32)
    for epoch in range(3):
        loss, _ = referee.epoch(x, eye[y], 32)
        _, right = referee.evaluate(test[0], eye[test[1]])
        assert abs(history["loss"][epoch] / loss - 1) < 0.05
        assert abs(history["val_accuracy"][epoch] - right) < 0.015


def compiled(optimizer: Any, **how: Any) -> Sequential:
    model = Sequential([Input((3,)), Dense(5, "relu"), Dense(2)])
    model.compile(optimizer, backend="fast", preset="8x8-training", **how)
    return model


RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(24, 3)), RNG.integers(0, 2, 24)


@pytest.mark.parametrize("name", ["adam", "Adam", "rmsprop", "RMSprop"])
def test_names_and_files(name: str, tmp_path: Path) -> None:
    """Check that a model that is loaded from a file goes on with its moments, byte for byte."""
    model = compiled(name)
    model.fit(X, Y, batch_size=8, epochs=3, verbose=0)
    model.save(tmp_path / "m.tpu")
    again = load(tmp_path / "m.tpu")
    kinds = {"adam": Adam(), "rmsprop": RMSprop()}
    assert again.settings and again.settings["optimizer"] == kinds[name.lower()]
    histories = [
        each.fit(X, Y, batch_size=8, epochs=5, initial_epoch=3, verbose=0).history
        for each in (model, again)
    ]
    assert histories[0] == histories[1]
    assert model.state().moments and again.state().moments
    assert model.state().moments.scales == again.state().moments.scales  # type: ignore[union-attr]
    for here, there in zip(model.get_weights(), again.get_weights(), strict=True):
        assert np.array_equal(here, there)


def test_another_optimiser_begins_anew() -> None:
    model = compiled("adam")
    model.fit(X, Y, batch_size=8, verbose=0)
    for optimizer in (Adam(beta_1=0.8), RMSprop(), SGD(0.1, 0.9), "adam"):
        model.compile(optimizer, backend="fast", preset="8x8-training")
        model.fit(X, Y, batch_size=8, verbose=0)
        moments = model.state().moments
        assert (moments.updates if moments else 3) == 3
    model.optimizer.learning_rate = 0.1
    model.fit(X, Y, batch_size=8, verbose=0)
    assert model.state().moments.updates == 6  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Adam(beta_1=1.0), "beta_1 must be 0.5 to 0.99, not 1.0"),
        (lambda: Adam(beta_2="a"), "beta_2 must be a finite number"),
        (lambda: RMSprop(rho=0.1), "rho must be 0.5 to 0.9999, not 0.1"),
        (lambda: RMSprop(momentum=0.9), "RMSprop.* does not take momentum=0.9: Adam is there"),
        (lambda: Adam(amsgrad=True), "does not take amsgrad=True"),
        (lambda: Adam(epsilon=0.1), "does not take epsilon=0.1: the last places"),
        (lambda: Adam(learning_rate=9), "learning_rate must be"),
        (lambda: compiled("adamax"), "optimizer 'adamax' is not there"),
    ],
)
def test_mistakes(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_files_and_rates_of_another_back_end(tmp_path: Path) -> None:
    """Check that the golden model goes on where back end "fast" has stopped, and the reverse.

    The learning rate changes in between.
    """
    whole = compiled("adam")
    whole.fit(X, Y, batch_size=8, epochs=1, verbose=0)
    whole.optimizer.learning_rate = 0.02
    whole.fit(X, Y, batch_size=8, epochs=3, initial_epoch=1, verbose=0)
    model = compiled("adam")
    for epoch, backend in enumerate(("fast", "iss", "fast")):
        if epoch == 1:
            model.optimizer.learning_rate = 0.02
        model.fit(X, Y, batch_size=8, epochs=epoch + 1, initial_epoch=epoch, verbose=0)
        model.save(tmp_path / "m.tpu")
        model = load(tmp_path / "m.tpu")
        assert model.settings
        following = {"fast": "iss", "iss": "fast"}[backend]
        model.compile(model.settings["optimizer"], backend=following, preset="8x8-training")
    found, expected = model.state(), whole.state()
    assert found.moments and expected.moments and found.moments.scales == expected.moments.scales
    for here, there in zip(
        (*found.masters, *found.moments.first, *found.moments.roots),
        (*expected.masters, *expected.moments.first, *expected.moments.roots),
        strict=True,
    ):
        assert np.array_equal(here, there)


def test_what_a_step_tells_is_kept_in_eight_bits() -> None:
    """Check the reported size of a step's largest gradient, which is kept in eight bits.

    The report is the number of bits of the largest magnitude, less a shift. The gradients may be
    measured in several parts, each of which can raise the report.
    """
    for shift in (-100, -7, 0, 30, 90):
        for parts in ([0], [3, 17, 5], [31, 0]):
            told = LEAST_TOLD
            for bits in parts:
                told = raised(told, bits, shift)
            exact = max(LEAST_TOLD, *(bits - shift for bits in parts))
            assert (told - exact) % 256 == 0
