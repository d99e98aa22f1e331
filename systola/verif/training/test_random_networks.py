# SPDX-License-Identifier: Apache-2.0
"""Tests that random networks learn the same bytes on back end "fast" and on the golden model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    SGD,
    AveragePooling1D,
    AveragePooling2D,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Input,
    MaxPooling1D,
    MaxPooling2D,
    Sequential,
)
from systola.verif.kit.seeds import case_seed
from systola.verif.plan.selection import thorough

CURVES = (None, "relu", "relu6", "tanh", "sigmoid", "hard_sigmoid")
CLASSES, WORDS = 3, 7


def drawn(rng: random.Random) -> list[Any]:
    """Return the layers of a random network, on maps, rows of steps, numbers or words."""
    kind = rng.choice(("maps", "rows", "numbers", "steps", "words"))
    layers: list[Any] = []
    side = 6 if kind == "maps" else 11  # shorter side of a map, or number of rows

    def passed(size: int, stride: int, padding: str = "valid") -> None:
        """Update the side of the map for a layer with windows of `size` pixels."""
        nonlocal side
        side = -(-side // stride) if padding == "same" else (side - size) // stride + 1

    def dropped() -> None:
        if rng.random() < 0.4:
            layers.append(Dropout(rng.choice((0.1, 0.3, 0.6))))

    def dense(units: int) -> None:
        layers.append(Dense(units, rng.choice(CURVES), use_bias=rng.random() < 0.7))
        dropped()

    if kind == "numbers":
        layers.append(Input((rng.randint(1, 9),)))
        for _ in range(rng.randint(1, 3)):
            dense(rng.randint(1, 10))
    elif kind in ("steps", "words"):
        layers.append(Input((4, rng.randint(1, 5)) if kind == "steps" else (3,)))
        if kind == "words":
            layers.append(Embedding(WORDS, rng.randint(1, 5)))
        for sequences in (True, False) if rng.random() < 0.4 else (False,):
            how = {"use_bias": rng.random() < 0.5, "return_sequences": sequences}
            layers.append(LSTM(rng.randint(1, 5), **how))
            dropped()
        if rng.random() < 0.5:
            dense(rng.randint(1, 6))
    else:
        two = kind == "maps"
        layers.append(Input((7, 6, rng.randint(1, 3)) if two else (11, rng.randint(1, 5))))
        ends = (GlobalMaxPooling2D, GlobalAveragePooling2D)
        pools = (MaxPooling2D, AveragePooling2D)
        if not two:
            ends, pools = (
                (GlobalMaxPooling1D, GlobalAveragePooling1D),
                (MaxPooling1D, AveragePooling1D),
            )
        convolution: Any = Conv2D if two else Conv1D
        end = rng.choice((None, *ends))
        count = rng.randint(1, 2)
        for number in range(count):
            how = {"padding": rng.choice(("same", "valid")), "activation": rng.choice(CURVES)}
            how |= {"use_bias": rng.random() < 0.7, "strides": 1 if number else rng.choice((1, 2))}
            size = rng.randint(1, min(2, side))
            layers.append(convolution(rng.randint(1, 6), size, **how))
            passed(size, how["strides"], how["padding"])
            if two and rng.random() < 0.3:
                size = rng.randint(1, min(2, side))
                layers.append(DepthwiseConv2D(size, **how | {"strides": 1}))
                passed(size, 1, how["padding"])
            if number == count - 1 and end:
                layers.append(end())
            elif rng.random() < 0.6 and side > 1:
                strides = rng.choice((None, 1, 3))
                layers.append(rng.choice(pools)(2, strides))
                passed(2, strides or 2)
            dropped()
        if not end:
            layers.append(Flatten())
        if rng.random() < 0.4:
            dense(rng.randint(1, 6))
    layers.append(Dense(CLASSES, use_bias=rng.random() < 0.7))
    return layers


@pytest.mark.parametrize("number", [*range(4), *map(thorough, range(4, 24))])
def test_bytes_of_the_golden_model(number: int) -> None:
    """Check that losses, weights and predictions of random networks have equal bytes.

    Two training steps have whole batches of 8 samples, and a third step has 3 samples.
    """
    rng = random.Random(case_seed())
    layers = drawn(rng)
    values = np.random.default_rng(rng.randrange(1 << 30))
    shape, y = (8, *layers[0].shape), values.integers(0, CLASSES, 8)
    x: Any = values.normal(size=shape)
    if isinstance(layers[1], Embedding):
        x = values.integers(0, WORDS, shape)
    optimizer = SGD(rng.choice((0.1, 1.0)), rng.choice((0.0, 0.9)))
    found: list[Any] = []
    for backend in ("iss", "fast"):
        model = Sequential(layers)
        model.compile(optimizer, preset="4x4-training", backend=backend, seed=number)
        losses = [model.train_on_batch(x[:n], y[:n]) for n in (8, 8, 3)]
        state = model.state()
        learnt = [each.tobytes() for each in (*state.masters, *state.velocities)]
        found.append((losses, learnt, state.bits, state.unit_bits, model.predict(x).tolist()))
    assert found[0] == found[1], layers
