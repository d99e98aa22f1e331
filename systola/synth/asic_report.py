# SPDX-License-Identifier: Apache-2.0
"""Area, registers and memories by unit, from a netlist of a standard-cell library's cells."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from systola.arch.pages import table
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.removed_registers import Removed

RESULTS = Path(__file__).with_name("asic.json")
MEMORY = "sram_1r1w"
DEPTH = 2
"""Number of levels of the hierarchy that are shown.

With 2 levels there is a unit `core.mxu`, but no unit inside it.
"""
_CELL = re.compile(r"\bcell\s*\(\s*\"?(\w+)\"?\s*\)\s*\{")
_AREA = re.compile(r"\barea\s*:\s*([\d.eE+-]+)")
_FLIP_FLOP = re.compile(r"\bff\s*\(")


@dataclass(frozen=True)
class Library:
    """A library of cells, from a Liberty file."""

    areas: dict[str, float]
    """Area of each cell, in the unit of the file, usually um2."""
    registers: frozenset[str]
    """Names of the flip-flops."""


@dataclass(frozen=True)
class Unit:
    """A unit, with all cells in it that belong to no smaller unit."""

    name: str
    area: float
    registers: int
    cells: int


@dataclass(frozen=True)
class Memory:
    """A group of memories of one size in a unit; they are black boxes in the netlist."""

    unit: str
    width: int
    depth: int
    count: int

    @property
    def bits(self) -> int:
        """Bits of all memories of the group together."""
        return self.width * self.depth * self.count


@dataclass(frozen=True)
class Timing:
    """The slowest path between registers, without wires and memories."""

    slack: float
    """Slack in nanoseconds."""
    start: str
    end: str


@dataclass(frozen=True)
class Report:
    """A report of the area of a machine, or of a unit, in the cells of a library."""

    preset: str
    top: str
    library: str
    tools: list[str]
    ns: float
    units: list[Unit]
    memories: list[Memory]
    removed: list[Removed]
    """Registers of the Verilog that the netlist does not have."""
    timing: Timing | None
    """Slowest path; None if the report was made without OpenSTA."""
    date: str
    commit: str

    @property
    def area(self) -> float:
        """The area of all cells."""
        return sum(unit.area for unit in self.units)


def read_library(path: Path) -> Library:
    """Read the cells of a Liberty file.

    Raises SynthesisUsageError for a file without flip-flops that have an area.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SynthesisUsageError(f"{path}: {error.strerror}") from None
    begins = list(_CELL.finditer(text))
    ends = [*(found.start() for found in begins[1:]), len(text)]
    bodies = {b[1]: text[b.end() : end] for b, end in zip(begins, ends, strict=False)}
    areas = {name: float(a[1]) for name, body in bodies.items() if (a := _AREA.search(body))}
    registers = frozenset(name for name, body in bodies.items() if _FLIP_FLOP.search(body))
    if not registers & areas.keys():
        raise SynthesisUsageError(f"{path} is no Liberty file with flip-flops and areas")
    return Library(areas, registers)


def read_units(
    design: dict[str, Any], top: str, library: Library
) -> tuple[list[Unit], list[Memory]]:
    """Return units and memories of a netlist in the JSON of Yosys, the largest units first.

    Raises SynthesisError for a cell that is neither in the library nor a module.
    """
    sums: dict[str, Counter[str]] = {}
    memories: Counter[tuple[str, int, int]] = Counter()

    def walk(module: str, path: tuple[str, ...]) -> None:
        unit = ".".join(path[:DEPTH]) or top
        here = sums.setdefault(unit, Counter())
        for name, cell in design["modules"][module]["cells"].items():
            kind = cell["type"]
            if kind == MEMORY:
                width, depth = (int(cell["parameters"][key], 2) for key in ("WIDTH", "DEPTH"))
                memories[unit, width, depth] += 1
            elif kind in library.areas:
                here["area"] += library.areas[kind]  # type: ignore[assignment]
                here["cells"] += 1
                here["registers"] += kind in library.registers
            elif kind in design["modules"]:
                walk(kind, (*path, name))
            else:
                raise SynthesisError(f"the netlist has a cell '{kind}' that is not of the library")

    walk(top, ())
    units = [Unit(name, c["area"], c["registers"], c["cells"]) for name, c in sums.items()]
    units.sort(key=lambda unit: -unit.area)
    return units, [Memory(*key, count) for key, count in sorted(memories.items())]


def stored(path: Path = RESULTS) -> list[Report]:
    """Return the last report of each design and library."""
    if not path.exists():
        return []
    return [
        Report(
            **{
                **each,
                "units": [Unit(**unit) for unit in each["units"]],
                "memories": [Memory(**memory) for memory in each["memories"]],
                "removed": [Removed(**removed) for removed in each["removed"]],
                "timing": each["timing"] and Timing(**each["timing"]),
            }
        )
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]


def store(report: Report, path: Path = RESULTS) -> None:
    """Store a report; it replaces an older report of the same design and library."""
    key = (report.preset, report.top, report.library)
    others = [each for each in stored(path) if (each.preset, each.top, each.library) != key]
    reports = sorted([*others, report], key=lambda each: (each.preset, each.top, each.library))
    text = json.dumps([asdict(each) for each in reports], indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def report_table(report: Report) -> str:
    """Return a report as Markdown."""
    total = report.area
    bits: Counter[str] = Counter()
    for memory in report.memories:
        bits[memory.unit] += memory.bits
    rows = [
        (
            f"`{unit.name}`",
            f"{unit.area:,.0f}",
            f"{100 * unit.area / total:.1f} %",
            f"{unit.cells:,}",
            f"{unit.registers:,}",
            f"{bits[unit.name]:,}" if bits[unit.name] else "",
        )
        for unit in report.units
        if unit.cells or bits[unit.name]
    ]
    sums = [sum(unit.cells for unit in report.units), sum(unit.registers for unit in report.units)]
    rows.append(
        (
            "**all**",
            f"{total:,.0f}",
            "100 %",
            *(f"{each:,}" for each in sums),
            f"{bits.total():,}",
        )
    )
    lines = table(("unit", "area, um2", "share", "cells", "registers", "bits of memories"), rows)
    text = f"`{report.preset}`"
    if report.top != "tpu":
        text += f", `{report.top}` alone"
    text += f", library {report.library}, {', '.join(report.tools)}, {report.date}, {report.commit}"
    if report.timing:
        slack = report.timing.slack
        text += (
            f". Slack {slack:.2f} ns of {report.ns:g} ns, from `{report.timing.start}` to "
            f"`{report.timing.end}`"
        )
    return f"{text}.\n\n{lines}"
