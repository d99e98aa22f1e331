# SPDX-License-Identifier: Apache-2.0
"""The test of short instructions that wait for each other, in all entries of the scoreboard."""

import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.crowded_programs import crowded_program
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

PROGRAMS = 50


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (30, 0.0), (9, 0.5)])
@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_crowded(name, latency, stall):
    config = preset(preset_name(name))
    golden = Machine(config)
    with Simulator(config, latency=latency, stall=stall, seed=1) as machine:
        for index in range(PROGRAMS):
            image = crowded_program(config, f"{random_seed()} {index}")
            compared_run(machine, golden, image)
