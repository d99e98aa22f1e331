# SPDX-License-Identifier: Apache-2.0
"""Tests of GRUs: bytes of all back ends, gradients, losses, Keras's weights, wrong arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.runtime import compile as compile_model
from systola.training import (
    GRU,
    LSTM,
    SGD,
    Adam,
    Dense,
    Dropout,
    Embedding,
    Input,
    Sequential,
    TrainingError,
    from_keras,
    load,
    to_keras,
)
from systola.training.optimizers import Optimizer
from systola.training.state import glorot, weights
from systola.verif.compiler.onnx_session import run_samples
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.training.referee import Referee
from systola.verif.training.test_fast import BINARY, CLASSES, Case, samples, trained
from systola.verif.training.test_keras import Sequential as KerasSequential
from systola.verif.training.test_keras import dense, layer, sigmoid, tanh
from systola.verif.training.test_training import compiled

WORDS = Input((6,)), Embedding(20, 10)
ALL = GRU(9, return_sequences=True)
CASES = {
    "numbers": Case(lambda: [Input((5, 4)), GRU(9), Dense(3)], CLASSES, 8),
    "words": Case(lambda: [*WORDS, GRU(12), Dropout(0.2), Dense(1, "sigmoid")], BINARY, 13),
    "no biases": Case(lambda: [Input((5, 4)), GRU(9, use_bias=False), Dense(3)], CLASSES, 8),
    "two": Case(
        lambda: [*WORDS, ALL, Dropout(0.3), GRU(7), Dense(6, "relu"), Dense(1)], BINARY, 13
    ),
    "with LSTM": Case(lambda: [*WORDS, ALL, LSTM(7), Dense(1)], BINARY, 13),
    "three": Case(
        lambda: [*WORDS, ALL, Dropout(0.3), LSTM(7, return_sequences=True), GRU(5), Dense(1)],
        BINARY,
        13,
    ),
}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *(("two", Adam(0.01)), ("no biases", SGD(0.2, 0.9))),
        thorough("words", SGD(0.2, 0.9)),
        thorough("three", SGD(0.2, 0.9)),
        *(thorough(name, Adam(0.01)) for name in CASES if name != "two"),
    ],
)
def test_bytes_of_the_golden_model(name: str, optimizer: Optimizer) -> None:
    case = CASES[name]
    data = samples(case.layers(), case.loss)
    golden, fast = (
        trained(case, optimizer, data, preset="8x8-training", backend=backend)
        for backend in ("iss", "fast")
    )
    assert golden == fast


@pytest.mark.parametrize(
    ("name", "lines", "accumulators", "cores"),
    [
        thorough("words", 700, 256, 1),
        thorough("two", 900, 256, 2),
        thorough("two", 1024, 24, 1),
        thorough("three", 900, 256, 3),
    ],
)
def test_turns_and_cores(name: str, lines: int, accumulators: int, cores: int) -> None:
    """Check a GRU on machines with little room, and on several cores.

    A machine with little room takes a batch in turns, that is in parts, and the cores share it.
    """
    case = CASES[name]
    layers = [each for each in case.layers() if not isinstance(each, Dropout)]
    case = Case(lambda: layers, case.loss, 26)
    data = samples(layers, case.loss)
    machine = preset("4x4-training")
    machine = replace(machine, buffer_lines=lines, accumulator_rows=accumulators)
    expected = trained(case, Adam(0.01), data, preset="8x8-training", backend="fast")
    found = trained(case, Adam(0.01), data, preset=machine, backend="iss", cores=cores)
    assert found == expected


def test_a_step_on_the_rtl() -> None:
    layers = [Input((2, 3)), GRU(3), Dense(2)]
    x, y = samples(layers, CLASSES, 4)
    learnt: list[Any] = []
    for backend in ("rtl", "fast"):
        model = Sequential(layers)
        model.compile(SGD(0.5), loss=CLASSES, preset="small-training", backend=backend, seed=1)
        loss = model.train_on_batch(x, y)
        learnt.append((loss, [each.tobytes() for each in model.state().masters]))
    assert learnt[0] == learnt[1]


def given_weights(model: Sequential, seed: int, size: float = 0.8) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    shapes = [each.shape for each in model.get_weights()]
    return [rng.uniform(-size, size, shape).astype(np.float32) for shape in shapes]


def test_predictions_are_those_of_onnx_runtime() -> None:
    """Check the predictions of a GRU against ONNX Runtime.

    Keras's reset_after is linear_before_reset in ONNX, with weights in the same order.
    """
    steps, inputs, units, seed = 7, 4, 9, random_seed()
    model = compiled([Input((steps, inputs)), GRU(units), Dense(3)], loss=CLASSES, seed=1)
    given = given_weights(model, seed)
    model.set_weights(given)
    kernel, recurrent, biases, last, bias = given
    x = np.random.default_rng(seed).uniform(-1, 1, (5, steps, inputs)).astype(np.float32)
    x = np.round(x * 64) / 64
    arrays = {"w": kernel.T[np.newaxis], "r": recurrent.T[np.newaxis], "b": biases.reshape(1, -1)}
    arrays |= {"last": last, "bias": bias}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node(
            *("GRU", ["t", "w", "r", "b"], ["", "h"]), hidden_size=units, linear_before_reset=1
        ),
        helper.make_node("Squeeze", ["h", "axes"], ["s"]),
        helper.make_node("Gemm", ["s", "last", "bias"], ["y"]),
    ]
    held = [onnx.numpy_helper.from_array(each, name) for name, each in arrays.items()]
    held.append(onnx.numpy_helper.from_array(np.array([0], np.int64), "axes"))
    graph = helper.make_graph(
        *(nodes, "gru"),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, steps, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        held,
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (expected,) = run_samples(content.SerializeToString(), [x[:, np.newaxis]], optimised=False)
    assert np.abs(model.predict(x) - expected[:, 0]).max() < 0.05


def test_gradients_beside_float64() -> None:
    """Check that a training step moves each weight by its gradient, as exactly as eight bits allow.

    The expected gradient, in float64, is itself compared to differences of the loss.
    """
    # At a smaller rate a master would move by few of its last places, and its rounding would be the
    # largest error.
    layers, rate = [Input((5, 4)), GRU(9), Dense(3)], 2.0
    model = Sequential(layers)
    model.compile(SGD(rate), loss=CLASSES, preset="8x8-training", backend="fast")
    model.set_weights(given_weights(model, 1, 0.5))
    x, y = samples(layers, CLASSES, 40)
    x = np.round(x * 32) / 32
    before: Any = [np.asarray(each, np.float64) for each in model.get_weights()]
    referee: Any = Referee(model.stages(), before, SGD(rate))
    rows, targets = x.reshape(40, -1), np.eye(3)[y]
    model.train_on_batch(x, y)
    referee.weights = [each.copy() for each in before]
    referee.velocities = [np.zeros_like(each) for each in before]
    referee.step(rows, targets, 40)
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
                losses.append(referee.evaluate(rows, targets)[0])
            slope = (losses[0] - losses[1]) / 2e-5
            assert moved[place] == pytest.approx(slope, rel=1e-4, abs=1e-7)
        wanted, found = exact[number] - start, after - start
        bound = 0.12 * np.linalg.norm(wanted)
        if wanted.shape == (3,):
            # The errors of samples may cancel in the last bias. An error is rounded to a multiple
            # of at most 2^-7, so the mean of all errors is wrong by at most 2^-8.
            bound += rate * 2.0**-8 * np.sqrt(3)
        assert np.linalg.norm(found - wanted) < bound


@pytest.mark.parametrize("name", [thorough("words"), thorough("two")])
def test_losses_are_those_of_float32(name: str, data_set: int) -> None:
    """Check that a GRU learns as fast as in float32 to find texts with more than two good words."""
    layers, rng = CASES[name].layers(), np.random.default_rng(data_set)
    x = rng.integers(0, 20, (96, 6))
    y = (x < 10).sum(axis=1) > 2
    model = compiled(layers, SGD(0.3, 0.9), loss=BINARY, seed=data_set)
    history = model.fit(x, y, epochs=4, batch_size=16, verbose=0, validation_data=(x, y)).history
    found = model.stages()
    start = weights(found, glorot(found, data_set))
    referee = Referee(found, start, SGD(0.3, 0.9), loss=BINARY, seed=data_set, size=8)
    targets = y.astype(np.float32)[:, np.newaxis]
    for epoch in range(4):
        expected, _ = referee.epoch(x, targets, 16)
        assert history["loss"][epoch] == pytest.approx(expected, rel=0.05)
        expected, _ = referee.evaluate(x, targets)
        assert history["val_loss"][epoch] == pytest.approx(expected, rel=0.05)


def keras_gru(**about: Any) -> Any:
    usual = {
        **{"units": 5, "activation": tanh, "recurrent_activation": sigmoid, "use_bias": True},
        **{"return_sequences": False, "return_state": False, "go_backwards": False},
        **{"stateful": False, "dropout": 0.0, "recurrent_dropout": 0.0, "reset_after": True},
    }
    return layer("GRU", **usual | about)


def test_weights_go_both_ways_and_into_files(tmp_path: Path) -> None:
    first = keras_gru(units=4, return_sequences=True)
    given = KerasSequential(first, keras_gru(use_bias=False), dense(1, sigmoid), shape=(None, 6, 3))
    rng = np.random.default_rng(3)
    shapes = (3, 12), (4, 12), (2, 12), (4, 15), (5, 15), (5, 1), (1,)
    given.weights = [rng.normal(0, 0.2, shape) for shape in shapes]
    before = given.get_weights()
    model = from_keras(given)
    assert model.layers[1:3] == [GRU(4, return_sequences=True), GRU(5, use_bias=False)]
    for found, expected in zip(model.get_weights(), before, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2.0**-10
    model.compile(Adam(0.01), BINARY, preset="8x8-training", backend="fast")
    x, y = rng.normal(size=(16, 6, 3)), rng.integers(0, 2, 16)
    model.fit(x, y, verbose=0, batch_size=8)
    to_keras(model, given)
    for name in ("w.npz", "m.tpu"):
        path = tmp_path / name
        if name == "w.npz":
            model.save_weights(path)
            again = from_keras(given)
            again.compile(Adam(0.01), BINARY, preset="8x8-training", backend="fast")
            again.load_weights(path)
        else:
            model.save(path)
            again = load(path)
            assert np.array_equal(again.predict(x), model.predict(x))
        for found, expected in zip(again.get_weights(), given.get_weights(), strict=True):
            assert np.array_equal(found, expected)
    with pytest.raises(ModelError, match="it has a GRU, which only predict"):
        compile_model(tmp_path / "m.tpu", preset="small")


X, Y = np.zeros((4, 6)), np.zeros(4, int)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: GRU(0), "units of GRU must be a whole number from 1 to 512, not 0"),
        (lambda: GRU(3, reset_after=False), r"does not take reset_after=False: Keras's default"),
        (lambda: GRU(3, activation="relu"), "a GRU has tanh"),
        (lambda: GRU(3, unit_forget_bias=True), "unit_forget_bias"),
        (lambda: from_keras(KerasSequential(keras_gru(reset_after=False))), "only True"),
        (lambda: compiled([Dense(3), GRU(3), Dense(2)]).fit(X, Y), "GRU must be the first layer"),
        (lambda: compiled([*WORDS, ALL]).fit(X, Y), "there must be LSTM or GRU"),
    ],
)
def test_mistakes_are_one_clear_line(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)
