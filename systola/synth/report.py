# SPDX-License-Identifier: Apache-2.0
"""The figures of a synthesised design, for JSON and as a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median_low
from typing import Any

from systola.synth.critical_path import critical_path
from systola.synth.crossings import Crossing
from systola.synth.memories import MemoryPlace
from systola.synth.netlist import Netlist, plain, unit_of
from systola.synth.resources import Kind, resources
from systola.synth.targets import Target

_ARRAY = "mxu"
"""Name of the module with the array."""

_SHOWN = 12
"""Number of unregistered paths that the text shows; JSON has all of them."""

_COLUMNS = {
    Kind.LUT: "LUT",
    Kind.CARRY: "carry",
    Kind.LUT_RAM: "LUT RAM",
    Kind.FF: "FF",
    Kind.DSP: "DSP",
    Kind.BLOCK_RAM: "RAM",
    Kind.LARGE_RAM: "large RAM",
}


def area(netlist: Netlist, target: Target, design: str) -> dict[str, Any]:
    """Return the resources of the design, of each of its parts, and of the frame around it."""
    units: dict[str, Counter[str]] = defaultdict(Counter)
    modules: dict[str, Counter[str]] = defaultdict(Counter)
    frame: Counter[str] = Counter()
    total: Counter[str] = Counter()
    array: Counter[str] = Counter()
    for scope, cells in netlist.by_scope.items():
        unit = unit_of(scope, design)
        if unit is None:
            frame += cells
            continue
        total += cells
        if _ARRAY in scope.split("."):
            array += cells
        units[unit] += cells
        modules[plain(scope, design) or design] += cells
    return {
        "resources": _figures(target, total),
        "available": {kind.value: count for kind, count in target.capacity.items()},
        "units": {name: _figures(target, cells) for name, cells in sorted(units.items())},
        "modules": {name: _figures(target, cells) for name, cells in sorted(modules.items())},
        "frame": _figures(target, frame),
        "cells": dict(sorted(total.items())),
        "array_dsp": _figures(target, array)[Kind.DSP.value],
    }


def lacks(figures: Mapping[str, Any]) -> list[str]:
    """Return the resources that the device has too few of, for the design and its frame.

    The text for a resource has a few words, such as the number needed and the number available.
    """
    found: list[str] = []
    for kind, name in _COLUMNS.items():
        need = figures["resources"][kind.value] + figures["frame"][kind.value]
        room = figures["available"].get(kind.value)
        if room is not None and need > room:
            found.append(f"{_cell(need)} {name} of {_cell(room)}")
    return found


def timing(
    placements: Mapping[int, Mapping[str, Any]], netlist: Netlist, target: Target, design: str
) -> dict[str, Any]:
    """Return Fmax of each clock over the seeds, in MHz, and the critical path at the median."""
    clocks: dict[str, Any] = {}
    for clock in next(iter(placements.values()))["fmax"]:
        reached = {seed: report["fmax"][clock]["achieved"] for seed, report in placements.items()}
        middle = median_low(reached.values())
        seed = next(seed for seed, value in reached.items() if value == middle)
        path = critical_path(placements[seed], clock, netlist, target.fabric, design)
        clocks[_clock_name(clock)] = {
            "seeds": {str(seed): round(value, 2) for seed, value in reached.items()},
            "min": round(min(reached.values()), 2),
            "median": round(middle, 2),
            "max": round(max(reached.values()), 2),
            "critical_path": asdict(path) if path else None,
        }
    utilisation = next(iter(placements.values()))["utilization"]
    return {
        "clocks": clocks,
        "placed": {name: used for name, used in utilisation.items() if used["used"]},
    }


def fmax(clock: Mapping[str, Any], *, digits: int) -> str:
    """Write the frequency of a clock in words, from an entry of `timing`.

    The text has the median. If there are several seeds, it also has the spread.
    """
    seeds = len(clock["seeds"])
    low, middle, high = (f"{clock[key]:.{digits}f}" for key in ("min", "median", "max"))
    return f"{middle} MHz" + (", 1 seed" if seeds == 1 else f" ({low} to {high}), {seeds} seeds")


def speed(figures: Mapping[str, Any], macs: int) -> dict[str, Any]:
    """Return the speed of the arrays at this clock, and the multiply-accumulates for each DSP
    block.

    `macs` is the number of multiply-accumulates in a cycle.
    """
    dsp = figures["array_dsp"]
    clocks = figures.get("clocks") or {}
    # The slowest clock counts, since the machine has a single clock.
    fmax = min((clock["median"] for clock in clocks.values()), default=None)
    return {
        "macs_per_cycle": macs,
        "gops": round(2 * macs * fmax / 1000, 2) if fmax else None,
        "macs_per_dsp": round(macs / dsp, 3) if dsp else None,
    }


def text(figures: Mapping[str, Any]) -> str:
    """Write the figures as text for people."""
    available = figures["available"]
    total = figures["resources"]
    kinds = [k for k in _COLUMNS if k.value in available or total[k.value]]
    share = {
        k.value: f"{100 * total[k.value] / available[k.value]:.0f} %"
        for k in kinds
        if available.get(k.value)
    }
    rows = [["", *(_COLUMNS[kind] for kind in kinds)]]
    ordered = sorted(figures["units"].items(), key=lambda item: -item[1]["lut"])
    for name, unit in [*ordered, ("total", total), ("device", available), ("used", share)]:
        rows.append([name, *(_cell(unit.get(kind.value)) for kind in kinds)])
    what = "the whole machine"
    if figures["unit"]:
        what = f"{figures['unit']} alone"
    elif figures["cores"]:
        what = f"a pod of {figures['cores']} cores"
    lines = [
        f"{figures['device']}: preset '{figures['preset']}', {what}"
        + (f", speed {figures['speed']}" if figures["speed"] else ""),
        "",
        *_aligned(rows),
        "",
    ]
    small = [m for m in figures["memories"] if m["place"] != "block RAM"]
    lines.append(
        f"memories: {len(figures['memories']) - len(small)} inferred in block RAM"
        + "".join(f"; {m['name']}, {m['bits']} bits, in {m['place']}" for m in small)
    )
    if crossings := figures["crossings"]:
        lines.append(
            f"unregistered paths between units: {crossings['count']}, "
            f"{crossings['through_a_third_unit']} of them through a third"
            + (f"; the first {_SHOWN}:" if crossings["count"] > _SHOWN else "")
        )
        lines += [f"  {Crossing(**crossing)}" for crossing in crossings["list"][:_SHOWN]]
    for name, clock in (figures.get("clocks") or {}).items():
        lines.append(f"clock {name}: {fmax(clock, digits=1)}")
        if path := clock["critical_path"]:
            lines.append(
                f"  critical path: {path['start']} -> {path['end']}, "
                f"{path['logic']:.2f} ns logic, {path['routing']:.2f} ns routing"
            )
            lines += [
                f"    {step['logic']:5.2f} + {step['routing']:5.2f}  {step['name']}"
                for step in path["steps"]
            ]
    if figures["gops"]:
        lines.append(f"peak: {figures['gops']:.2f} GOPS (2 x {figures['macs_per_cycle']} MACs)")
    if figures["macs_per_dsp"]:
        lines.append(f"MACs per DSP of the array: {figures['macs_per_dsp']:g}")
    return "\n".join(lines)


def memory_figures(memories: Sequence[MemoryPlace]) -> list[dict[str, Any]]:
    """Return the memories for JSON."""
    return [asdict(memory) for memory in memories]


def crossing_figures(crossings: Sequence[Crossing]) -> dict[str, Any]:
    """Return the unregistered paths between units for JSON."""
    third = [c for c in crossings if set(c.through) - {c.start, c.end}]
    return {
        "count": len(crossings),
        "through_a_third_unit": len(third),
        "list": [asdict(crossing) for crossing in crossings],
    }


def _figures(target: Target, cells: Mapping[str, int]) -> dict[str, float]:
    used = resources(target.fabric, cells)
    return {kind.value: used[kind] for kind in Kind}


def _clock_name(name: str) -> str:
    """Remove nextpnr's additions from a name: `$glbnet$clk`, `mxu.clk$SB_IO_IN_$glb_clk`."""
    return name.removeprefix("$glbnet$").split("$")[0].split(".")[-1] or name


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,g}" if value % 1 else f"{value:,.0f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
