# SPDX-License-Identifier: Apache-2.0
"""Tests of clipped gradients: bytes of all back ends, and norms against Keras's formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from systola.training import SGD, Adam, AdamW, Dense, Input, RMSprop, Sequential, TrainingError
from systola.training.optimizers import Optimizer
from systola.training.state import State
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.test_fast import CASES, MACHINE, samples, trained

LAYERS = (Input((13,)), Dense(20, "relu"), Dense(3))
SEED = 3


@pytest.mark.parametrize(
    ("name", "optimizer", "cores"),
    [
        ("dense", Adam(0.01, clipnorm=0.1), 1),
        thorough("three", Adam(0.01, global_clipnorm=0.05), 2),
        thorough("pooled", AdamW(0.01, global_clipnorm=0.1), 1),
        thorough("words", Adam(0.01, clipnorm=2.0**-20), 1),
    ],
)
def test_bytes_of_the_golden_model(name: str, optimizer: Adam, cores: int) -> None:
    case = CASES[name]
    data = samples(case.layers(), case.loss)
    golden = trained(case, optimizer, data, preset=MACHINE, backend="iss", cores=cores)
    assert golden == trained(case, optimizer, data, preset=MACHINE, backend="fast")


@pytest.mark.parametrize(
    ("name", "optimizer", "cores"),
    [
        ("dense", SGD(0.5, clipvalue=2.0**-6), 1),
        ("squares", SGD(0.2, 0.9, clipvalue=0.05), 3),
        thorough("pooled", SGD(0.2, 0.9, clipvalue=0.01), 1),
        thorough("words", SGD(0.5, clipvalue=2.0**-9), 2),
        thorough("three", SGD(2.0**-8, clipvalue=2.0**-20), 1),
        ("three", Adam(0.01, clipvalue=2.0**-6), 1),
        thorough("pooled", AdamW(0.01, clipvalue=2.0**-9), 2),
        thorough("words", RMSprop(0.01, clipvalue=2.0**-20), 1),
    ],
)
def test_values_of_the_golden_model(name: str, optimizer: Optimizer, cores: int) -> None:
    case = CASES[name]
    data = samples(case.layers(), case.loss)
    golden = trained(case, optimizer, data, preset=MACHINE, backend="iss", cores=cores)
    assert golden == trained(case, optimizer, data, preset=MACHINE, backend="fast")


@pytest.mark.parametrize("bits", [-2, 0, 3, 6])
def test_values_are_cut_off(bits: int) -> None:
    """Check that `clipvalue` limits the gradient of each weight in a step, as in Keras.

    `clipvalue` is the largest gradient, rounded down to a power of two and divided by 2^`bits`.
    """
    rng = np.random.default_rng(random_seed())
    x, y = rng.normal(size=(24, 13)), rng.integers(0, 3, 24)

    def moved(value: float | None) -> tuple[list[Any], Sequence[int]]:
        """Return how far a step moves each master weight, and the fraction bits of each tensor."""
        model = Sequential(LAYERS)
        model.compile(SGD(0.25, clipvalue=value), preset=MACHINE, backend="fast", seed=SEED)
        before = model.state()
        model.train_on_batch(x, y)
        pairs = zip(model.state().masters, before.masters, strict=True)
        return [after.astype(int) - old for after, old in pairs], before.bits

    free, places = moved(None)
    largest = max(np.abs(one).max() / 2.0**own for one, own in zip(free, places, strict=True))
    value = 2.0 ** (np.floor(np.log2(largest / 0.25)) - bits)
    for one, cut, own in zip(free, moved(value)[0], places, strict=True):
        most = round(0.25 * value * 2.0**own)
        assert np.array_equal(cut, one.clip(-most, most))


@pytest.mark.parametrize("bits", [-2, 1, 4, 9])
def test_values_of_moments_are_cut_off(bits: int) -> None:
    """Check that `clipvalue` limits the first moments of Adam.

    A first moment is a tenth of its gradient, or of `clipvalue` if the gradient is larger. 11 bits
    of `clipvalue` are kept. `clipvalue` is the largest gradient, rounded down to a power of two and
    divided by 2^`bits`.
    """
    rng = np.random.default_rng(random_seed())
    x, y = rng.normal(size=(24, 13)), rng.integers(0, 3, 24)
    free = first_moments(moments_after(Adam(), x, y))
    largest = 10 * max(np.abs(one).max() for one in free)
    value = 2.0 ** (np.floor(np.log2(largest)) - bits)
    most = 0.1 * value
    cut = first_moments(moments_after(Adam(clipvalue=value), x, y))
    for one, other in zip(free, cut, strict=True):
        assert np.allclose(other, one.clip(-most, most), rtol=0, atol=2.0**-10 * np.abs(one).max())
        assert np.abs(other).max() <= most * (1 + 2.0**-9)


def test_random_rounding_is_cut_off() -> None:
    """Check that gradients cut off at `clipvalue` move weights equally with each rounding.

    A step is rounded to nearest or at random. The test runs on the golden model.
    """
    x, y = np.ones((8, 13)), np.zeros(8, int)
    moved: list[Any] = []
    for rounding in ("nearest", "stochastic"):
        model = Sequential([Input((13,)), Dense(3)])
        optimizer = SGD(0.5, rounding=rounding, clipvalue=2.0**-5)
        model.compile(optimizer, preset=MACHINE, backend="iss", seed=SEED)
        model.train_on_batch(x, y)
        moved.append([each.tobytes() for each in model.state().masters])
    assert moved[0] == moved[1]


def moments_after(optimizer: Adam, x: Any, y: Any) -> State:
    """Train one step with an optimiser, and return the model's state after it."""
    model = Sequential(LAYERS)
    model.compile(optimizer, preset=MACHINE, backend="fast", seed=SEED)
    model.train_on_batch(x, y)
    return model.state()


