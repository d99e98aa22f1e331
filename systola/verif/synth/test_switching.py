# SPDX-License-Identifier: Apache-2.0
"""Tests of switching energy: transitions in a VCD, pins of a netlist, and a run of the tools."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.bench.energy_page import switching_table
from systola.synth import switching
from systola.synth.switching import (
    Switching,
    Transitions,
    instance_pins,
    power_script,
    store,
    stored,
    transitions,
)
from systola.timing.energy import PICO, unit_energies
from systola.timing.technology import TECHNOLOGIES
from systola.verif.timing.test_energy import counts

NETLIST = """\
module mxu(clk, \\vector[0] , \\sums[0] );
  input clk;
  wire _1_;
  NAND2X1 _7_ (
    .A(\\vector[0] ),
    .B(_1_),
    .Y(\\sums[0] )
  );
  DFFPOSX1 _8_ (
    .CLK(clk),
    .D(\\vector[0] ),
    .Q(_1_)
  );
endmodule
"""
VCD = """\
$timescale 10ps $end
$scope module bench $end
$scope module dut $end
$var wire 1 ! clk $end
$var wire 1 " sums[0] $end
$var wire 1 # _1_ $end
$var wire 2 $ pair [1:0] $end
$upscope $end
$upscope $end
$enddefinitions $end
#8000
$dumpvars
1!
0"
1#
b0 $
$end
#9000
1"
#9100
0"
#10000
0!
#12000
1!
1"
0"
#13000
1"
#14000
0!
#16000
$dumpoff
x!
x"
x#
$end
"""
FOUND = Switching(
    **{"preset": "tiny", "rows": 4, "cols": 4, "columns_per_stage": 4, "vectors": 2, "cells": 9},
    **{"toggles": 0.5, "glitches": 0.25, "sequential": 3.0, "combinational": 5.0},
    tools=["Yosys 1"],
    date="2026-01-01",
    commit="abc1234",
)


def test_transitions():
    """Check transitions in two cycles of 4000 time units: a glitch in one, a change in the other.

    A pulse without duration does not count.
    """
    assert transitions(VCD.splitlines(keepends=True), 2) == {
        "clk": Transitions(3, 1, 0.5),
        "sums[0]": Transitions(3, 1, (100 + 3000) / 8000),
        "_1_": Transitions(0, 0, 1.0),
    }


def test_pins_and_script():
    pins = instance_pins(NETLIST)
    assert pins == {
        "_7_": {"A": "vector[0]", "B": "_1_", "Y": "sums[0]"},
        "_8_": {"CLK": "clk", "D": "vector[0]", "Q": "_1_"},
    }
    lines = list(power_script(pins, transitions(VCD.splitlines(keepends=True), 2), 2))
    given = [line for line in lines if "activity" in line]
    assert given == [
        "sta::set_power_pin_activity [get_pins _7_/B] 0.0000 1.0000",
        "sta::set_power_pin_activity [get_pins _7_/Y] 1.5000 0.3875",
        "sta::set_power_pin_activity [get_pins _8_/Q] 0.0000 1.0000",
    ]
    assert lines.count("report_power") == 2 and lines.index("report_power") < lines.index(given[0])


def test_table_and_history(tmp_path: Path):
    path = tmp_path / "switching.json"
    store(FOUND, path)
    store(replace(FOUND, preset="small"), path)
    store(replace(FOUND, cells=10), path)
    assert stored(path) == [replace(FOUND, preset="small"), replace(FOUND, cells=10)]
    text = switching_table([FOUND])
    assert "| `tiny` | **both** | 8.0 pJ | 1.36 pJ | 21.8 pJ |" in text
    assert "25 % of them glitches" in text


def test_the_same_constants():
    """Check the published energy of a product in the table against the energy model.

    The energy model's increase for one more vector is divided by the 16 products of a vector.
    """
    product = "matrix_multiply buffer=0, accumulator=0, rows={}, k_tiles=1, n_tiles=1"
    one, two = (counts(f"read_weights tile=0, count=1\n{product.format(n)}\nhalt") for n in (1, 2))
    found = [unit_energies(preset("tiny"), each, TECHNOLOGIES[0]) for each in (one, two)]
    parts = ("array", "array registers")
    each = sum(found[1][part] - found[0][part] for part in parts) / PICO / 16
    assert f"| **both** | 8.0 pJ | {each:.2f} pJ |" in switching_table([FOUND])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--preset", "nix"], "unknown preset"), (["--vectors", "none"], "--vectors")],
)
def test_mistakes(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    try:
        status = switching.main(arguments)
    except SystemExit as end:
        status = end.code
    _, err = capsys.readouterr()
    assert status == 2 and says in err and err.count("\n") == 1


def test_without_tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(switching, "find_tools", lambda: (None, None))
    assert switching.main([]) == 2
    assert "apt-get install iverilog opensta" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.skipif(not switching.MODELS.exists(), reason="qflow-tech-osu018 is not installed")
@pytest.mark.skipif(shutil.which("vvp") is None, reason="Icarus Verilog is missing")
def test_an_array():
    """Check that the netlist of an array gives right sums, and an energy within known bounds."""
    found = switching.measure("tiny", 20)
    assert found.cells > 10_000 and 0.2 < found.toggles < 1 and 0 < found.glitches < 0.6
    assert 60 < found.picojoules < 240
