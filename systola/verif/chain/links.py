# SPDX-License-Identifier: Apache-2.0
"""The simulators that run the programs of `make chain`, beside the golden model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from systola.arch.config import Config
from systola.sim.library import Simulator
from systola.verif.chain.amaranth_machine import AmaranthMachine
from systola.verif.chain.facts import LATENCY, STALL, Facts, facts_of, from_json, programs
from systola.verif.kit.launch import run_machine


def library_facts(config: Config, seed: int, count: int) -> list[Facts]:
    """Run random programs on the C++ library (Verilator), and return their facts."""
    with Simulator(config, latency=LATENCY, stall=STALL, seed=seed) as machine:
        return [facts_of(machine.run(image)) for image in programs(config, seed, count)]


def amaranth_facts(config: Config, seed: int, count: int) -> list[Facts]:
    """Run random programs on Amaranth's simulator, and return their facts."""
    machine = AmaranthMachine(config, latency=LATENCY, stall=STALL, seed=seed)
    return [facts_of(result) for result in machine.run(programs(config, seed, count))]


def cocotb_facts(
    simulator: str, netlist: str | None = None
) -> Callable[[Config, int, int], list[Facts]]:
    """Return a function that runs programs under cocotb and returns their facts.

    The machine is the netlist of this name, or without a name the Verilog before synthesis.
    """

    def facts(config: Config, seed: int, count: int) -> list[Facts]:
        with tempfile.TemporaryDirectory() as folder, _chosen(netlist, config.name, seed):
            path = Path(folder, "facts.json")
            run_machine(
                "chain.programs",
                simulator,
                extra_env={
                    "CHAIN_SEED": str(seed),
                    "CHAIN_PROGRAMS": str(count),
                    "CHAIN_FACTS": str(path),
                },
            )
            return from_json(path.read_text())

    return facts


@contextmanager
def _chosen(netlist: str | None, preset: str, seed: int) -> Iterator[None]:
    """Set NETLIST, PRESET and SEED for the launcher of cocotb tests, and restore them later."""
    chosen = {"NETLIST": netlist, "PRESET": preset, "SEED": str(seed)}
    before = {name: os.environ.get(name) for name in chosen}

    def put(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    put(chosen)
    try:
        yield
    finally:
        put(before)
