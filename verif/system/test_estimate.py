# SPDX-License-Identifier: Apache-2.0
"""The estimate of cycles is near to what the RTL takes."""

import pytest

from systola.arch.config import preset
from systola.runtime.rtl import RtlBackend
from systola.timing.estimate import estimate
from systola.timing.memory_speed import MemorySpeed
from systola.verif.compiler.stored_networks import (
    CONVOLUTIONAL,
    RECURRENT,
    stored_program,
)

PRESET = "base"
PERCEPTRONS = ("mlp_tutorial_pc_softmax", "mlp_odd_relu6_tanh_sigmoid")
SAMPLES = 4
NEAR = 0.03
"""Largest error of a whole program. The estimate is meant for decisions, which need 10 %: this is
what the model is known to reach, so that a change of the hardware that it misses shows."""


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (30, 0.0), (30, 0.1)])
@pytest.mark.parametrize("name", [*CONVOLUTIONAL, *PERCEPTRONS, *RECURRENT])
def test_network(name, latency, stall):
    config = preset(PRESET)
    image, _ = stored_program(name, config, SAMPLES)
    result = RtlBackend(config, latency=latency, stall=stall).run(image)
    expected = estimate(config, image, MemorySpeed(latency, stall))
    assert expected.cycles == pytest.approx(result.cycles, rel=NEAR)
