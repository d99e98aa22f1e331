# SPDX-License-Identifier: Apache-2.0
"""The synthesis from Verilog to a netlist of an FPGA's cells, with Yosys."""

from __future__ import annotations

import json
from pathlib import Path

from systola.hdl.parts.fabric import Fabric
from systola.sim.build import content_key
from systola.synth.ecp5_delays import MODELS, mapping
from systola.synth.netlist import top_module
from systola.synth.targets import Target
from systola.synth.tools import Tool, run_tool

SOURCE, NETLIST, MEMORIES, LOG = "design.v", "netlist.json", "memories.txt", "yosys.log"


def synthesise(tool: Tool, target: Target, verilog: str, top: str, folder: Path) -> None:
    """Leave SOURCE, NETLIST, MEMORIES (all memories before they are mapped) and LOG in `folder`.

    Nothing is done if the folder already has the result of the same text, options and tool.
    """
    script = _script(target, top)
    key = content_key(verilog, script, target.models, tool.version)
    stamp = folder / "netlist.key"
    if stamp.exists() and stamp.read_text() == key:
        return
    stamp.unlink(missing_ok=True)
    (folder / SOURCE).write_text(verilog)
    (folder / MODELS).write_text(target.models)
    (folder / "yosys.ys").write_text(script)
    run_tool(tool, ("yosys.ys",), folder=folder, log=LOG, what=f"synthesis ({tool.version})")
    if target.fabric is Fabric.NEXUS:
        _leave_carry_in_open(folder / NETLIST)
    stamp.write_text(key)


def _leave_carry_in_open(path: Path) -> None:
    """Remove the constants from the carry inputs at which the carry chains of a Nexus begin.

    The techmap of Yosys leaves such an input open, but later passes tie it to zero. nextpnr needs
    it open.
    """
    design = json.loads(path.read_text())
    cells = top_module(design)["cells"].values()
    constants: set[object] = {"0", "1", "x"}
    for cell in cells:
        if cell["type"] in ("VHI", "VLO"):
            constants |= set(cell["connections"]["Z"])
    for cell in cells:
        if cell["type"] == "CCU2" and set(cell["connections"].get("CIN", ())) <= constants:
            cell["connections"].pop("CIN", None)
            cell["port_directions"].pop("CIN", None)
    path.write_text(json.dumps(design))


def _script(target: Target, top: str) -> str:
    command, step = f"{target.synthesis} -top {top}", target.memory_step
    rest = mapping(command, step) if target.models else [f"{command} -run {step}:"]
    return "\n".join(
        (
            f"read_verilog {SOURCE}",
            f"{command} -run :{step}",
            f"tee -q -o {MEMORIES} dump t:$mem_v2",
            *rest,
            "autoname",  # only some families' commands end with autoname
            f"write_json {NETLIST}",
            "",
        )
    )
