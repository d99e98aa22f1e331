# SPDX-License-Identifier: Apache-2.0
"""From a netlist to clock frequencies, with nextpnr, once for each seed of the placement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from systola.sim.build import content_key
from systola.synth.floorplan import constrain
from systola.synth.synthesis import NETLIST
from systola.synth.targets import PINS, Target
from systola.synth.tools import Tool, run_tool

FLOORPLAN = "floorplan.json"
"""The netlist with places for some of its cells."""


def place_and_route(
    tool: Tool, target: Target, speed: str, seeds: int, folder: Path, *, whole: bool
) -> dict[int, dict[str, Any]]:
    """nextpnr's reports on the netlist in `folder`, of the `whole` machine or a unit, for the seeds
    1 to `seeds`."""
    netlist, options, frequency = NETLIST, target.options, target.frequency
    if whole:
        options += target.machine_options
        frequency = target.machine_frequency or frequency
        if target.dsp_blocks:
            netlist = FLOORPLAN
            design = json.loads((folder / NETLIST).read_text())
            constrain(design, target.dsp_blocks)
            (folder / netlist).write_text(json.dumps(design))
    (folder / PINS).write_text(target.pins)
    content = (folder / netlist).read_bytes()
    reports: dict[int, dict[str, Any]] = {}
    for seed in range(1, seeds + 1):
        name = f"seed_{seed}{'_speed_' + speed if speed else ''}"
        report = folder / f"{name}.json"
        arguments = [
            *(option.format(speed=speed) for option in options),
            *("--json", netlist, "--seed", str(seed), "--freq", str(frequency)),
            *("--report", report.name, "--timing-allow-fail"),
        ]
        key = content_key(content, repr(arguments), target.pins, tool.version)
        stamp = folder / f"{name}.key"
        if not (stamp.exists() and stamp.read_text() == key):
            stamp.unlink(missing_ok=True)
            what = f"place and route {seed} of {seeds} ({tool.version})"
            run_tool(tool, arguments, folder=folder, log=f"{name}.log", what=what)
            stamp.write_text(key)
        reports[seed] = json.loads(report.read_text())
    return reports
