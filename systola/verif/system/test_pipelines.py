# SPDX-License-Identifier: Apache-2.0
"""The test of models split over several cores of the RTL: right bytes, and use of all cores."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from systola.runtime import Strategy, compile

CORES, BATCHES, BATCH = 4, 64, 4
BOUND = BATCHES / (BATCHES + CORES - 1)
"""Efficiency of a pipeline of equal pieces that loses time only while it fills and drains."""


# The test simulates 256 samples of each network, so it is left to long runs.
@pytest.mark.thorough
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["std_resnet8_cifar", "mobilenet_v1_025_96"])
def test_efficiency(name: str) -> None:
    """Check that the cores' efficiency, compared with one core, is at most 5 % below the bound."""
    content = files("systola.models").joinpath(f"{name}.tflite").read_bytes()
    with np.load(str(files("systola.models").joinpath(f"{name}.npz"))) as stored:
        x, y = (
            np.resize(a, (BATCHES * BATCH, *a.shape[1:])) for a in (stored["x"], stored["y_ref"])
        )
    with Strategy(CORES, "base", split=True).scope():
        pod = compile(content, batch=BATCH)
    run = pod.run(x)
    np.testing.assert_array_equal(run.y, y)
    alone = compile(content, preset="base").run(x).cycles
    assert run.cycles and alone
    reached = alone / (CORES * run.cycles)
    print(f"{name}: {alone} cycles on one core, {run.cycles} on {CORES}: {reached:.1%}")
    assert reached > 0.95 * BOUND
