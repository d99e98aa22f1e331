# SPDX-License-Identifier: Apache-2.0
"""Tests of SOFTMAX on the host against the reference interpreter."""

from __future__ import annotations

import numpy as np

from systola.compiler.softmax import softmax
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.kit.seeds import random_seed


def test_softmax() -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(150):
        shape = (int(rng.integers(1, 5)), int(rng.integers(1, 400)))
        scale = float(np.float32(10 ** rng.uniform(-4, 0.7)))
        beta = float(rng.choice([0.5, 1, 3]))
        x = np.clip(rng.normal(0, 10 ** rng.uniform(0, 2), shape), -128, 127).astype(np.int8)
        writer = ModelWriter()
        source = writer.tensor(shape, "int8", scale, int(rng.integers(-128, 128)))
        result = writer.tensor(shape, "int8", 1 / 256, -128)
        writer.operator("SOFTMAX", [source], [result], beta=beta)
        theirs = interpret(writer.content([source], [result]), x[np.newaxis])[0]
        assert np.array_equal(softmax(x, scale, beta), theirs), (shape, scale, beta)


def test_equal_inputs_share_equally() -> None:
    assert (softmax(np.full((2, 4), 5, np.int8), 0.1) == 64 - 128).all()
