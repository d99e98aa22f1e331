# SPDX-License-Identifier: Apache-2.0
"""The test of large instructions that end one line, row, entry or beat beyond a memory's limit."""

import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.launch import preset_name
from systola.verif.kit.program_limits import LimitWriter, limit_program
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

PROGRAMS = 100


@pytest.mark.parametrize("fault", LimitWriter.FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_limits(name, fault):
    config = preset(preset_name(name))
    golden = Machine(config)
    with Simulator(config) as machine:
        for index in range(PROGRAMS):
            image = limit_program(config, f"{random_seed()} {index}", fault)
            compared_run(machine, golden, image, fault=fault, limit=10_000)
