# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that runs the programs of the chain and leaves its facts in a file."""

import os
from pathlib import Path

import cocotb

from systola.verif.chain.facts import LATENCY, STALL, facts_of, programs, to_json
from systola.verif.kit.bench import TB


@cocotb.test
async def chain(dut):
    seed, count = int(os.environ["CHAIN_SEED"]), int(os.environ["CHAIN_PROGRAMS"])
    tb = TB(dut, latency=LATENCY, stall=STALL, seed=seed)
    await tb.start()
    results = [await tb.run_program(image) for image in programs(tb.config, seed, count)]
    found = to_json([facts_of(result) for result in results])
    Path(os.environ["CHAIN_FACTS"]).write_text(found)
