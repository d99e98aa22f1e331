# SPDX-License-Identifier: Apache-2.0
"""The slowest path of a placed design, in the names of the design's own modules and signals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from systola.hdl.parts.fabric import Fabric
from systola.synth.netlist import Netlist, plain
from systola.synth.resources import Kind, resources

_PIECES = re.compile(r"\$(?=[A-Za-z]).*")
"""Pattern of the text that nextpnr appends when it splits a cell."""


@dataclass(frozen=True)
class Step:
    """A part of a path: the signal or block that it goes through, and nanoseconds in it."""

    name: str
    logic: float
    routing: float


@dataclass(frozen=True)
class CriticalPath:
    """A path from a register to a register; `logic` and `routing` are nanoseconds of the whole
    path.
    """

    start: str
    end: str
    logic: float
    routing: float
    steps: tuple[Step, ...]


def critical_path(
    report: Mapping[str, Any], clock: str, netlist: Netlist, fabric: Fabric, design: str
) -> CriticalPath | None:
    """Find the slowest path within one clock in a report of nextpnr; None if there is none."""
    for path in report["critical_paths"]:
        if path["path"] and path["from"].split()[-1] == path["to"].split()[-1] == clock:
            return _told(path["path"], _namer(netlist, fabric, design))
    return None


def _told(path: Sequence[Mapping[str, Any]], name: Callable[[str], str]) -> CriticalPath:
    steps: list[Step] = []
    for piece in path:
        here = name(piece["to"]["cell"])
        delay = float(piece["delay"])
        logic, routing = (0.0, delay) if piece["type"] == "routing" else (delay, 0.0)
        if steps and steps[-1].name == here:
            last = steps.pop()
            logic, routing = last.logic + logic, last.routing + routing
        steps.append(Step(here, logic, routing))
    steps = [Step(step.name, round(step.logic, 3), round(step.routing, 3)) for step in steps]
    return CriticalPath(
        start=name(path[0]["from"]["cell"]),
        end=steps[-1].name,
        logic=round(sum(step.logic for step in steps), 3),
        routing=round(sum(step.routing for step in steps), 3),
        steps=tuple(steps),
    )


def _namer(netlist: Netlist, fabric: Fabric, design: str) -> Callable[[str], str]:
    """Return a function from the name of a cell to the signal that it works for.

    Yosys names a cell without a name of its own after its signal, and adds its type:
    `lane.sum_LUT4_Z_1_D_CCU2C_S0` works for `lane.sum`. Multipliers and memories, which come
    without a register's name, are marked with their type.
    """
    types = sorted(set(netlist.cells.values()), key=len, reverse=True)
    suffix = re.compile(rf"_(?:{'|'.join(map(re.escape, types))})_.*")

    def name(cell: str) -> str:
        cell = _PIECES.sub("", cell) or cell
        kind = netlist.cells.get(cell, "")
        # The cells of a memory are numbered.
        signal = re.sub(r"(\.\d+)+$", "", suffix.sub("", cell))
        shown = plain(signal, design) or signal
        used = resources(fabric, {kind: 1})
        is_block = used[Kind.DSP] or used[Kind.BLOCK_RAM] or used[Kind.LARGE_RAM]
        return f"{shown} ({kind})" if is_block else shown

    return name
