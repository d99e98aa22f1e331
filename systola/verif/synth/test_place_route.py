# SPDX-License-Identifier: Apache-2.0
"""Tests of place and route (netlist to clock rates), with a shell script in place of nextpnr."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from systola.hdl.matrix.multiplier_row import MultiplierRow
from systola.hdl.parts.fabric import Fabric
from systola.hdl.verilog import convert
from systola.synth.place_route import place_and_route
from systola.synth.synthesis import NETLIST
from systola.synth.targets import TARGETS
from systola.synth.tools import Tool
from systola.verif.synth.netlists import pnr_report

ECP5 = TARGETS["ecp5-85f"]
BLOCK = 4
"""Number of multipliers of a DSP block of an ECP5."""


@pytest.fixture
def nextpnr(tmp_path: Path) -> Tool:
    """Return a script in place of nextpnr that notes its arguments and writes a report."""
    (tmp_path / NETLIST).write_text("{}")
    (tmp_path / "report").write_text(json.dumps(pnr_report(99.0, [])))
    script = tmp_path / "nextpnr"
    script.write_text(
        '#!/bin/sh\necho "$@" >> calls.txt\nfor name; do :; done\ncp report "$name"\n'
    )
    script.chmod(0o755)
    return Tool("nextpnr-ecp5", str(script), "nextpnr-0.11")


def calls(folder: Path) -> list[str]:
    """Return the arguments of each run of the script that takes nextpnr's place."""
    return (folder / "calls.txt").read_text().splitlines()


def test_a_run_for_each_seed(nextpnr: Tool, tmp_path: Path) -> None:
    """Check that nextpnr runs once for each seed, and not again for an unchanged netlist."""
    reports = place_and_route(nextpnr, ECP5, "6", 2, tmp_path, whole=True)
    assert reports == {1: pnr_report(99.0, []), 2: pnr_report(99.0, [])}
    first, second = calls(tmp_path)
    assert "--seed 1 --report seed_1_speed_6.json" in first and "--seed 2" in second
    assert place_and_route(nextpnr, ECP5, "6", 2, tmp_path, whole=True) == reports
    assert len(calls(tmp_path)) == 2
    (tmp_path / NETLIST).write_text('{"modules": {}}')
    place_and_route(nextpnr, ECP5, "6", 1, tmp_path, whole=True)
    assert len(calls(tmp_path)) == 3


@pytest.mark.parametrize(
    ("whole", "frequency", "asked"), [(True, None, 100), (False, None, 160), (True, 77, 77)]
)
def test_frequency(
    nextpnr: Tool, tmp_path: Path, whole: bool, frequency: int | None, asked: int
) -> None:
    place_and_route(nextpnr, ECP5, "8", 1, tmp_path, whole=whole, frequency=frequency)
    (call,) = calls(tmp_path)
    assert f"--speed 8 --lpf-allow-unconstrained --freq {asked} --timing-allow-fail" in call


def test_two_stages_share_the_enables_of_a_block() -> None:
    """Check that the multipliers of a DSP block use two enables.

    A block has four enables, and nextpnr counts constants as enables.
    """
    row = MultiplierRow(cols=8, columns_per_stage=4, wide=False, products_per_dsp=2)
    enables = re.findall(r"\.CE\d\((.*?)\),?$", convert(row, "row", Fabric.ECP5), re.MULTILINE)
    assert len(enables) == BLOCK * 4
    assert all(len(set(enables[n : n + 4])) == 2 for n in range(0, len(enables), 4))
