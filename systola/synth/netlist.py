# SPDX-License-Identifier: Apache-2.0
"""A synthesised netlist of Yosys, and the part of the design that each cell belongs to.

The netlist is flat. The names of its cells still begin with the path of the module that they come
from. A register has the name of its signal. A look-up table has the name of a register or a signal
that it works for (`core.fetch.ring.count_TRELLIS_FF_Q_3_DI_LUT4_Z`). So a cell belongs to the
longest path that is a module of the design. If logic of two modules was merged into one look-up
table, it counts for one of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

OUTSIDE = "core"
"""Name of the module that only holds the units together: names of units leave it out."""

SCOPE = "$scopeinfo"
"""Type of the cells that Yosys leaves for each module that it has flattened."""


@dataclass(frozen=True)
class Netlist:
    """A netlist of the top module: types of cells by name, and the paths of all modules in it."""

    cells: Mapping[str, str]
    scopes: frozenset[str]

    @cached_property
    def by_scope(self) -> dict[str, Counter[str]]:
        """The number of cells of each type, for each module without the modules in it; '' is the
        top.
        """
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, kind in self.cells.items():
            counts[self.scope_of(name)][kind] += 1
        return dict(counts)

    def scope_of(self, name: str) -> str:
        """Return the path of the module that the cell or signal called `name` belongs to."""
        parts = name.split(".")
        for length in range(len(parts) - 1, 0, -1):
            path = ".".join(parts[:length])
            if path in self.scopes:
                return path
        return ""


def read_netlist(path: Path) -> Netlist:
    """Read the netlist in a JSON file of Yosys."""
    return netlist_of(json.loads(path.read_text()))


def netlist_of(design: Mapping[str, Any]) -> Netlist:
    """Return the netlist in the content of a JSON file of Yosys."""
    cells = {name: cell["type"] for name, cell in top_module(design)["cells"].items()}
    scopes = frozenset(name for name, kind in cells.items() if kind == SCOPE)
    return Netlist({name: kind for name, kind in cells.items() if kind != SCOPE}, scopes)


def top_module(design: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top module of a design in Yosys' JSON."""
    modules = design["modules"].values()
    return next(m for m in modules if int(m.get("attributes", {}).get("top", "0"), 2))


def plain(path: str, design: str) -> str:
    """Return a module's path as reports show it: without `design`, OUTSIDE, and Amaranth's numbers.

    `tpu.core.accumulators$397.bank_1` is `accumulators.bank_1`; the design itself is ''.
    """
    parts = [part for part in re.sub(r"\$\d+", "", path).split(".") if part]
    if parts[:1] == [design]:
        parts = parts[1:]
    if parts[:1] == [OUTSIDE] and len(parts) > 1:
        parts = parts[1:]
    return ".".join(parts)


def unit_of(path: str, design: str) -> str | None:
    """Return the row of the report's table in which a path is counted; None for the frame around a
    unit.

    A machine has a row for each unit, and a unit for each of its modules. The row with the design's
    own name is for logic outside of all these.
    """
    if path != design and not path.startswith(f"{design}."):
        return None
    return plain(path, design).split(".")[0] or design