def first_moments(state: State) -> list[Any]:
    """Return the first moments in a model's state, an array for each tensor of weights."""
    assert state.moments
    pairs = zip(state.moments.first, state.moments.scales, strict=True)
    return [codes / scales.first.unit for codes, scales in pairs]


def norms(state: State) -> list[float]:
    """Return the norm of the first moments of each tensor of weights in a model's state."""
    return [float(np.linalg.norm(each)) for each in first_moments(state)]


def expected(clip: float | None, together: bool, found: Sequence[float]) -> list[float]:
    """Return the norms of first moments after clipping, by Keras's formula.

    `found` has the norms of the gradients before clipping. A first moment is a tenth of a clipped
    gradient. With `together` the norm of all gradients together is limited, else each norm by
    itself.
    """
    whole = [float(np.linalg.norm(found))] * len(found) if together else found
    return [
        0.1 * norm * (clip / max(all_, clip) if clip else 1.0)
        for norm, all_ in zip(found, whole, strict=True)
    ]


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_norms_are_those_of_the_formula(scale: float) -> None:
    """Check the norms of clipped gradients against Keras's formula.

    The formula is applied to the gradients of the same step without clipping. Small samples
    (`scale`) make the gradients of the first kernel small.
    """
    rng = np.random.default_rng(random_seed())
    x, y = scale * rng.normal(size=(24, 13)), rng.integers(0, 3, 24)
    found = [10 * norm for norm in norms(moments_after(Adam(), x, y))]
    for part in (0.9, 0.01):
        clip = part * min(found)
        for optimizer, together in (
            (Adam(clipnorm=clip), False),
            (Adam(global_clipnorm=clip), True),
        ):
            left = norms(moments_after(optimizer, x, y))
            # The largest moment of a tensor has 14 bits at least, so a moment is off by 2^-15 of it
            # at most. A norm of fewer than 400 moments is off by 20 times as much, in `left` and in
            # `found`.
            assert left == pytest.approx(expected(clip, together, found), rel=40 * 2.0**-15)


def test_a_large_norm_changes_nothing() -> None:
    rng = np.random.default_rng(random_seed())
    x, y = rng.normal(size=(24, 13)), rng.integers(0, 3, 24)
    one, other = (moments_after(each, x, y) for each in (Adam(), Adam(clipnorm=1000.0)))
    assert norms(one) == norms(other)
    assert all(map(np.array_equal, one.masters, other.masters))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Adam(clipnorm=1.0, global_clipnorm=1.0), "one of clipnorm, global_clip"),
        (lambda: Adam(clipnorm=0.0), "clipnorm must be 2\\^-20 to 2\\^20, not 0"),
        (lambda: AdamW(global_clipnorm="1"), "global_clipnorm must be a finite number"),
        (lambda: Adam(clipvalue=1.0, clipnorm=1.0), "one of clipnorm, global_clipnorm and clipval"),
        (lambda: RMSprop(clipvalue=-1.0), "clipvalue must be 2\\^-20 to 2\\^20, not -1"),
        (lambda: SGD(clipvalue=0.0), "clipvalue must be 2\\^-20 to 2\\^20, not 0"),
        (lambda: SGD(clipnorm=1.0), "Adam has it"),
        (lambda: RMSprop(global_clipnorm=1.0), "Adam has it"),
    ],
)
def test_mistakes_are_one_clear_line(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)
