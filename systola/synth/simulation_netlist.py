# SPDX-License-Identifier: Apache-2.0
"""A netlist that Yosys makes of Verilog, as Verilog for a simulator."""

from __future__ import annotations

from pathlib import Path

from systola.hdl.parts.fabric import Fabric
from systola.sim.build import built_once, content_key
from systola.sim.netlist import MARK
from systola.sim.primitives import models_of
from systola.synth.ecp5_delays import MODELS, ecp5_models, mapping
from systola.synth.tools import find_tool, run_tool

_CELLS = r"""
module LUT4 (input A, B, C, D, output Z);
  parameter INIT = 0;
  \$lut #(.WIDTH(4), .LUT(INIT)) _TECHMAP_REPLACE_ (.A({D, C, B, A}), .Y(Z));
endmodule

module CCU2C (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
  parameter [15:0] INIT0 = 0, INIT1 = 0;
  parameter INJECT1_0 = "YES", INJECT1_1 = "YES";
  wire half;
  CCU2C_half #(.INIT(INIT0), .INJECT(INJECT1_0)) half_0 (
      .A(A0), .B(B0), .C(C0), .D(D0), .CIN(CIN), .S(S0), .COUT(half)
  );
  CCU2C_half #(.INIT(INIT1), .INJECT(INJECT1_1)) half_1 (
      .A(A1), .B(B1), .C(C1), .D(D1), .CIN(half), .S(S1), .COUT(COUT)
  );
endmodule

module CCU2C_half (input A, B, C, D, CIN, output S, COUT);
  parameter [15:0] INIT = 0;
  parameter INJECT = "YES";
  wire propagate, generated;
  \$lut #(.WIDTH(4), .LUT(INIT)) whole (.A({D, C, B, A}), .Y(propagate));
  \$lut #(.WIDTH(2), .LUT(INIT[3:0])) pair (.A({B, A}), .Y(generated));
  assign S = INJECT == "YES" ? propagate : propagate ^ CIN;
  assign COUT = propagate ? CIN : INJECT == "YES" ? 1'b0 : generated;
endmodule
"""
"""Models of look-up tables and carry chains, equal to Yosys' own models but a quarter as long."""

# Flip-flops and memories in LUTs are replaced by Yosys' models of them.
_ECP5 = (
    "\n".join(mapping("synth_ecp5 -top {top} -noiopad"))
    + """
techmap -map cells.v
techmap -autoproc -map +/ecp5/cells_sim.v t:DP16KD t:MULT18X18D %u %n
opt_expr
opt_dff
"""
)
# A netlist of gates and flip-flops. Memories stay as they are, because a chip makes them of macros.
_GENERIC = """
synth -top {top} -flatten -run begin:fine
opt -fast -full
techmap
opt -fast
abc
opt -fast
"""
_SCRIPTS = {Fabric.GENERIC: _GENERIC, Fabric.ECP5: _ECP5}
NETLISTS = tuple(fabric.value for fabric in _SCRIPTS)
"""Values of `make sim NETLIST=`: gates of a generic library, or cells of an FPGA."""


def netlist_of(verilog: str, top: str, fabric: Fabric) -> str:
    """Return module `top` after synthesis for one of NETLISTS, with models of the blocks in it.

    The result is flat, with the ports of `verilog`, which has been generated for `fabric`. It comes
    from the cache if the same text has been synthesised before; a whole machine takes minutes.
    Raises SynthesisUsageError if Yosys is missing, and SynthesisError if it fails.
    """
    yosys, models = find_tool("yosys"), ecp5_models()
    script = "\n".join(
        (
            "read_verilog design.v",
            _SCRIPTS[fabric].format(top=top).strip(),
            "splitnets",  # one bit of a wire may depend on another, so each becomes a wire
            "rename -hide w:* x:* %d",
            "opt_clean -purge",
            "write_verilog -noattr netlist.v",
            "",
        )
    )

    def make(work: Path) -> Path:
        (work / "design.v").write_text(verilog)
        (work / "cells.v").write_text(_CELLS)
        (work / MODELS).write_text(models)
        (work / "netlist.ys").write_text(script)
        what = f"synthesis of '{top}' for {fabric.value}"
        run_tool(yosys, ("netlist.ys",), folder=work, log="yosys.log", what=what)
        return work / "netlist.v"

    key = content_key(yosys.version, script, _CELLS, models, verilog)
    what = f"netlist of '{top}' for {fabric.value}"
    text = built_once("netlist", f"{key}.v", what, make).read_text()
    # Some pins of a block are not connected, about which Verilator would warn.
    return f"{MARK}// verilator lint_off PINMISSING\n{text}\n{models_of(text)}"
