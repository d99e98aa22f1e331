# SPDX-License-Identifier: Apache-2.0
"""Tests of a softmax of int8 on the RTL, in three steps: LiteRT's results, and cycles."""

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault
from systola.sim.library import Simulator
from systola.timing.estimate import estimate
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.kit.seeds import random_seed
from systola.verif.kit.softmax import softmax_image

pytestmark = pytest.mark.thorough
MOST_CYCLES = 4000
"""Cycles that a softmax of 128 x 128 on 16 columns may take."""


@pytest.mark.parametrize(
    ("name", "keys", "queries", "scale"),
    [
        ("4x4-training-attention", 5, 8, 0.1),
        ("4x4-training-attention", 255, 4, 0.02),
        ("base-attention", 128, 128, 0.1),
    ],
)
def test_softmax(name, keys, queries, scale):
    config = preset(name)
    rng = np.random.default_rng(random_seed())
    widths = rng.integers(1, 129, queries)
    scores = rng.integers(-widths, widths, (keys, queries)).astype(np.int8)
    scores[:, 0] = [-128, *[127] * (keys - 1)]

    writer = ModelWriter()
    source = writer.tensor((queries, keys), "int8", np.float32(scale), -3)
    made = writer.tensor((queries, keys), "int8", 1 / 256, -128)
    writer.operator("SOFTMAX", [source], [made], beta=1.0)
    content = writer.content([source], [made])
    expected = interpret(content, np.ascontiguousarray(scores.T)[np.newaxis])[0]

    image, place, tags = softmax_image(config, scores, scale)
    with Simulator(config, seed=random_seed()) as machine:
        result = machine.run(image)
    assert result.fault_cause == Fault.NONE
    size = keys * queries // config.cols * config.output_pitch
    found = result.host[place : place + size].view(np.int8)
    found = found.reshape(queries // config.cols, keys, -1)
    found = found[:, :, : config.cols].swapaxes(0, 1).reshape(keys, queries)
    assert np.array_equal(found.T, expected)
    assert tuple(tag for _, tag in result.tags) == tags
    (begin, _), (end, _) = result.tags
    assert end - begin == pytest.approx(estimate(config, image).tags[-1].cycles, abs=2)
    if queries == 128:
        print(f"softmax of {keys} x {queries} on {name}: {end - begin} cycles")
        assert end - begin < MOST_CYCLES
