# SPDX-License-Identifier: Apache-2.0
"""The test that cocotb benches and the C++ library take the same cycles for the same programs.

Only in the library, lanes sleep: they are not simulated while they have no work. `make chain`
compares Icarus and netlists, too.
"""

import os
from pathlib import Path

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.sim.library import Simulator
from systola.verif.chain.facts import facts_of, from_json, to_json
from systola.verif.kit.bench import TB
from systola.verif.kit.images import make_image, random_memory, random_tiles
from systola.verif.kit.launch import preset_name, quick_simulators, run_machine
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import case_seed

MEMORIES = ((0, 0.0), (3, 0.0), (30, 0.1), (11, 0.5))
"""Latency and stall probability of the memories in each run."""
PROGRAMS = 3


def tags_and_waits(config):
    """Return a program with tags, each shortly before a wait in which the host must read them."""
    nop, stop = encode(Opcode.NOP), encode(Opcode.SYNCHRONIZE_HOST)
    program = []
    for delay in range(16):
        program += [encode(Opcode.DEBUG_TAG, tag=delay, wait=0), *[nop] * delay, stop]
    rng = np.random.default_rng(case_seed())
    return make_image(
        [*program, encode(Opcode.HALT)],
        host=random_memory(rng, 2),
        weights=random_tiles(rng, config, 1),
    )


def programs(config):
    names = [f"{case_seed()} cycles {index}" for index in range(PROGRAMS)]
    return [tags_and_waits(config), *[random_program(config, name) for name in names]]


@cocotb.test
@cocotb.parametrize(index=range(len(MEMORIES)))
async def cycles(dut, index):
    latency, stall = MEMORIES[index]
    tb = TB(dut, latency=latency, stall=stall, seed=index)
    await tb.start()
    found = [facts_of(await tb.run_program(image)) for image in programs(tb.config)]
    Path(os.environ["TPU_FACTS"], f"{index}.json").write_text(to_json(found))


@pytest.mark.parametrize("simulator", quick_simulators())
def test_same_cycles(simulator, tmp_path):
    run_machine("system.test_same_cycles", simulator, extra_env={"TPU_FACTS": str(tmp_path)})
    config = preset(preset_name("tiny"))
    for index, (latency, stall) in enumerate(MEMORIES):
        expected = from_json((tmp_path / f"{index}.json").read_text())
        with Simulator(config, latency=latency, stall=stall, seed=index) as library:
            found = [facts_of(library.run(image)) for image in programs(config)]
        assert found == expected, f"latency {latency}, stall {stall}"
