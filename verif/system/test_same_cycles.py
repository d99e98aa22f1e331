# SPDX-License-Identifier: Apache-2.0
"""The cocotb benches and the C++ library agree about every cycle of the same programs."""

import os
from pathlib import Path

import cocotb
import pytest

from systola.arch.config import preset
from systola.sim.library import Simulator
from systola.verif.chain.facts import facts_of, from_json, to_json
from systola.verif.kit.bench import TB
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

MEMORIES = ((0, 0.0), (3, 0.0), (30, 0.1), (11, 0.5))
"""Latency and stall probability of the runs."""
PROGRAMS = 3


def programs(config):
    return [random_program(config, f"{random_seed()} cycles {index}") for index in range(PROGRAMS)]


@cocotb.test
@cocotb.parametrize(index=range(len(MEMORIES)))
async def cycles(dut, index):
    latency, stall = MEMORIES[index]
    tb = TB(dut, latency=latency, stall=stall, seed=index)
    await tb.start()
    found = [facts_of(await tb.run_program(image)) for image in programs(tb.config)]
    Path(os.environ["TPU_FACTS"], f"{index}.json").write_text(to_json(found))


@pytest.mark.parametrize("simulator", simulators())
def test_same_cycles(simulator, tmp_path):
    run_machine("system.test_same_cycles", simulator, extra_env={"TPU_FACTS": str(tmp_path)})
    config = preset(preset_name("tiny"))
    for index, (latency, stall) in enumerate(MEMORIES):
        expected = from_json((tmp_path / f"{index}.json").read_text())
        with Simulator(config, latency=latency, stall=stall, seed=index) as library:
            found = [facts_of(library.run(image)) for image in programs(config)]
        assert found == expected, f"latency {latency}, stall {stall}"
