# SPDX-License-Identifier: Apache-2.0
"""A cocotb test that runs the programs of `make chain`, and writes their facts to a file."""

import os
from pathlib import Path

import cocotb

from systola.verif.chain.facts import LATENCY, STALL, facts_of, meant_faults, programs, to_json
from systola.verif.kit.bench import TB


@cocotb.test
async def chain(dut):
    seed, count = int(os.environ["CHAIN_SEED"]), int(os.environ["CHAIN_PROGRAMS"])
    tb = TB(dut, latency=LATENCY, stall=STALL, seed=seed)
    await tb.start()
    meant = meant_faults(tb.config, seed, count)
    results = [
        await tb.run_program(image, fault=fault)
        for image, fault in zip(programs(tb.config, seed, count), meant, strict=True)
    ]
    found = to_json([facts_of(result) for result in results])
    Path(os.environ["CHAIN_FACTS"]).write_text(found)
