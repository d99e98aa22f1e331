# SPDX-License-Identifier: Apache-2.0
"""Test of the three steps of an int8 softmax, with one query in each lane, against LiteRT.

The steps are a Pool MAX, a partition and a Vector ADD with QUOTIENT, as in docs/transformers.md.
"""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.golden.rig import HALT, Rig
from systola.verif.kit.seeds import random_seed
from systola.verif.kit.softmax import TABLES, softmax_steps, softmax_tables

CONFIG = preset("base-attention")
SCORES, LARGEST = 0, 1000
"""First line of the scores, which the results replace, and the line of the largest scores."""
COPIES = 0
"""Parameter entry that leaves sums as they are. The partition makes the entry after it."""


@pytest.mark.parametrize(
    ("keys", "scale", "beta"), [(1, 0.1, 1.0), (128, 0.1, 1.0), (197, 0.01, 1.0), (255, 0.7, 0.3)]
)
def test_against_litert(keys: int, scale: float, beta: float) -> None:
    rng = np.random.default_rng(random_seed())
    widths = rng.integers(1, 129, (CONFIG.cols, 1))
    scores = rng.integers(-widths, widths, (CONFIG.cols, keys)).astype(np.int8)
    scores[0] = [-128, *[127] * (keys - 1)]
    rig = Rig(CONFIG)
    rig.machine.buffer[SCORES : SCORES + keys, : CONFIG.cols] = scores.T
    # The multiplier is 2^30, with a left shift of one bit.
    rig.machine.parameters[COPIES, 7:9] = [[1 << 6], [1 << 5]]
    rig.machine.tables[:TABLES] = softmax_tables(scale, beta)
    steps = softmax_steps(scores=SCORES, largest=LARGEST, keys=keys, blocks=1, copies=COPIES)
    rig.complete(*steps, HALT)

    largest = scores.max(axis=1)
    assert np.array_equal(rig.machine.buffer[LARGEST, : CONFIG.cols], largest)
    writer = ModelWriter()
    source = writer.tensor(scores.shape, "int8", np.float32(scale), -3)
    made = writer.tensor(scores.shape, "int8", 1 / 256, -128)
    writer.operator("SOFTMAX", [source], [made], beta=beta)
    expected = interpret(writer.content([source], [made]), scores[np.newaxis])[0]
    y = rig.machine.buffer[SCORES : SCORES + keys, : CONFIG.cols].T
    assert np.array_equal(y, expected)
