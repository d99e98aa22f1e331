# SPDX-License-Identifier: Apache-2.0
"""The speed of the simulation: only these figures depend on the computer that measures them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from systola.arch.pages import filled
from systola.bench.moment import commit, computer, today
from systola.bench.table import README

SPEEDS = Path(__file__).with_name("speed.json")


@dataclass(frozen=True)
class Speed:
    """A product on the Verilated library, on one core: the result of `command`."""

    product: str
    cycles: int
    cycles_per_second: int
    computer: str
    date: str
    commit: str
    command: str


def stored() -> dict[str, Speed]:
    """Return the speeds by preset; presets that were never measured are missing."""
    if not SPEEDS.exists():
        return {}
    content = json.loads(SPEEDS.read_text(encoding="utf-8"))
    return {preset: Speed(**speed) for preset, speed in content.items()}


def store(preset: str, product: str, cycles: int, rate: float, command: str) -> None:
    """Store a new measurement in place of the last one, and write it to the page."""
    now = Speed(product, cycles, round(rate), computer(), today(), commit(), command)
    speeds = stored() | {preset: now}
    content = {name: asdict(speed) for name, speed in sorted(speeds.items())}
    SPEEDS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    README.write_text(filled(README, speed=table(speeds)), encoding="utf-8")


def table(speeds: dict[str, Speed]) -> str:
    """Write the speeds as a Markdown table."""
    lines = [
        "| preset | product | cycles | simulated cycles a second | on | when | command |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{preset}` | {speed.product} | {speed.cycles:,} | {speed.cycles_per_second:,} "
        f"| {speed.computer} | {speed.date}, {speed.commit} | `{speed.command}` |"
        for preset, speed in sorted(speeds.items())
    ]
    return "\n".join(lines)
