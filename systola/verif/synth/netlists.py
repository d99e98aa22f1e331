# SPDX-License-Identifier: Apache-2.0
"""Small netlists and logs for tests, in the form in which Yosys and nextpnr write them."""

from __future__ import annotations

from typing import Any

DESIGN = "tpu"


def netlist_json(cells: dict[str, str], scopes: list[str]) -> dict[str, Any]:
    """Return a flat netlist, as Yosys' write_json writes it, with the given cells and modules."""
    everything = {name: {"type": kind, "attributes": {}} for name, kind in cells.items()}
    everything |= {scope: {"type": "$scopeinfo", "attributes": {}} for scope in scopes}
    return {
        "modules": {
            "LUT4": {"attributes": {"blackbox": "1"}, "cells": {}},
            "harness": {"attributes": {"top": f"{1:032b}"}, "cells": everything},
        }
    }


def memory_dump(name: str, width: int, size: int, write_ports: int = 1) -> str:
    """Return the text of a memory cell, shortened, as Yosys' `dump t:$mem_v2` writes it."""
    return (
        f'\n  attribute \\src "design.v:1.2-3.4"\n  cell $mem_v2 \\{name}\n'
        f'    parameter \\MEMID "\\\\{name}"\n    parameter \\WIDTH {width}\n'
        f"    parameter \\SIZE {size}\n    parameter \\WR_PORTS {write_ports}\n"
        "    connect \\RD_CLK \\clk\n  end\n"
    )


def piece(kind: str, delay: float, start: str, end: str) -> dict[str, Any]:
    """Return one piece of a critical path, as in a report of nextpnr."""
    return {
        "type": kind,
        "delay": delay,
        "from": {"cell": start, "loc": [1, 2], "port": "Q"},
        "to": {"cell": end, "loc": [3, 4], "port": "A"},
    }


def pnr_report(fmax: float, path: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a report of nextpnr on a design with the clock `clk`."""
    clock = "posedge $glbnet$clk"
    return {
        "fmax": {"$glbnet$clk": {"achieved": fmax, "constraint": 160}},
        "critical_paths": [
            {"from": "<async>", "to": clock, "path": []},
            {"from": clock, "to": clock, "path": path},
        ],
        "utilization": {
            "TRELLIS_COMB": {"available": 100, "used": 7},
            "GSR": {"available": 1, "used": 0},
        },
    }
