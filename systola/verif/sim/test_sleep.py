# SPDX-License-Identifier: Apache-2.0
"""Tests of parts of the machine that sleep (are not simulated) while idle: results are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.golden.machine import Machine
from systola.hdl.activation.gate_sequencer import GateSequencer
from systola.hdl.activation.result_lanes import ResultLanes
from systola.hdl.activation.spacings import SCALED_LATENCY
from systola.sim.design import is_hierarchical, verilog_of
from systola.sim.library import Simulator
from systola.sim.sleep import LANES_WAKE_FOR, with_sleeping_lanes
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.large_programs import large_program
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

CONFIG = replace(preset("40x36"), weight_throttle=(2, 7))
PROGRAMS = 15
LIMIT = 1_000_000
"""Limit of a program in cycles, many times more than any program takes."""
WITH_LANES = ["small-training", "3x14-int8"]


@pytest.mark.thorough
def test_an_array_that_waits_for_weights() -> None:
    """Check an array that sleeps between rows of weights, which come every few cycles or later."""
    assert is_hierarchical(verilog_of(CONFIG, promises=True))
    golden = Machine(CONFIG)
    with Simulator(CONFIG, latency=9, stall=0.3, seed=random_seed()) as machine:
        for index in range(PROGRAMS):
            compared_run(machine, golden, large_program(CONFIG, f"{random_seed()} {index}"))


@pytest.mark.thorough
@pytest.mark.exhaustive  # no other test needs this simulator with waveforms
def test_a_waveform_of_a_large_array(tmp_path: Path) -> None:
    """Check that lanes also sleep in a simulator with waveforms.

    The Verilog of a simulator with waveforms has other names for fields of signals.
    """
    waves = tmp_path / "large.vcd"
    with Simulator(CONFIG, waves=waves, window=(0, 100), seed=random_seed()) as machine:
        compared_run(machine, Machine(CONFIG), large_program(CONFIG, str(random_seed())))
    assert "summing__halved" in waves.read_text()


@pytest.mark.thorough
@pytest.mark.exhaustive  # system/test_same_cycles has a quicker comparison with awake lanes
@pytest.mark.parametrize("name", WITH_LANES)
def test_lanes_that_wait_for_memories(name: str) -> None:
    """Check that lanes asleep within sums and instructions change no cycle, no tag and no byte."""
    config = preset(name)
    awake = verilog_of(config, promises=True)
    asleep = with_sleeping_lanes(awake)
    assert asleep != awake
    memories = {"latency": 2 * LANES_WAKE_FOR, "seed": random_seed()}
    with (
        Simulator(config, verilog=awake, **memories) as one,
        Simulator(config, verilog=asleep, **memories) as other,
    ):
        for index in range(PROGRAMS):
            image = random_program(config, f"{random_seed()} {index}")
            first, second = (each.run(image, limit=LIMIT) for each in (one, other))
            assert (first.cycles, first.tags) == (second.cycles, second.tags)
            assert (first.host == second.host).all()


def test_lanes_are_awake_until_the_last_effect() -> None:
    longest = ResultLanes.latency() + SCALED_LATENCY + GateSequencer.latency(1)
    assert longest < LANES_WAKE_FOR


@pytest.mark.thorough
def test_lanes_that_columns_share_stay_awake() -> None:
    verilog = verilog_of(preset("tiny-compact"), promises=True)
    assert with_sleeping_lanes(verilog) == verilog


def test_lanes_wake_for_a_write_whose_name_was_taken() -> None:
    """Check that lanes also wake for a write signal with a number at the end of its name.

    A port gets such a number if another port has its name already.
    """
    ports = ["issue", "write__enable", "[8:0] write__planes_2"]
    declared = "".join(f"  input {port};\n" for port in ("clk", *ports))
    module = f"module tpu__core__activation_unit__lanes();\n{declared}  wire clk;\nendmodule"
    told = "issue != 0 || write__enable != 0 || write__planes_2 != 0"
    assert f"wire told = {told} || " in with_sleeping_lanes(module)
