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
"""The names of the whole machine and of several in a ring, where units have theirs."""


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
    """All figures of the machine, of one unit, or of a pod of `cores` machines, on a target; also
    left as report.json.

    Places with the seeds 1 to `seeds`; none: synthesis only. nextpnr is asked to reach `frequency`
    MHz, the target's choice if None. Everything that the tools wrote stays
    in build/synth/, and is used again as long as the same would come out.
    What does not fit is not placed, and `lacks` says what there is too little of.
    Raises SynthesisUsageError, and SynthesisError when a tool fails or a memory is in the wrong
    place.
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
        if unit or cores  # of a pod: those of its cores
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
    """The name of a design: that of its folder in build/synth/, where all its files are."""
    several = f"{cores}_cores" if cores else None
    return "_".join(filter(None, (target.name, config.name, unit, several)))
