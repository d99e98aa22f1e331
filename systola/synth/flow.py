# SPDX-License-Identifier: Apache-2.0
"""A design on an FPGA, from its configuration to all figures."""

from __future__ import annotations

import json
from typing import Any

from systola.arch.config import Config
from systola.hdl.parts.fabric import Fabric
from systola.sim.build import build_folder
from systola.synth import report
from systola.synth.crossings import find_crossings
from systola.synth.harness import TOP, harness
from systola.synth.memories import check_memories, inferred_memories
from systola.synth.netlist import read_netlist
from systola.synth.place_route import place_and_route
from systola.synth.synthesis import LOG, MEMORIES, NETLIST, synthesise
from systola.synth.targets import Target
from systola.synth.tools import find_tool
from systola.synth.units import check_unit, design_of

MACHINE, POD = "tpu", "pod"
"""Design names of the whole machine, and of several machines in a ring; units have their own names.
"""


def measure(
    target: Target,
    config: Config,
    *,
    unit: str | None,
    speed: str | None,
    seeds: int,
    cores: int | None = None,
    frequency: int | None = None,
) -> dict[str, Any]:
    """Return all figures of the machine, of one unit, or of a pod of `cores` machines, on a target.

    The figures are written to report.json, too. The design is placed with the seeds 1 to `seeds`;
    with 0 it is only synthesised. nextpnr is asked to reach `frequency` MHz; None is the target's
    choice. All output of the tools stays in build/synth/, and is used again as long as its inputs
    are the same. A design that does not fit is not placed, and `lacks` lists the missing resources.
    Raises SynthesisUsageError for a mistake by the user. Raises SynthesisError if a tool fails or a
    memory is in the wrong place.
    """
    grade = target.speed(speed)
    check_unit(unit, cores)
    yosys = find_tool("yosys")
    nextpnr = find_tool(target.place_and_route) if target.place_and_route and seeds else None

    design = unit or (POD if cores else MACHINE)
    folder = build_folder("synth", folder_name(target, config, unit, cores))
    verilog = design_of(config, unit, target.fabric, cores)
    synthesise(yosys, target, verilog + "\n" + harness(verilog, design), TOP, folder)

    netlist = read_netlist(folder / NETLIST)
    memories = inferred_memories(
        (folder / MEMORIES).read_text(), (folder / LOG).read_text(), TOP, design
    )
    figures: dict[str, Any] = {
        "target": target.name,
        "device": target.device,
        "speed": grade,
        "preset": config.name,
        "unit": unit,
        "cores": cores,
        "tools": [tool.version for tool in (yosys, nextpnr) if tool],
        **report.area(netlist, target, design),
        "memories": report.memory_figures(memories),
        "crossings": None
        if unit or cores  # for a pod, see the crossings of its cores
        else report.crossing_figures(
            find_crossings(yosys, design_of(config, None, Fabric.GENERIC), design, folder)
        ),
    }
    check_memories(memories, target.fabric)
    figures["lacks"] = report.lacks(figures)
    if nextpnr and not figures["lacks"]:
        placements = place_and_route(
            nextpnr, target, grade, seeds, folder, whole=unit is None, frequency=frequency
        )
        figures |= report.timing(placements, netlist, target, design)
    figures |= report.speed(figures, (cores or 1) * config.peak_macs)
    (folder / "report.json").write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def folder_name(target: Target, config: Config, unit: str | None, cores: int | None) -> str:
    """Return the name of a design's folder in build/synth/, which has all its files."""
    several = f"{cores}_cores" if cores else None
    return "_".join(filter(None, (target.name, config.name, unit, several)))
