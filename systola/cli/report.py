# SPDX-License-Identifier: Apache-2.0
"""Results as text for people and as JSON for tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from systola.arch.registers import CycleClass
from systola.runtime.report import Report

BAR_WIDTH = 30


def to_json(figures: Mapping[str, object]) -> bytes:
    """Return `figures` as an indented JSON object with a line feed at the end."""
    return (json.dumps(figures, indent=2) + "\n").encode()


def cycle_table(counters: Mapping[str, int]) -> str:
    """Write all cycles by cause, one line each with a bar; classes without any are left out."""
    total = sum(counters.values()) or 1
    lines: list[str] = []
    for which in CycleClass:
        name = which.name.lower()
        count = counters.get(name, 0)
        if count:
            bar = "█" * max(1, round(BAR_WIDTH * count / total))
            label = name.replace("_", " ")
            lines.append(f"  {label:<18}{count:>12,} {100 * count / total:6.2f} %  {bar}")
    lines.append(f"  {'total':<18}{sum(counters.values()):>12,} {100:6.2f} %")
    return "\n".join(lines)


def energy_figures(report: Report) -> dict[str, object]:
    """Return counts and energy of one inference, for JSON."""
    return {
        "activity": asdict(report.activity),
        "energy": {each.technology: each.figures() for each in report.energy},
    }
