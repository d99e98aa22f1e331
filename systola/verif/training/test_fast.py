# SPDX-License-Identifier: Apache-2.0
"""Tests that back end "fast" learns the same bytes as the golden model, which runs programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    SGD,
    Adam,
    AveragePooling1D,
    AveragePooling2D,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    Input,
    MaxPooling2D,
    RMSprop,
    Sequential,
    TrainingError,
    load,
)
from systola.training.fast.step import Step
from systola.training.optimizers import Optimizer
from systola.training.state import State
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

CLASSES, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"
SAMPLES = 30
MACHINE = "8x8-training"


@dataclass(frozen=True)
class Case:
    """A network with its loss and a batch size, which leaves a smaller batch at an epoch's end."""

    layers: Callable[[], Sequence[Any]]
    loss: str
    batch: int


def words() -> list[Any]:
    return [Input((6,)), Embedding(20, 10), LSTM(12), Dropout(0.2)]


CASES = {
    "dense": Case(
        lambda: [Input((13,)), Dense(20, "relu"), Dropout(0.3), Dense(5, "softmax")], CLASSES, 16
    ),
    "three": Case(
        lambda: [Input((13,)), Dense(20), Dropout(0.1), Dense(9, "relu"), Dense(5)], CLASSES, 20
    ),
    "binary": Case(lambda: [Input((13,)), Dense(9, "relu"), Dense(1, "sigmoid")], BINARY, 16),
    "squares": Case(lambda: [Input((13,)), Dense(3)], "mse", 7),
    "pooled": Case(
        lambda: [
            *(Input((7, 6, 3)), Conv2D(5, 3, padding="same", activation="relu")),
            *(MaxPooling2D(2), Dropout(0.2), Conv2D(9, (2, 3), strides=(2, 1))),
            *(Flatten(), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "depthwise": Case(
        lambda: [
            *(Input((6, 5, 3)), Conv2D(9, 1, activation="relu")),
            *(DepthwiseConv2D(3, 2, "same", activation="tanh"), Dropout(0.2)),
            *(DepthwiseConv2D(2, use_bias=False), MaxPooling2D(2), Flatten(), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "strides": Case(
        lambda: [
            *(Input((7, 6, 3)), Conv2D(5, 3, strides=2, padding="same", activation="relu")),
            *(Dropout(0.2), Flatten(), Dense(11, "relu"), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "curves": Case(
        lambda: [
            *(Input((13,)), Dense(20, "tanh"), Dropout(0.3), Dense(9, "sigmoid")),
            *(Dropout(0.6), Dense(7, "relu6"), Dense(5)),
        ],
        CLASSES,
        20,
    ),
    "no biases": Case(
        lambda: [
            *(Input((7, 6, 3)), Conv2D(5, 3, use_bias=False)),
            *(Flatten(), Dense(9, "sigmoid", use_bias=False)),
            *(Dense(6, kernel_initializer="he_normal", bias_initializer="ones"),),
            Dense(4, use_bias=False),
        ],
        CLASSES,
        12,
    ),
    "means": Case(
        lambda: [
            *(Input((7, 9, 3)), Conv2D(5, 3, padding="same", activation="relu")),
            *(AveragePooling2D((2, 3)), Dropout(0.2), Conv2D(9, 2, activation="sigmoid")),
            *(GlobalAveragePooling2D(), Dropout(0.3), Dense(6, "relu"), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "shared pixels": Case(
        lambda: [
            *(Input((7, 6, 3)), Conv2D(5, 2, padding="same", activation="relu")),
            *(MaxPooling2D(3, strides=2), Conv2D(9, 1, activation="tanh")),
            *(AveragePooling2D((2, 1), strides=(1, 2)), Flatten(), Dense(4)),
        ],
        CLASSES,
        7,
    ),
    "rows": Case(
        lambda: [
            *(Input((13, 3)), Conv1D(5, 3, padding="same"), AveragePooling1D(2)),
            *(Conv1D(9, 2, strides=2, activation="relu"), GlobalMaxPooling1D(), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "curves of maps": Case(
        lambda: [
            *(Input((7, 6, 3)), Conv2D(5, 3, padding="same", activation="tanh")),
            *(MaxPooling2D(2), Dropout(0.2), Conv2D(9, 2, activation="hard_sigmoid")),
            *(Flatten(), Dense(4)),
        ],
        CLASSES,
        12,
    ),
    "words": Case(lambda: [*words(), Dense(1, "sigmoid")], BINARY, 13),
    "words and a Dense": Case(
        lambda: [*words(), Dense(7, "relu", use_bias=False), Dense(1)], BINARY, 8
    ),
    "sequences": Case(lambda: [Input((5, 4)), LSTM(9), Dense(3)], CLASSES, 8),
    "two LSTMs": Case(
        lambda: [
            *(*words()[:2], LSTM(9, return_sequences=True), Dropout(0.3), LSTM(7)),
            *(Dense(6, "relu"), Dense(1)),
        ],
        BINARY,
        13,
    ),
}


RARE = ("curves", "no biases", "means", "shared pixels", "rows", "two LSTMs", "depthwise")
"""Names of networks in `CASES` with layers that test_random_networks.py tests, too."""


def samples(layers: Sequence[Any], loss: str, count: int = SAMPLES) -> tuple[Any, Any]:
    rng = np.random.default_rng(random_seed())
    embedding = next((each for each in layers if isinstance(each, Embedding)), None)
    shape = count, *layers[0].shape
    x = rng.integers(0, embedding.input_dim, shape) if embedding else rng.normal(size=shape)
    units = layers[-1].units
    if loss == CLASSES:
        return x, rng.integers(0, units, count)
    if loss == BINARY:
        return x, rng.integers(0, 2, (count, units)).astype(float)
    return x, rng.normal(size=(count, units))


def trained(case: Case, optimizer: Optimizer, data: tuple[Any, Any], **how: Any) -> list[Any]:
    """Train for two epochs; return the losses, the bytes of the state, and predictions."""
    model = Sequential(case.layers())
    model.compile(optimizer, loss=case.loss, metrics=["accuracy"], seed=3, **how)
    kept = data[0][:9], data[1][:9]
    history = model.fit(*data, batch_size=case.batch, epochs=2, validation_data=kept, verbose=0)
    state = model.state()
    learnt = [each.tobytes() for kind in (state.masters, *state.beside) for each in kind]
    scales = state.moments.scales if state.moments else ()
    bits = state.bits, state.unit_bits, state.velocity_bits, scales
    return [history.history, learnt, bits, model.predict(data[0][:11]).tobytes()]


def turns() -> list[Any]:
    """Return pairs of a network and a momentum, each network with momentum 0 and with 0.9.

    `make test` runs at most one pair of a network, and none of `RARE`; `make test-all` runs all.
    """
    found: list[Any] = []
    for number, name in enumerate(CASES):
        both = [(name, 0.0), (name, 0.9)]
        if name in RARE:
            found += [thorough(*each) for each in both]
            continue
        found += [both[number % 2], thorough(*both[1 - number % 2])]
    return found


@pytest.mark.parametrize(("name", "momentum"), turns())
def test_bytes_of_the_golden_model(name: str, momentum: float) -> None:
    case, optimizer = CASES[name], SGD(0.2, momentum)
    data = samples(case.layers(), case.loss)
    golden, fast = (
        trained(case, optimizer, data, preset=MACHINE, backend=backend)
        for backend in ("iss", "fast")
    )
    assert golden == fast


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *(("dense", Adam(0.01)), ("squares", RMSprop(0.01, rho=0.5)), ("binary", RMSprop(0.01))),
        *(thorough(name, Adam(0.01)) for name in CASES if name != "dense"),
        *(thorough(name, RMSprop(0.01)) for name in CASES if name != "binary"),
        thorough("three", Adam(1.0, 0.5, 0.5)),
    ],
)
def test_moments_of_the_golden_model(name: str, optimizer: Optimizer) -> None:
    """Check that Adam and RMSprop learn the same bytes on the golden model and back end "fast".

    There are enough epochs for trial steps at the start, and for moments with codes that are halved
    and doubled.
    """
    case = CASES[name]
    data = samples(case.layers(), case.loss)
    golden, fast = (
        trained(case, optimizer, data, preset=MACHINE, backend=backend)
        for backend in ("iss", "fast")
    )
    assert golden == fast


@pytest.mark.parametrize(
    "layers",
    [
        [Input((300,)), Dense(5)],
        thorough([Input((3, 3, 32)), Conv2D(5, 3, padding="same"), Flatten(), Dense(5)]),
    ],
)
def test_more_rows_than_are_updated_together(layers: list[Any]) -> None:
    """Check layers that have more rows of weights than are updated together.

    A Dense multiplies and updates some rows at a time. A Conv2D makes all products first, and then
    updates some rows at a time.
    """
    case = Case(lambda: layers, CLASSES, 16)
    data = samples(layers, CLASSES, 32)
    golden, fast = (
        trained(case, Adam(), data, preset=MACHINE, backend=backend) for backend in ("iss", "fast")
    )
    assert golden == fast


@pytest.mark.parametrize(
    ("target", "weight"), [(1.0, 2.0**-30), thorough(0.0, 1.0), thorough(31.0, 2.0**30)]
)
def test_first_gradients_of_any_size(target: float, weight: float) -> None:
    """Check first gradients that are far from the expected size.

    Several trial steps then come before the first step.
    """
    x, y = np.full((8, 13), 2.0**-6), np.full((8, 3), target)
    left: list[Any] = []
    for backend in ("iss", "fast"):
        model = Sequential([Input((13,)), Dense(3)])
        model.compile(Adam(), loss="mse", preset=MACHINE, backend=backend)
        model.set_weights([np.zeros_like(each) for each in model.get_weights()])
        how: dict[str, Any] = {"sample_weight": np.full(8, weight), "verbose": 0}
        model.fit(x, y, batch_size=8, epochs=2, **how)
        state = model.state()
        assert state.moments
        learnt = [each.tobytes() for kind in (state.masters, *state.beside) for each in kind]
        left.append((learnt, state.moments.scales))
    assert left[0] == left[1]


@pytest.mark.parametrize("rate", [8.0, thorough(2.0**-20)])
def test_masters_that_grow_and_that_stay(rate: float) -> None:
    """Check learning rates that are very high or very low.

    With a high rate the masters outgrow their codes, which are then halved. With a low rate no
    master moves.
    """
    case = CASES["dense"]
    data = samples(case.layers(), case.loss)
    golden, fast = (
        trained(case, SGD(rate), data, preset=MACHINE, backend=backend)
        for backend in ("iss", "fast")
    )
    assert golden == fast


@pytest.mark.parametrize("name", ["words", thorough("pooled")])
def test_arrays_of_any_size_learn_the_same(name: str) -> None:
    """Check that arrays of several sizes learn the same bytes, without dropout.

    The batches leave blocks of samples that are not full.
    """
    case = CASES[name]
    layers = [each for each in case.layers() if not isinstance(each, Dropout)]
    plain = Case(lambda: layers, case.loss, 13)
    data = samples(layers, case.loss)
    first, *others = (
        trained(plain, SGD(0.3), data, preset=preset, backend="iss")
        for preset in ("5x5-training", "8x8-training", "16x16-training")
    )
    assert others == [first, first]


@pytest.mark.parametrize("name", ["sequences", "pooled"])
def test_rows_without_samples(name: str) -> None:
    """Check that a measurement of units leaves out the rows of a block that have no sample.

    The bias alone gives such rows larger units than any sample has.
    """
    case = CASES[name]
    layers = [each for each in case.layers() if not isinstance(each, Dropout)]
    data = np.ones((5, *layers[0].shape)), samples(layers, case.loss, 5)[1]
    left: list[tuple[tuple[int, ...], list[bytes]]] = []
    for backend in ("iss", "fast"):
        model = Sequential(layers)
        model.compile(SGD(1.0), loss=case.loss, preset=MACHINE, backend=backend, seed=3)
        weights = model.get_weights()
        kernel, bias, most = weights[0], *((2, 1.0) if name == "sequences" else (1, 16.0))
        kernel[...] = -1.5 * most / kernel[..., 0].size
        weights[bias][...] = most
        model.set_weights(weights)
        model.fit(*data, batch_size=5, verbose=0)
        state = model.state()
        left.append((state.unit_bits, [each.tobytes() for each in state.masters]))
    assert left[0] == left[1]


@pytest.mark.parametrize(
    ("name", "cores", "optimizer"),
    [
        *(("words and a Dense", 2, SGD(0.1, 0.9)), ("pooled", 3, SGD(0.1, 0.9))),
        ("squares", 3, Adam()),
        *(
            thorough(*each, SGD(0.1, 0.9))
            for each in (
                ("three", 3),
                ("sequences", 3),
                ("shared pixels", 3),
                ("two LSTMs", 2),
                ("depthwise", 3),
            )
        ),
        *(thorough(*each, Adam()) for each in (("three", 2), ("words", 3), ("pooled", 2))),
        thorough("three", 3, RMSprop()),
    ],
)
def test_a_batch_that_is_shared(name: str, cores: int, optimizer: Optimizer) -> None:
    """Check a batch that several cores share.

    A batch of 20 samples is two and a half blocks. So the cores' shares differ in size, and some
    are empty.
    """
    found = CASES[name]
    case = Case(found.layers, found.loss, 20)
    data = samples(case.layers(), case.loss)
    pod = trained(case, optimizer, data, preset=MACHINE, backend="iss", cores=cores)
    assert pod == trained(case, optimizer, data, preset=MACHINE, backend="fast")


def test_a_batch_that_fits_no_machine() -> None:
    """Check that back end "fast" trains the second tutorial's network, which fits no machine.

    The network knows 15,000 words, and takes texts of 250 words.
    """
    layers = [Input((250,)), Embedding(15000, 32), LSTM(100), Dense(1, "sigmoid")]
    model = Sequential(layers)
    model.compile(SGD(0.1), loss=BINARY, preset="base-training", backend="fast")
    x, y = samples(layers, BINARY, 64)
    # All labels are 1. So the gradient of the last bias is 0.5. At a rate of 0.1 this bias alone
    # lowers the loss by 0.1 x 0.5^2 = 0.025.
    losses = model.fit(x, np.ones_like(y), batch_size=64, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0] - 0.02


@pytest.mark.thorough
def test_steps_are_checked_on_the_rtl(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["three"]
    data = samples(case.layers(), case.loss)
    how: dict[str, Any] = {"preset": MACHINE, "backend": "fast"}
    for optimizer in (SGD(0.3), Adam()):
        checked = trained(case, optimizer, data, check_every=2, **how)
        assert checked == trained(case, optimizer, data, **how)
    learn = Step.learn

    def wrong(step: Step, found: Any) -> State:
        state = learn(step, found)
        state.masters[1][0, 0] ^= 1
        return state

    monkeypatch.setattr(Step, "learn", wrong)
    with pytest.raises(TrainingError, match="step 0: the machine has other masters"):
        trained(case, SGD(0.3), data, check_every=2, **how)


def test_what_does_not_go_together(tmp_path: Any) -> None:
    model = Sequential([Input((3,)), Dense(2)])
    with pytest.raises(TrainingError, match="check_every goes with backend='fast'"):
        model.compile(preset=MACHINE, backend="iss", check_every=2)
    model.compile(SGD(0.1, rounding="stochastic"), preset=MACHINE, backend="fast")
    with pytest.raises(TrainingError, match="back end 'fast' rounds updates to nearest"):
        model.fit(np.zeros((4, 3)), np.zeros(4), verbose=0)
    model.compile(preset=MACHINE, backend="fast")
    model.save(tmp_path / "model.tpu")
    assert load(tmp_path / "model.tpu").settings == model.settings
