# SPDX-License-Identifier: Apache-2.0
"""Random programs in lockstep with the golden model, one machine for all of them, no reset."""

import os
import random

import cocotb
import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit import scoreboard
from systola.verif.kit.bench import TB, check_outcome, config_under_test
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.kit.programs import STATIC_FAULTS, random_program
from systola.verif.kit.seeds import random_seed

PROGRAMS = 12
"""Programs of one simulation; every fourth ends in a fault."""


@cocotb.test
async def random_programs(dut):
    """Random sizes, overlaps and hazards against random latency and stalls on every channel."""
    number = int(os.environ["TPU_RUN"])
    rng = random.Random(f"{random_seed()} {number}")
    latency, stall = rng.choice(((0, 0.0), (rng.randint(0, 40), rng.choice((0.0, 0.1, 0.4)))))
    tb = TB(dut, latency=latency, stall=stall, seed=rng.getrandbits(16))
    await tb.start()
    for index in range(PROGRAMS):
        fault = rng.choice(STATIC_FAULTS) if index % 4 == 3 else None
        name = f"{random_seed()} {number} {index}"
        image = random_program(config_under_test(), name, fault=fault)
        result = await tb.check_program(image)
        dut._log.info(
            "program %s: %d cycles, latency %d, stall %.1f, %s",
            name,
            result.cycles,
            latency,
            stall,
            result.fault_cause.name,
        )


@pytest.mark.parametrize("simulator", simulators())
@pytest.mark.parametrize(
    ("config", "run"),
    [("tiny", 0), ("tiny", 1), ("7x5", 2), ("7x5", 3), ("3x14", 4), ("3x14", 5), ("small", 6)],
)
def test_random_programs(simulator, config, run):
    environment = {"TPU_RUN": str(run)}
    run_machine("system.test_random_programs", simulator, config=config, extra_env=environment)


@pytest.mark.parametrize("memory", [(0, 0.0), (1, 0.0), (30, 0.1), (9, 0.5)])
@pytest.mark.parametrize("name", ["tiny", "7x5", "base"])
def test_random_programs_in_the_library(name, memory):
    """Many more of them, without cocotb."""
    config = preset(preset_name(name))
    latency, stall = memory
    golden = Machine(config)
    with Simulator(config, latency=latency, stall=stall, seed=random_seed()) as machine:
        for index in range(250):
            fault = STATIC_FAULTS[index // 5 % len(STATIC_FAULTS)] if index % 5 == 4 else None
            image = random_program(config, f"{random_seed()} {memory} {index}", fault=fault)
            expected = image.host.copy()
            outcome = golden.run(expected, image.weights, image.program_offset)
            result = machine.run(image, limit=100_000)
            check_outcome(result, outcome.fault, outcome.interrupts)
            scoreboard.check(expected, result.host)
            assert sum(result.counters.values()) == result.cycles
