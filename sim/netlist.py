# SPDX-License-Identifier: Apache-2.0
"""The netlist that Yosys makes of Verilog, as Verilog for a simulator."""

from __future__ import annotations

from pathlib import Path

from systola.hdl.fabric import Fabric
from systola.sim.build import built_once, content_key
from systola.sim.primitives import models_of
from systola.synth.tools import find_tool, run_tool

_LOOKUP_TABLE = r"""
module LUT4 (input A, B, C, D, output Z);
  parameter INIT = 0;
  \$lut #(.WIDTH(4), .LUT(INIT)) _TECHMAP_REPLACE_ (.A({D, C, B, A}), .Y(Z));
endmodule
"""
"""A quarter of the text that Yosys' own model gives, and the same."""

# Carry chains and flip-flops become what Yosys' models say that they do.
_ECP5 = """
synth_ecp5 -top {top} -noiopad
techmap -map lookup_table.v
techmap -autoproc -map +/ecp5/cells_sim.v t:DP16KD t:MULT18X18D %u %n
opt_expr
"""
# Gates and flip-flops, memories left as they are: what a chip makes of them is a matter of macros.
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
"""What `make sim NETLIST=` takes: gates of a generic library, or cells of an FPGA."""


def netlist_of(verilog: str, top: str, fabric: Fabric) -> str:
    """Module `top` after synthesis for one of NETLISTS, with models of the blocks in it.

    Flat, with the ports of `verilog`, which has been generated for `fabric`. From the cache where
    the same text has been synthesised before; a whole machine takes minutes. Raises
    SynthesisUsageError where Yosys is missing, and SynthesisError.
    """
    yosys = find_tool("yosys")
    script = "\n".join(
        (
            "read_verilog design.v",
            _SCRIPTS[fabric].format(top=top).strip(),
            "splitnets",  # one bit of a wire may depend on another
            "rename -hide w:* x:* %d",
            "opt_clean -purge",
            "write_verilog -noattr netlist.v",
            "",
        )
    )

    def make(work: Path) -> Path:
        (work / "design.v").write_text(verilog)
        (work / "lookup_table.v").write_text(_LOOKUP_TABLE)
        (work / "netlist.ys").write_text(script)
        what = f"synthesis of '{top}' for {fabric.value}"
        run_tool(yosys, ("-q", "netlist.ys"), folder=work, log="yosys.log", what=what)
        return work / "netlist.v"

    key = content_key(yosys.version, script, _LOOKUP_TABLE, verilog)
    what = f"netlist of '{top}' for {fabric.value}"
    text = built_once("netlist", f"{key}.v", what, make).read_text()
    # Pins of a block that nothing is connected to.
    return f"// verilator lint_off PINMISSING\n{text}\n{models_of(text)}"
