# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions and poolings: gradients and losses against float32, and wrong arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import (
    SGD,
    Activation,
    AveragePooling2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAveragePooling2D,
    GlobalMaxPooling2D,
    Input,
    MaxPooling2D,
    TrainingError,
    load,
)
from systola.training.layers import Layer
from systola.training.state import weights
from systola.verif.plan.selection import thorough
from systola.verif.training.data import images
from systola.verif.training.test_training import compiled, one_hot, referee

BASE = {"preset": "base-training"}
NETWORKS: dict[str, list[Layer]] = {
    "valid": [Conv2D(8, 3, activation="relu"), Flatten(), Dense(10)],
    "wide": [Conv2D(20, (1, 4), (1, 2), "same"), Dropout(0.2), Flatten(), Dense(10)],
    "pool": [
        *(Conv2D(9, 3, padding="same", activation="relu"), MaxPooling2D((3, 2))),
        *(Flatten(), Dense(12, "relu"), Dense(10)),
    ],
    "means": [
        *(Conv2D(9, 3, padding="same", activation="relu"), AveragePooling2D(2), Dropout(0.1)),
        *(Conv2D(16, 3, activation="relu"), GlobalAveragePooling2D(), Dense(10)),
    ],
    "depthwise": [
        *(Conv2D(9, 1, activation="relu"), DepthwiseConv2D(3, 2, "same", activation="relu")),
        *(DepthwiseConv2D((2, 3), activation="tanh"), Flatten(), Dense(10)),
    ],
    "largest of all": [
        *(Conv2D(16, 3, 2, activation="relu"), GlobalMaxPooling2D(), Dense(10)),
    ],
    "deep": [
        *(Conv2D(9, 3, padding="same"), Activation("relu")),
        *(Conv2D(17, (3, 2), 2, "same", "relu"), MaxPooling2D(2), Dropout(0.1)),
        *(Conv2D(12, 2, activation="relu"), Flatten(), Dense(10)),
    ],
}
FARTHEST = {"depthwise": 0.3}
"""Largest differences from float32, as a share of a step, of networks that differ more than others.

In one data set a depthwise bias moves by 0.71 of its float32 step.
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_move_weights_as_in_float32(name: str, data_set: int) -> None:
    """Check that the steps of several networks, taken together, move weights as in float32.

    A single network may differ more: much depends on which of two nearly equal pixels is larger.
    """
    (x, y), _ = images()
    count = 15
    sums = []
    for seed in range(6 * data_set, 6 * data_set + 6):
        network = [Input((8, 8, 1)), *NETWORKS[name]]
        model = compiled(network, SGD(0.1), seed=seed, backend="fast", **BASE)
        against = referee(model, 64, SGD(0.1), seed=seed, size=16)
        before = [each.copy() for each in against.weights]
        some = slice(seed % 40 * count, (seed % 40 + 1) * count)
        model.fit(x[some], y[some], batch_size=count, verbose=0, shuffle=False)
        against.epoch(x[some], one_hot(y[some], 10), count, shuffle=False)
        after = zip(before, weights(model.stages(), model.state()), against.weights, strict=True)
        moves = [(found - old, expected - old) for old, found, expected in after]
        sums.append([(((f - w) ** 2).sum(), np.vdot(f, w), np.vdot(w, w)) for f, w in moves])
    for error, along, wanted in np.sum(sums, axis=0):
        assert error < 0.7**2 * wanted
        assert along == pytest.approx(wanted, rel=FARTHEST.get(name, 0.25))


@pytest.mark.parametrize(
    "name",
    ["pool", "means", *map(thorough, ("largest of all", "valid", "wide", "deep", "depthwise"))],
)
def test_losses_are_those_of_float32(name: str, data_set: int) -> None:
    (x, y), (x_test, y_test) = images()
    x, y = x[:128], y[:128]
    network = [Input((8, 8, 1)), *NETWORKS[name]]
    model = compiled(network, SGD(0.03, 0.5), seed=data_set, backend="fast", **BASE)
    test = x_test[:60], y_test[:60]
    how: dict[str, Any] = {"epochs": 2, "batch_size": 16, "verbose": 0, "validation_data": test}
    history = model.fit(x, y, **how).history
    against = referee(model, 64, SGD(0.03, 0.5), seed=data_set, size=16)
    for epoch in range(2):
        loss, accuracy = against.epoch(x, one_hot(y, 10), 16)
        assert history["loss"][epoch] == pytest.approx(loss, rel=0.02)
        assert history["accuracy"][epoch] == pytest.approx(accuracy, abs=0.06)
        loss, _ = against.evaluate(x_test[:60], one_hot(y_test[:60], 10))
        assert history["val_loss"][epoch] == pytest.approx(loss, rel=0.02)


def test_every_preset_has_the_same_numbers_and_goes_on(tmp_path: Path) -> None:
    (x, y), _ = images()
    layers = [layer for layer in NETWORKS["deep"] if not isinstance(layer, Dropout)]
    masters: list[Any] = []
    for preset in ("8x8-training", "base-training"):
        model = compiled([Input((8, 8, 1)), *layers], SGD(0.1, 0.9), preset=preset)
        model.fit(x[:32], y[:32], batch_size=8, verbose=0)
        model.save(tmp_path / "m")
        again = load(tmp_path / "m")
        for each in (model, again):
            each.fit(x[:16], y[:16], epochs=2, initial_epoch=1, batch_size=8, verbose=0)
        masters += [model.state().masters, again.state().masters]
    for found in masters[1:]:
        assert all(np.array_equal(*pair) for pair in zip(found, masters[0], strict=True))


X, Y = np.zeros((4, 8, 8, 1)), np.zeros(4, int)
END = (Flatten(), Dense(3))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Conv2D(0, 3), "filters of Conv2D must be"),
        (lambda: Conv2D(3, 3, 3), "strides must be 1 to 2"),
        (lambda: Conv2D(3, (3, 0)), "kernel_size must be 1 to 15"),
        (lambda: Conv2D(3, 3, padding="full"), "padding must be"),
        (lambda: MaxPooling2D("2"), "pool_size must be"),
        (lambda: DepthwiseConv2D(3, 3), "strides must be 1 to 2"),
        (lambda: DepthwiseConv2D(3, depth_multiplier=2), "depth_multiplier"),
        (lambda: compiled([DepthwiseConv2D(3), *END]).fit(X[..., 0], Y), "height, width and"),
        (lambda: compiled([DepthwiseConv2D(3)]).fit(X, Y), "the last layer must be a Dense"),
        (lambda: compiled([Conv2D(3, 3), Dense(3)]).fit(X, Y), "there must be Flatten"),
        (lambda: compiled([Conv2D(3, 9), *END]).fit(X, Y), "does not fit a map"),
        (lambda: compiled([Conv2D(3, 3), MaxPooling2D(7), *END]).fit(X, Y), "does not fit a map"),
        (lambda: compiled([Conv2D(3, 3), *END]).fit(X[..., 0], Y), "height, width and channels"),
        (lambda: compiled([MaxPooling2D(2), *END]).fit(X, Y), "must come after a"),
        (
            lambda: compiled([Conv2D(3, 3), Dropout(0.1), MaxPooling2D(2), *END]).fit(X, Y),
            "before Dropout",
        ),
        (lambda: compiled([Conv2D(3, 3)]).fit(X, Y), "the last layer must be a Dense"),
        (lambda: compiled([Conv2D(200, 3), *END]).fit(X, Y), "has no room"),
        (
            lambda: compiled([Conv2D(32, 3), *END], preset="4x4-training").fit(
                np.zeros((1, 14, 14, 1)), Y[:1]
            ),
            "have no room for 1152 sums",
        ),
    ],
)
def test_mistakes_are_one_clear_line(build: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)
