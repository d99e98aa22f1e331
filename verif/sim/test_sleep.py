# SPDX-License-Identifier: Apache-2.0
"""Tiles of a large array that sleep in the simulator: they miss nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.sim.design import is_hierarchical, verilog_of
from systola.sim.library import Simulator
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.large_programs import large_program
from systola.verif.kit.seeds import random_seed

CONFIG = replace(preset("40x36"), weight_throttle=(2, 7))
PROGRAMS = 15


@pytest.mark.thorough
def test_an_array_that_waits_for_weights() -> None:
    """Rows of weights come every few cycles, and now and then not at all."""
    assert is_hierarchical(verilog_of(CONFIG, promises=True))
    golden = Machine(CONFIG)
    with Simulator(CONFIG, latency=9, stall=0.3, seed=random_seed()) as machine:
        for index in range(PROGRAMS):
            compared_run(machine, golden, large_program(CONFIG, f"{random_seed()} {index}"))
