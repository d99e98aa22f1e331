# SPDX-License-Identifier: Apache-2.0
"""The test of the digits network on RTL with an ECP5's own multipliers and memories.

The network must give the same bytes and cycles as on RTL without these blocks.
"""

import pytest

from systola.arch.config import preset
from systola.hdl.parts.fabric import Fabric
from systola.sim.design import verilog_of
from systola.sim.library import Simulator
from systola.sim.primitives import models_of
from systola.verif.compiler.stored_networks import stored_program
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed

NETWORK = "mlp_tutorial_pc_softmax"
SAMPLES = 20


def with_blocks(config):
    text = verilog_of(config, Fabric.ECP5)
    return f"{text}\n{models_of(text)}"


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (30, 0.1)], ids=["ideal", "loaded"])
@pytest.mark.thorough
def test_digits(latency, stall):
    config = preset(preset_name())
    image, check = stored_program(NETWORK, config, SAMPLES)
    results = []
    for text in (None, with_blocks(config)):
        with Simulator(
            config, latency=latency, stall=stall, seed=random_seed(), verilog=text
        ) as machine:
            results.append(machine.run(image))
    plain, other = results
    check(plain.host)
    assert (plain.host == other.host).all()
    assert (plain.status, plain.cycles, plain.counters) == (
        other.status,
        other.cycles,
        other.counters,
    )
