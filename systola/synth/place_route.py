# SPDX-License-Identifier: Apache-2.0
"""The step from a netlist to clock frequencies, with nextpnr, once for each seed of the placement.

A whole machine on an ECP5 has more help. Multipliers get their places before (floorplan), and the
placement is improved before nextpnr routes (refine).
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from systola.sim.build import content_key
from systola.synth.floorplan import constrain
from systola.synth.refine.refine import refine
from systola.synth.synthesis import NETLIST
from systola.synth.targets import PINS, Target
from systola.synth.tools import Tool, run_tool

FLOORPLAN = "floorplan.json"
"""Name of the netlist with places for some of its cells."""
PLACED = "placed.json"
"""Name of the netlist that nextpnr writes between placing and routing."""


def place_and_route(
    tool: Tool,
    target: Target,
    speed: str,
    seeds: int,
    folder: Path,
    *,
    whole: bool,
    frequency: int | None = None,
) -> dict[int, dict[str, Any]]:
    """Return nextpnr's reports on the netlist in `folder`, by seed, for the seeds 1 to `seeds`.

    The netlist is the `whole` machine or a unit. nextpnr is asked to reach `frequency` MHz, or the
    target's default.
    """
    netlist, options, usual = NETLIST, target.options, target.frequency
    blocks, helpers = None, ""
    if whole:
        options += target.machine_options
        usual = target.machine_frequency or usual
        blocks = target.dsp_blocks
    frequency = frequency or usual
    if blocks:
        netlist, helpers = FLOORPLAN, _helpers()
        design = json.loads((folder / NETLIST).read_text())
        constrain(design, blocks)
        (folder / netlist).write_text(json.dumps(design))
    (folder / PINS).write_text(target.pins)
    content = (folder / netlist).read_bytes()
    reports: dict[int, dict[str, Any]] = {}
    for seed in range(1, seeds + 1):
        name = f"seed_{seed}{'_speed_' + speed if speed else ''}"
        report = folder / f"{name}.json"
        chosen = [
            *(option.format(speed=speed) for option in options),
            *("--freq", str(frequency), "--timing-allow-fail"),
        ]
        place = ["--json", netlist, "--seed", str(seed)]
        key = content_key(
            content,
            repr([*chosen, *place]),
            target.pins,
            tool.version,
            helpers,
        )
        stamp = folder / f"{name}.key"
        if not (stamp.exists() and stamp.read_text() == key):
            stamp.unlink(missing_ok=True)
            routed = "place and route"
            if blocks:
                what = f"place {seed} of {seeds} ({tool.version})"
                leave = ["--no-route", "--write", PLACED]
                log = f"{name}_placement.log"
                run_tool(tool, [*chosen, *place, *leave], folder=folder, log=log, what=what)
                _improve(folder / PLACED, seed, frequency, f"improve {seed} of {seeds}")
                routed, place = "route", ["--json", PLACED, "--no-pack", "--no-place"]
            arguments = [*chosen, *place, "--report", report.name]
            what = f"{routed} {seed} of {seeds} ({tool.version})"
            run_tool(tool, arguments, folder=folder, log=f"{name}.log", what=what)
            stamp.write_text(key)
        reports[seed] = json.loads(report.read_text())
    return reports


def _improve(file: Path, seed: int, frequency: int, what: str) -> None:
    """Refine the placement in a file."""
    design = json.loads(file.read_text())
    refine(design, seed=seed, frequency=frequency, what=what)
    file.write_text(json.dumps(design))


def _helpers() -> str:
    """Return the text of the code that improves placements: other code gives other results."""
    modules = files("systola.synth.refine").iterdir()
    return "".join(sorted(m.read_text() for m in modules if m.name.endswith(".py")))
