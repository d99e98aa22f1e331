# SPDX-License-Identifier: Apache-2.0
"""Tests of random programs against the golden model, on one machine without a reset between."""

import os
import random

import cocotb
import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB, config_under_test
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.launch import preset_name, quick_simulators, run_machine
from systola.verif.kit.program_faults import static_faults
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive, thorough

PROGRAMS = 8
"""Number of programs of one simulation; every fourth ends in a fault."""
MEMORIES = ((0, 0.0), (1, 0.0), (30, 0.1), (9, 0.5))
"""Latency and stall probability of the memories."""


@cocotb.test
async def random_programs(dut):
    """Check programs with random sizes, overlaps and hazards, and stalls on every bus channel."""
    number = int(os.environ["TPU_RUN"])
    rng = random.Random(f"{random_seed()} {number}")
    latency, stall = rng.choice(((0, 0.0), (rng.randint(0, 40), rng.choice((0.0, 0.1, 0.4)))))
    tb = TB(dut, latency=latency, stall=stall, seed=rng.getrandbits(16))
    await tb.start()
    faults = static_faults(tb.config)
    for index in range(PROGRAMS):
        fault = rng.choice(faults) if index % 4 == 3 else None
        name = f"{random_seed()} {number} {index}"
        image = random_program(config_under_test(), name, fault=fault)
        result = await tb.check_program(image, fault=fault)
        dut._log.info(
            "program %s: %d cycles, latency %d, stall %.1f, %s",
            name,
            result.cycles,
            latency,
            stall,
            result.fault_cause.name,
        )


CONFIGS = ("tiny", "7x5", "3x14", "small", "4x4-training")
RUNS = [(config, simulator) for config in CONFIGS for simulator in quick_simulators()]

MARKS = {"tiny": pytest.param}
"""Configurations that also run under cocotb.

Other configurations run random programs in the C++ library only, which saves the build of a second
simulator.
"""


@pytest.mark.parametrize(
    ("config", "simulator"),
    [MARKS.get(config, exhaustive)(config, simulator) for config, simulator in RUNS],
)
def test_random_programs(config, simulator):
    environment = {"TPU_RUN": str(RUNS.index((config, simulator)))}
    run_machine("system.test_random_programs", simulator, config=config, extra_env=environment)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(100, id="some"),
        pytest.param(1000, id="many", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    "name",
    [
        "tiny",
        *map(thorough, ("small", "base", "8x8-compact-training")),
        *map(exhaustive, ("7x5", "4x4-training")),
    ],
)
def test_random_programs_in_the_library(name, memory, count):
    """Check random programs in the C++ library, without cocotb; every fifth ends in a fault."""
    config = preset(preset_name(name))
    latency, stall = memory
    faults = static_faults(config)
    golden = Machine(config)
    with Simulator(config, latency=latency, stall=stall, seed=random_seed()) as machine:
        for index in range(count):
            fault = faults[index // 5 % len(faults)] if index % 5 == 4 else None
            image = random_program(config, f"{random_seed()} {memory} {index}", fault=fault)
            compared_run(machine, golden, image, fault=fault)
