# SPDX-License-Identifier: Apache-2.0
"""The step from a netlist to clock frequencies, with nextpnr, once for each placement seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from systola.sim.build import content_key
from systola.synth.synthesis import NETLIST
from systola.synth.targets import PINS, Target
from systola.synth.tools import Tool, run_tool


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
    usual = (whole and target.machine_frequency) or target.frequency
    (folder / PINS).write_text(target.pins)
    content = (folder / NETLIST).read_bytes()
    reports: dict[int, dict[str, Any]] = {}
    for seed in range(1, seeds + 1):
        name = f"seed_{seed}{'_speed_' + speed if speed else ''}"
        report = folder / f"{name}.json"
        arguments = [
            *(option.format(speed=speed) for option in target.options),
            *("--freq", str(frequency or usual), "--timing-allow-fail"),
            *("--json", NETLIST, "--seed", str(seed), "--report", report.name),
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
