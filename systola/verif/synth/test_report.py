# SPDX-License-Identifier: Apache-2.0
"""Tests of the synthesis report's figures, from netlists and reports of nextpnr."""

from __future__ import annotations

import pytest

from systola.synth import report
from systola.synth.harness import ports_of
from systola.synth.netlist import netlist_of, plain, unit_of
from systola.synth.targets import target
from systola.verif.synth.netlists import DESIGN, netlist_json, piece, pnr_report

ECP5 = target("ecp5-85f")
CELLS = {
    "in_TRELLIS_FF_Q_3": "TRELLIS_FF",
    "tpu.core.fetch.count_TRELLIS_FF_Q": "TRELLIS_FF",
    "tpu.core.fetch.count_TRELLIS_FF_Q_DI_LUT4_Z": "LUT4",
    "tpu.core.fetch.ring.memory.0.0": "DP16KD",
    "tpu.core.waits_CCU2C_COUT": "CCU2C",
    "tpu.core.matrix_unit.mxu.tile.$37_MULT18X18D_P9": "MULT18X18D",
    "tpu.core.matrix_unit.mxu.tile.$38_MULT18X18D_P9": "MULT18X18D",
    "tpu.core.matrix_unit.walker.$1_MULT18X18D_P9": "MULT18X18D",
    "tpu.core.accumulators$397.lines.0.0": "TRELLIS_DPR16X4",
    "tpu.registers.a_PFUMX_Z": "PFUMX",
}
SCOPES = [
    "tpu",
    "tpu.core",
    "tpu.core.fetch",
    "tpu.core.fetch.ring",
    "tpu.core.matrix_unit",
    "tpu.core.matrix_unit.mxu",
    "tpu.core.matrix_unit.mxu.tile",
    "tpu.core.matrix_unit.walker",
    "tpu.core.accumulators$397",
    "tpu.registers",
]
NETLIST = netlist_of(netlist_json(CELLS, SCOPES))


def test_cells_belong_to_the_longest_path() -> None:
    area = report.area(NETLIST, ECP5, DESIGN)
    units = {
        name: {kind: count for kind, count in unit.items() if count}
        for name, unit in area["units"].items()
    }
    assert units == {
        "fetch": {"ff": 1, "lut": 1, "block_ram": 1},
        "core": {"carry": 1, "lut": 2},
        "matrix_unit": {"dsp": 3},
        "accumulators": {"lut": 6, "lut_ram": 6},
        "registers": {},
    }
    assert area["frame"]["ff"] == 1
    assert area["resources"]["ff"] == 1
    assert area["resources"]["lut"] == 9
    assert area["modules"]["fetch.ring"]["block_ram"] == 1
    assert area["array_dsp"] == 2
    assert area["cells"]["PFUMX"] == 1


@pytest.mark.parametrize(
    ("path", "design", "name", "unit"),
    [
        ("tpu.core.accumulators$397.bank_1", "tpu", "accumulators.bank_1", "accumulators"),
        ("tpu.core", "tpu", "core", "core"),
        ("tpu", "tpu", "", "tpu"),
        ("tpu.registers.trace", "tpu", "registers.trace", "registers"),
        ("mxu.tile", "mxu", "tile", "tile"),
        ("mxu", "mxu", "", "mxu"),
        ("", "mxu", "", None),
    ],
)
def test_names(path: str, design: str, name: str, unit: str | None) -> None:
    assert plain(path, design) == name
    assert unit_of(path, design) == unit


def test_timing() -> None:
    count = "tpu.core.fetch.count_TRELLIS_FF_Q"
    carry = f"{count}_DI_LUT4_Z_1_D_CCU2C_S0$CCU2_COMB1"
    product = "tpu.core.matrix_unit.mxu.tile.$37_MULT18X18D_P9"
    path = [
        piece("clk-to-q", 0.5, count, count),
        piece("routing", 1.25, count, carry),
        piece("logic", 0.25, carry, carry),
        piece("routing", 2.0, carry, product),
        piece("setup", 0.5, product, product),
    ]
    placements = {
        seed: pnr_report(fmax, path if seed == 2 else [])
        for seed, fmax in {1: 130.0, 2: 120.0, 3: 110.0, 4: 140.0}.items()
    }
    figures = report.timing(placements, NETLIST, ECP5, DESIGN)
    assert figures["placed"] == {"TRELLIS_COMB": {"available": 100, "used": 7}}
    clock = figures["clocks"]["clk"]
    assert (clock["min"], clock["median"], clock["max"]) == (110, 120, 140)
    assert clock["seeds"] == {"1": 130, "2": 120, "3": 110, "4": 140}
    assert report.fmax(clock, digits=0) == "120 MHz (110 to 140), 4 seeds"
    assert report.fmax({**clock, "seeds": {"1": 120}}, digits=1) == "120.0 MHz, 1 seed"
    assert clock["critical_path"] == {
        "start": "fetch.count",
        "end": "matrix_unit.mxu.tile (MULT18X18D)",
        "logic": 1.25,
        "routing": 3.25,
        "steps": (
            {"name": "fetch.count", "logic": 0.75, "routing": 1.25},
            {"name": "matrix_unit.mxu.tile (MULT18X18D)", "logic": 0.5, "routing": 2.0},
        ),
    }

    area = report.area(NETLIST, ECP5, DESIGN)
    speed = report.speed({**area, **figures}, 16)
    assert speed == {"macs_per_cycle": 16, "gops": 3.84, "macs_per_dsp": 8}


def test_speed_without_place_and_route() -> None:
    area = report.area(netlist_of(netlist_json({}, ["tpu"])), ECP5, DESIGN)
    speed = report.speed(area, 16)
    assert speed == {"macs_per_cycle": 16, "gops": None, "macs_per_dsp": None}


def test_ports() -> None:
    """Check the ports found in Verilog: inputs of a function in the module are no ports."""
    text = """module unit(clk, a, b);
  input clk;
  wire clk;
  input [3:0] a;
  output [1:0] b;
  function [1:0] chosen;
    input [1:0] s;
    chosen = s;
  endfunction
endmodule
"""
    assert [(port.name, port.width) for port in ports_of(text, "unit")] == [
        ("clk", 1),
        ("a", 4),
        ("b", 2),
    ]
