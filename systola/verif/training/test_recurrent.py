# SPDX-License-Identifier: Apache-2.0
"""Tests of Embedding and LSTM: gradients and losses against float32, words, wrong arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.training import (
    LSTM,
    SGD,
    Activation,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    Sequential,
    TrainingError,
    load,
)
from systola.training.layers import Layer
from systola.training.state import glorot, weights
from systola.verif.plan.selection import thorough
from systola.verif.training.data import Samples, digits, reviews
from systola.verif.training.referee import Referee
from systola.verif.training.test_training import compiled

VOCABULARY, WORDS = 30, 7
BINARY = "binary_crossentropy"
NETWORKS: dict[str, list[Layer]] = {
    "words": [Input((WORDS,)), Embedding(VOCABULARY, 10), LSTM(12), Dense(1)],
    "rows": [Input((8, 8)), LSTM(20), Dense(10)],
    "deep": [
        *(Input((WORDS,)), Embedding(VOCABULARY, 17), LSTM(9), Dropout(0.2)),
        *(Dense(12, "relu"), Dense(1)),
    ],
    "two": [
        *(Input((WORDS,)), Embedding(VOCABULARY, 10), LSTM(17, return_sequences=True)),
        *(Dropout(0.2), LSTM(9), Dense(1)),
    ],
}


def samples(name: str, count: int, seed: int) -> tuple[Samples, NDArray[np.float32], str]:
    """Return samples for a network, their targets in float32, and the name of the loss."""
    if name == "rows":
        (x, y), _ = digits()
        x, y = x[:count].reshape(-1, 8, 8), y[:count]
        return (x, y), np.eye(10, dtype=np.float32)[y], "sparse_categorical_crossentropy"
    x, y = reviews(count, words=WORDS, vocabulary=VOCABULARY, seed=seed)
    return (x, y), y.astype(np.float32)[:, np.newaxis], BINARY


def referee(model: Sequential, optimizer: SGD, loss: str, seed: int) -> Referee:
    found = model.stages()
    start = weights(found, glorot(found, seed))
    return Referee(found, start, optimizer, loss=loss, seed=seed, size=8)


def gates(each: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Return arrays of weights, with the weights of an LSTM split into its four gates."""
    parts = [np.split(w, 4, axis=-1) if w.shape[-1] % 4 == 0 else [w] for w in each]
    return [part for whole in parts for part in whole]


@pytest.mark.parametrize(
    ("name", "most"),
    [("words", 0.4), thorough("rows", 0.1), thorough("deep", 0.6), ("two", 0.3)],
)
def test_steps_move_weights_as_in_float32(name: str, most: float, data_set: int) -> None:
    """Check that a step moves weights as in float32, gate by gate.

    The errors of several networks, with other weights and samples, are added up. With a ReLU the
    bound is wide, as rounding decides whether a unit close to zero has a gradient.
    """
    # In the first of two LSTMs, most gradients are below the last place of a weight.
    optimizer = SGD(8.0 if name == "two" else 2.0)
    errors: list[list[float]] = []
    sizes: list[list[float]] = []
    for seed in range(6 * data_set, 6 * data_set + 6):
        (x, y), targets, loss = samples(name, 24, seed)
        model = compiled(NETWORKS[name], optimizer, loss=loss, seed=seed)
        against = referee(model, optimizer, loss, seed)
        # Large weights make large cell states, so that the gradients of the forget gates are large,
        # too.
        for place in (0, 4) if name == "two" else (0,):
            against.weights[place] *= np.float32(4)
        model.set_weights(against.weights)
        before = [each.copy() for each in against.weights]
        model.fit(x, y, batch_size=24, verbose=0, shuffle=False)
        against.epoch(x.reshape(24, -1), targets, 24, shuffle=False)
        after = weights(model.stages(), model.state())
        triples = list(zip(*map(gates, (before, after, against.weights)), strict=True))
        errors.append([float(((found - wanted) ** 2).sum()) for _, found, wanted in triples])
        sizes.append([float(((wanted - old) ** 2).sum()) for old, _, wanted in triples])
    for error, size in zip(np.sum(errors, axis=0), np.sum(sizes, axis=0), strict=True):
        assert error < most**2 * size


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("words", SGD(0.1, 0.9)),
        thorough("rows", SGD(0.3)),
        thorough("rows", SGD(0.05, 0.9)),
        thorough("deep", SGD(0.1, 0.9)),
        thorough("two", SGD(0.1, 0.9)),
    ],
)
def test_losses_are_those_of_float32(name: str, optimizer: SGD, data_set: int) -> None:
    (x, y), targets, loss = samples(name, 96, data_set)
    model = compiled(NETWORKS[name], optimizer, loss=loss, seed=data_set)
    history = model.fit(x, y, epochs=2, batch_size=16, verbose=0, validation_data=(x, y)).history
    against = referee(model, optimizer, loss, data_set)
    rows = x.reshape(len(x), -1)
    for epoch in range(2):
        expected, _ = against.epoch(rows, targets, 16)
        assert history["loss"][epoch] == pytest.approx(expected, rel=0.05)
        expected, _ = against.evaluate(rows, targets)
        assert history["val_loss"][epoch] == pytest.approx(expected, rel=0.05)


