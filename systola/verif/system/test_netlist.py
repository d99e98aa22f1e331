# SPDX-License-Identifier: Apache-2.0
"""The test of the digits network on the netlist that the variable NETLIST selects.

The bytes must equal LiteRT's. The cycles must be as many as on the Verilog that the netlist was
made from.
"""

import os
from pathlib import Path

import cocotb
import pytest

from systola.arch.config import preset
from systola.sim.library import Simulator
from systola.verif.chain.facts import facts_of, from_json, to_json
from systola.verif.compiler.stored_networks import stored_program
from systola.verif.kit.bench import TB
from systola.verif.kit.launch import chosen_netlist, preset_name, run_machine, simulators
from systola.verif.kit.seeds import case_seed

NETWORK = "mlp_tutorial_pc_softmax"
SAMPLES = 4
MEMORY = {"latency": 12, "stall": 0.1}


@cocotb.test
async def digits(dut):
    tb = TB(dut, **MEMORY, seed=case_seed())
    await tb.start()
    image, check = stored_program(NETWORK, tb.config, SAMPLES)
    result = await tb.run_program(image, limit=1_000_000)
    check(result.host)
    Path(os.environ["TPU_FACTS"]).write_text(to_json([facts_of(result)]))


@pytest.mark.skipif(not chosen_netlist(), reason="only with NETLIST")
@pytest.mark.parametrize("simulator", simulators())
def test_netlist(simulator, tmp_path):
    path = tmp_path / "facts.json"
    run_machine("system.test_netlist", simulator, extra_env={"TPU_FACTS": str(path)})
    config = preset(preset_name())
    image, _ = stored_program(NETWORK, config, SAMPLES)
    with Simulator(config, **MEMORY, seed=case_seed()) as library:
        assert [facts_of(library.run(image))] == from_json(path.read_text())
