# SPDX-License-Identifier: Apache-2.0
"""Tests of instructions over hundreds of lines, rows and tiles, and maps that fill the buffer."""

import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.large_programs import large_program
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

PROGRAMS = 25


@pytest.mark.parametrize("memory", [(0, 0.0), (9, 0.3)], ids=["ideal", "slow"])
@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_large(name, memory):
    config = preset(preset_name(name))
    latency, stall = memory
    golden = Machine(config)
    with Simulator(config, latency=latency, stall=stall, seed=random_seed()) as machine:
        for index in range(PROGRAMS):
            image = large_program(config, f"{random_seed()} {memory} {index}")
            compared_run(machine, golden, image)