def test_every_preset_has_the_same_numbers_and_goes_on(tmp_path: Path) -> None:
    layers = [layer for layer in NETWORKS["deep"] if not isinstance(layer, Dropout)]
    x, y = reviews(32, words=WORDS, vocabulary=VOCABULARY, seed=3)
    masters: list[Any] = []
    for preset in ("8x8-training", "base-training"):
        model = compiled(layers, SGD(0.2, 0.9), loss=BINARY, preset=preset)
        model.fit(x, y, batch_size=16, verbose=0)
        model.save(tmp_path / "m")
        again = load(tmp_path / "m")
        assert np.array_equal(again.predict(x), model.predict(x))
        for each in (model, again):
            each.fit(x, y, epochs=2, initial_epoch=1, batch_size=16, verbose=0)
        masters += [model.state().masters, again.state().masters]
    for found in masters[1:]:
        assert all(np.array_equal(*pair) for pair in zip(found, masters[0], strict=True))


def test_predictions_are_those_of_the_equations(data_set: int) -> None:
    """Check predictions with given weights against the equations of the LSTM.

    The texts have many words or none, and are predicted one at a time and together.
    """
    rng = np.random.default_rng(data_set)
    model = compiled(NETWORKS["words"], loss=BINARY)
    shapes = [each.shape for each in model.get_weights()]
    given = [rng.uniform(-0.8, 0.8, shape).astype(np.float32) for shape in shapes]
    model.set_weights(given)
    for found, expected in zip(model.get_weights(), given, strict=True):
        assert np.abs(found - expected).max() < 2.0**-10
    x, _ = reviews(20, words=WORDS, vocabulary=VOCABULARY, seed=1)
    logits = model.predict(x)
    embeddings, kernel, recurrent, biases, last, bias = given
    state = cell = np.zeros((20, 12))
    for step in range(WORDS):
        z = embeddings[x[:, step].astype(int)] @ kernel + state @ recurrent + biases
        i, f, g, o = np.split(z, 4, axis=1)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        state = np.tanh(cell) / (1 + np.exp(-o))
    assert np.abs(logits - (state @ last + bias)).max() < 0.05


X, Y = np.zeros((4, WORDS)), np.zeros(4, int)
WORD, END = Embedding(VOCABULARY, 4), Dense(2)
ALL = LSTM(3, return_sequences=True)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: LSTM(0), "units of LSTM must be a whole number from 1 to 512, not 0"),
        (lambda: Embedding(0, 3), "input_dim of Embedding must be"),
        (lambda: Embedding(3, -1), "output_dim of Embedding must be"),
        (lambda: compiled([WORD, END]).fit(X, Y), "after Embedding there must be LSTM"),
        (lambda: compiled([WORD]).fit(X, Y), "after Embedding there must be LSTM"),
        (lambda: compiled([LSTM(3), END]).fit(X, Y), "LSTM must be the first layer"),
        (lambda: compiled([WORD, LSTM(3), LSTM(3), END]).fit(X, Y), "must be the first layer"),
        (lambda: compiled([WORD, ALL, END]).fit(X, Y), "there must be LSTM or GRU, not Dense"),
        (lambda: compiled([WORD, ALL]).fit(X, Y), "return_sequences there must be LSTM"),
        (lambda: LSTM(3, return_sequences=2), "return_sequences must be"),
        (lambda: compiled([END, WORD, LSTM(3), END]).fit(X, Y), "Embedding must be the first"),
        (lambda: compiled([WORD, LSTM(3)]).fit(X, Y), "the last layer must be a Dense"),
        (lambda: compiled([WORD, LSTM(3), Activation("relu"), END]).fit(X, Y), "right after a"),
        (lambda: compiled([WORD, LSTM(3), Conv2D(3, 3), Flatten(), END]).fit(X, Y), "Conv2D takes"),
        (lambda: compiled([WORD, LSTM(3), *15 * [END]]).fit(X, Y), "1 to 15 layers"),
        (lambda: compiled([WORD, LSTM(3), END]).fit(X + 30, Y), "x has word 30, not a whole"),
        (lambda: compiled([WORD, LSTM(3), END]).fit(X + 0.5, Y), "x has word 0.5, not a whole"),
        (lambda: compiled([WORD, LSTM(3), END]).fit(X - 1, Y), "x has word -1, not a whole"),
        (lambda: compiled([WORD, LSTM(500), END]).fit(X, Y), "has no room"),
    ],
)
def test_mistakes_are_one_clear_line(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)
