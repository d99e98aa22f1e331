# SPDX-License-Identifier: Apache-2.0
"""Tests of networks with branches, which add results, join them, and add up gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.runtime import compile as compile_network
from systola.training import (
    GRU,
    LSTM,
    SGD,
    Activation,
    Adam,
    Add,
    AveragePooling2D,
    Concatenate,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling2D,
    Input,
    MaxPooling2D,
    Model,
    ReLU,
    Sequential,
    TrainingError,
    load,
)
from systola.training.branches.numbers import kept
from systola.training.fast.branches import added, scaled_away
from systola.training.functional import linked
from systola.training.optimizers import Optimizer
from systola.training.writer import HALF
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.referee import Referee

MACHINE = "8x8-training"
Layers = list[Any]


def rows(rate: float = 0.2) -> Layers:
    """Make a network in which an Add and two Dense layers take the same result.

    The sum, the samples and the result of one Dense are joined. The other Dense has no biases.
    """
    x = Input((13,))
    a = Dense(20, "relu")(x)
    added_up = Activation("relu")(Add()([a, Dense(20, use_bias=False)(a)]))
    beside = Concatenate()([added_up, x, Dense(9, "tanh")(a)])
    return linked(x, Dense(5, "softmax")(Dropout(rate)(beside)))


def maps() -> Layers:
    """Make a network that adds maps, concatenates maps, and concatenates a flat map with means."""
    x = Input((5, 4, 3))
    a = Conv2D(9, 3, padding="same", activation="relu")(x)
    b = Dropout(0.1)(ReLU()(Add()([a, Conv2D(9, 3, padding="same")(a)])))
    p = MaxPooling2D(2)(Conv2D(9, 1, activation="relu")(b))
    q = Concatenate()([p, Conv2D(5, 2, strides=2)(b)])
    means = GlobalAveragePooling2D()(Conv2D(4, 1)(q))
    flat = Concatenate()([Flatten()(Conv2D(6, (2, 1))(q)), means])
    return linked(x, Dense(4)(Dense(11, "relu")(flat)))


def dense_maps() -> Layers:
    """Make a network in which each layer adds channels to its map, and the samples come last."""
    x = Input((4, 3, 3))
    y = Conv2D(4, 1)(x)
    for _ in range(2):
        y = Concatenate()([y, Conv2D(3, 3, padding="same", activation="relu")(y)])
    return linked(x, Dense(3)(Flatten()(Concatenate()([y, x]))))


def copies() -> Layers:
    """Make a network with an Add of four tensors.

    The tensors are a result, the same result again, its Dropout, and a layer after the Dropout.
    """
    x = Input((13,))
    a = Dense(10)(x)
    dropped = Dropout(0.3)(a)
    return linked(x, Dense(4)(Add()([a, Dense(10, "relu")(dropped), dropped, a])))


def deep() -> Layers:
    """Make a network of more stages than there are registers for exponents."""
    return [Input((13,)), *(Dense(10 + n, "relu") for n in range(7)), Dense(5)]


def texts() -> Layers:
    """Make a network that joins the results of several layers on sequences."""
    x = Input((6, 3))
    a = Conv1D(5, 3, padding="same", activation="relu")(x)
    both = Concatenate()([x, a, Conv1D(4, 1)(a)])
    return linked(x, Dense(3)(Flatten()(Conv1D(6, 2, activation="tanh")(both))))


def stacked() -> Layers:
    """Make a network of three LSTMs over words.

    With Adam it has more parameter entries than the chip has room for.
    """
    first = Input((4,)), Embedding(12, 6), LSTM(6, return_sequences=True), Dropout(0.2)
    return [
        *first,
        LSTM(7, return_sequences=True),
        LSTM(5),
        Dropout(0.3),
        Dense(6, "relu"),
        Dense(3),
    ]


def after_an_lstm() -> Layers:
    """Make a network in which two layers take the state of an LSTM, one of them without biases."""
    x = Input((4, 5))
    state = LSTM(6)(x)
    both = Concatenate()([Dense(5, "relu")(state), Dense(4, use_bias=False)(state)])
    return linked(x, Dense(3)(both))


def state_joined() -> Layers:
    """Make a network that adds the state of an LSTM to a result, and joins the sum with others."""
    x = Input((4, 5))
    state = LSTM(6)(x)
    a = Dense(6, "tanh")(state)
    both = Concatenate()([ReLU()(Add()([a, state])), state, Dense(4)(a)])
    return linked(x, Dense(3)(Dropout(0.2)(both)))


CASES: dict[str, Callable[[], Layers]] = {
    each.__name__: each
    for each in (rows, maps, dense_maps, copies, deep, texts, stacked, after_an_lstm, state_joined)
}


def data(layers: Layers, count: int = 30, seed: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(random_seed() if seed is None else seed)
    x, y = rng.normal(size=(count, *layers[0].shape)), rng.integers(0, layers[-1].units, count)
    if isinstance(layers[1], Embedding):
        x = rng.integers(0, layers[1].input_dim, x.shape)
    return x, y


def trained(layers: Layers, optimizer: Optimizer, batch: int = 12, **how: Any) -> list[Any]:
    """Train for two epochs; return the losses, the bytes of the state, and predictions."""
    model, (x, y) = Sequential(layers), data(layers)
    model.compile(optimizer, metrics=["accuracy"], seed=3, **{"preset": MACHINE} | how)
    kept_back: dict[str, Any] = {"validation_data": (x[:9], y[:9]), "verbose": 0}
    history = model.fit(x, y, batch_size=batch, epochs=2, **kept_back)
    state = model.state()
    kinds = state.masters, *state.beside, state.statistics
    learnt = [each.tobytes() for kind in kinds for each in kind]
    scales = state.moments.scales if state.moments else ()
    return [history.history, learnt, (state.bits, state.unit_bits, scales), model.predict(x[:11])]


def same(a: list[Any], b: list[Any]) -> bool:
    return a[:3] == b[:3] and a[3].tobytes() == b[3].tobytes()


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *(("rows", SGD(0.5)), ("texts", SGD(0.2, 0.9)), ("copies", Adam(0.01))),
        *(("deep", SGD(0.5)), ("stacked", Adam(0.01)), ("after_an_lstm", SGD(0.2, 0.9))),
        thorough("maps", SGD(0.5)),
        *(thorough(name, Adam(0.01)) for name in CASES if name not in ("copies", "stacked")),
        *(
            thorough(name, SGD(0.2, 0.9))
            for name in CASES
            if name not in ("texts", "after_an_lstm")
        ),
    ],
)
def test_bytes_of_the_golden_model(name: str, optimizer: Optimizer) -> None:
    layers = CASES[name]()
    golden, fast = (trained(layers, optimizer, backend=backend) for backend in ("iss", "fast"))
    assert same(golden, fast)


@pytest.mark.parametrize(
    ("cores", "preset"), [(1, "16x16-training"), thorough(3, MACHINE), thorough(2, "5x5-training")]
)
def test_any_number_of_cores_and_columns(cores: int, preset: str) -> None:
    layers, optimizer = rows(0.0), SGD(0.3, 0.9)
    one = trained(layers, optimizer, backend="fast")
    assert same(one, trained(layers, optimizer, backend="iss", cores=cores, preset=preset))


@pytest.mark.thorough
def test_the_rtl_learns_the_same() -> None:
    """Check that the RTL and back end "fast" learn the same bytes in a network with branches.

    Branches need a Vector that rounds halves away from zero with a shift from a register.
    """
    x = Input((5,))
    a = Dense(6, "relu")(x)
    layers = linked(x, Dense(2)(Concatenate()([Add()([a, Dense(6)(a)]), x])))
    samples, labels = data(layers, 8)
    learnt: list[Any] = []
    for backend in ("rtl", "fast"):
        model = Sequential(layers)
        model.compile(SGD(0.5), preset=MACHINE, backend=backend)
        loss = model.train_on_batch(samples, labels)
        learnt.append((loss, [each.tobytes() for each in model.state().masters]))
    assert learnt[0] == learnt[1]


def test_gradients_beside_float64() -> None:
    """Check that a step moves each weight by its gradient, with the precision of eight bits.

    The exact gradient is tested with differences of the loss in float64. A ReLU near zero may pass
    in only one of the two computations, so the samples are always the same.
    """
    layers, rate = rows(0.0), 2.0**-4
    x, y = data(layers, 60, seed=1)
    x = np.round(x * 32) / 32
    model = Sequential(layers)
    model.compile(SGD(rate), preset=MACHINE, backend="fast")
    before: Any = [np.asarray(each, np.float64) for each in model.get_weights()]
    targets = np.eye(5)[y]
    referee: Any = Referee(model.stages(), before, SGD(rate))
    model.train_on_batch(x, y)
    referee.weights = [each.copy() for each in before]
    referee.velocities = [np.zeros_like(each) for each in before]
    referee.step(x, targets, 60)
    exact = [each.copy() for each in referee.weights]
    rng = np.random.default_rng(1)
    for number, (start, after) in enumerate(zip(before, model.get_weights(), strict=True)):
        moved = (exact[number] - start) / -rate
        for _ in range(5):
            place = tuple(int(rng.integers(0, size)) for size in start.shape)
            losses: list[float] = []
            for step in (1e-5, -1e-5):
                referee.weights = [each.copy() for each in before]
                referee.weights[number][place] += step
                losses.append(referee.evaluate(x, targets)[0])
            slope = (losses[0] - losses[1]) / 2e-5
            assert moved[place] == pytest.approx(slope, rel=1e-4, abs=1e-7)
        wanted, found = exact[number] - start, after - start
        assert np.linalg.norm(found - wanted) < 0.12 * np.linalg.norm(wanted)


def test_gradients_of_three_lstms() -> None:
    """Check one step of three LSTMs in succession against a step in float32.

    Each LSTM has an exponent of its own through time.
    """
    sizes = [LSTM(8, return_sequences=True), LSTM(8, return_sequences=True), LSTM(8)]
    layers: Layers = [Input((6, 5)), *sizes, Dense(3)]
    x, y = data(layers, 64, seed=1)
    x = np.round(x * 16) / 16
    model = Sequential(layers)
    model.compile(SGD(2.0), preset=MACHINE, backend="fast")
    before = model.get_weights()
    start = [each.copy() for each in before]
    referee = Referee(model.stages(), start, SGD(2.0))
    model.train_on_batch(x, y)
    referee.step(x.astype(np.float32), np.eye(3, dtype=np.float32)[y], 64)
    for old, found, exact in zip(before, model.get_weights(), referee.weights, strict=True):
        wanted = exact - old
        assert np.linalg.norm(found - old - wanted) < 0.15 * np.linalg.norm(wanted)


def test_sums_have_no_drift() -> None:
    """Check that sums that end in a half are rounded up as often as down.

    Many sums end in a half.
    """
    total, _ = added([(np.arange(-100, 101, dtype=np.int8), 3), (np.ones(201, np.int8), 3)])
    codes = total - np.int16(64)
    for shift in (5, 6, 9):
        found = scaled_away(codes, HALF, shift)
        assert np.array_equal(found, -found[::-1])
        assert np.abs(found - codes / 2.0 ** (shift + 1)).max() <= 0.5


def test_exponents_at_the_ends() -> None:
    """Check that a sum has the exponent of the tensor with the fewest fraction bits.

    An exponent that is kept in a register is limited at both ends of its range.
    """
    codes = np.array([127, -128, 1, -1], np.int8)
    for count in (1, 2, 4, 5):
        total, bits = added([(codes, 3 + n * 9) for n in range(count)])
        exact = sum(codes.astype(float) / 2.0 ** (3 + n * 9) for n in range(count))
        assert np.abs(total / 2.0**bits - exact).max() <= (count - 1) * 0.5 / 2.0**bits
    assert [kept(bits) for bits in (-127, -15, 6, 60, 61, 127)] == [-15, -15, 6, 60, 60, 60]
    assert np.array_equal(added([(codes, 6)] * 4)[0], 256 * codes.astype(int))


def test_there_and_back(tmp_path: Path) -> None:
    """Check that a network learns the same bytes if it is saved and loaded between epochs."""
    x, y = data(rows())
    steps: list[Any] = []
    for again in (False, True):
        model: Any = Model(*ends())
        model.compile(Adam(0.01), preset=MACHINE, backend="fast")
        model.fit(x, y, batch_size=10, verbose=0)
        if again:
            model.save(tmp_path / "model.tpu")
            model = load(tmp_path / "model.tpu")
        model.fit(x, y, batch_size=10, epochs=1, verbose=0)
        weights = model.get_weights()
        model.set_weights(weights)
        steps.append([each.tobytes() for each in weights])
    assert steps[0] == steps[1]


def ends() -> tuple[Any, Any]:
    x = Input((13,), name="given")
    a = Dense(6, "relu", name="first")(x)
    return [x], [Dense(5)(Concatenate(name="both")([a, Dense(4)(x)]))]


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("rows", "small"),
        ("deep", "base"),
        *(thorough(n, "base") for n in ("maps", "dense_maps", "texts")),
    ],
)
def test_compiled_for_any_machine(name: str, preset: str, tmp_path: Path) -> None:
    layers = CASES[name]()
    # with a softmax, the host would compute results in float32
    layers[-1] = replace(layers[-1], activation=None)
    model, (x, y) = Sequential(layers), data(layers)
    model.compile(SGD(0.2), preset=MACHINE, backend="fast")
    model.fit(x, y, batch_size=10, verbose=0)
    model.save(tmp_path / "m.tpu")
    found = compile_network(tmp_path / "m.tpu", preset=preset, batch=7).run(x, backend="iss").y
    assert np.array_equal(found, model.predict(x))


def test_summary() -> None:
    lines: list[str] = []
    model = Model(*ends(), name="two")
    model.summary(print_fn=lines.append)
    text = "".join(lines)
    for part in ('"two"', "first (Dense)", "both (Concatenate)", "(None, 10)", " 195 ("):
        assert part in text
    assert model.count_params() == 84 + 56 + 55


def _twice() -> Any:
    x, layer = Input((4,)), Dense(4)
    return Model(x, Dense(2)(Add()([layer(x), layer(Dense(4)(x))])))


def _other_input() -> Any:
    return Model(Input((4,)), Dense(2)(Input((4,))))


def _both_ways() -> Any:
    x = Input((4, 4, 2))
    both = Concatenate()([Flatten()(Conv2D(3, 1)(x)), Dense(3)(Flatten()(x))])
    return Model(x, Dense(2)(both)).stages()


def _steps_twice() -> Any:
    x = Input((3, 4))
    return Model(x, Dense(2)(Concatenate()([GRU(3)(x), Dense(3)(Flatten()(x))]))).stages()


def _states_twice() -> Any:
    x = Input((3, 4))
    states = LSTM(5, return_sequences=True)(x)
    return Model(x, Dense(2)(Concatenate()([LSTM(5)(states), Flatten()(states)]))).stages()


def _of(*layers: Callable[[Any], Any]) -> Any:
    x = Input((4, 4, 2))
    a = Conv2D(3, 1)(x)
    y = Concatenate()([a, Conv2D(3, 1)(a)])
    for layer in layers:
        y = layer(y)
    return Model(x, Dense(2)(Flatten()(y))).stages()


def _pooled() -> Any:
    x = Input((4, 4, 2))
    a = Conv2D(3, 1)(x)
    both = Concatenate()([Flatten()(a), Flatten()(AveragePooling2D()(a))])
    return Model(x, Dense(2)(both)).stages()


def _parts() -> Any:
    x = Input((4,))
    both = Concatenate()([Dense(2)(x), Dense(2)(x)])
    return Model(x, Dense(2)(Add()([both, Dense(4)(x)]))).stages()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Dense(3)(5), "Dense takes results of layers, or an Input, not 5"),
        (lambda: Dense(3)([Input((3,))] * 2), "Dense takes one result, not 2"),
        (lambda: Add()(Input((3,))), "Add takes at least two results, in a list, not 1"),
        (lambda: Input((3,))(Input((3,))), "the next one takes it"),
        (lambda: Add(sources=(0, 7)), None),
        (lambda: Sequential([Input((3,)), Add(), Dense(2)]).stages(), "Model is for branches"),
        (
            lambda: Sequential([Input((3,)), Dense(3), Add(sources=(0, 9)), Dense(2)]).stages(),
            "there is no layer 9",
        ),
        (lambda: Concatenate(axis=1)([(x := Input((2, 2, 1))), x]), None),
        (lambda: Concatenate(True), "axis must be -1"),
        (lambda: Model(Input((3,)), Input((3,))), "outputs must be the result of a layer"),
        (lambda: Model(3, Dense(2)(Input((3,)))), "inputs must be an Input"),
        (lambda: Model([Input((3,))] * 2, Dense(2)(Input((3,)))), "put all columns into one"),
        (lambda: Model(Input((3,)), {"a": 1}), "not a dictionary"),
        (_twice, "a layer is used twice"),
        (_other_input, "outputs come from another Input"),
        (_both_ways, "not both: take a Conv2D of size 1 first"),
        (_steps_twice, "other layers can take its last state"),
        (_states_twice, "other layers can take its last state"),
        (lambda: _of(DepthwiseConv2D(2)), "take a Conv2D of size 1 between them"),
        (lambda: _of(MaxPooling2D(2)), "take one of size 1 before it"),
        (lambda: _of(Activation("tanh")), "relu can, or a Dense between them"),
        (_pooled, "take one of size 1 before it"),
        (_parts, "so take a Dense or Conv2D between them"),
    ],
)
def test_mistakes_are_one_clear_line(call: Callable[[], Any], says: str | None) -> None:
    if says is None:
        call()
        return
    with pytest.raises(TrainingError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
