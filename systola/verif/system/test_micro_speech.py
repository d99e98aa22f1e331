# SPDX-License-Identifier: Apache-2.0
"""The test of keyword spotting on the RTL, with the network of TensorFlow Lite Micro's example."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime import compile
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.kit.seeds import random_seed

pytestmark = pytest.mark.thorough
MOST = 9_000
"""Largest number of cycles of one inference, with a memory latency of 30 cycles."""


def micro_speech(rng: np.random.Generator) -> bytes:
    """Return a model file with the layers of micro_speech and random weights.

    A depthwise convolution makes 8 channels from one channel. A dense layer gives a score for each
    of four classes.
    """
    writer = ModelWriter()
    source = writer.tensor((1, 49, 40, 1), "int8", 0.1, -128)
    features = writer.tensor((1, 25, 20, 8), "int8", 0.05, -128)
    scores = writer.tensor((1, 4), "int8", 0.2, 10)
    writer.weighted(
        "DEPTHWISE_CONV_2D",
        source,
        features,
        rng.integers(-127, 128, (1, 10, 8, 8), np.int8),
        rng.integers(-5000, 5000, 8, np.int32),
        rng.uniform(0.001, 0.003, 8),
        3,
        padding=0,
        strideH=2,
        strideW=2,
        depthMultiplier=8,
        fusedActivationFunction=1,
    )
    weights = rng.integers(-127, 128, (4, 4000), np.int8)
    writer.weighted("FULLY_CONNECTED", features, scores, weights, None, 0.002, 0)
    return writer.content([source], [scores])


def test_cycles_and_every_byte() -> None:
    rng = np.random.default_rng(random_seed())
    content = micro_speech(rng)
    x = rng.integers(-128, 128, (2, 1, 49, 40, 1), np.int8)
    model = compile(content, batch=1)
    run = model.run(x[:, 0], backend=RtlBackend(preset("base"), latency=30))
    assert np.array_equal(run.y.reshape(2, -1), interpret(content, x).reshape(2, -1))
    assert run.cycles is not None
    assert run.cycles / len(x) < MOST
