# SPDX-License-Identifier: Apache-2.0
"""A small design as nextpnr places it on an ECP5, and the rules that it must obey."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

COLUMNS, ROWS = 24, 16
CARRIES = 10
"""Bits of a carry chain, which is longer than a tile."""
ENABLES = ("enable_0", "enable_1", "")
"""Nets that enable registers; the empty name stands for no enable."""
INPUTS = ("A", "B", "C", "D", "F1", "FXA", "FXB", "FCI", "M", "DI", "CE", "LSR", "CLK")


class PlacedDesign:
    """A design of cells at sites, by name, with nets by name; `json` has nextpnr's form."""

    def __init__(self) -> None:
        self.cells: dict[str, tuple[str, dict[str, str], dict[str, str], str]] = {}

    def add(self, name: str, kind: str, site: str, parameters: dict[str, str], **nets: str) -> None:
        """Add a cell with its nets by port."""
        self.cells[name] = kind, parameters, {p: net for p, net in nets.items() if net}, site

    def json(self) -> dict[str, Any]:
        """Return the design as nextpnr writes it."""
        nets = sorted({net for _, _, ports, _ in self.cells.values() for net in ports.values()})
        numbers = {net: number for number, net in enumerate(nets, 2)}
        cells = {
            name: {
                "type": kind,
                "parameters": parameters,
                "attributes": {"NEXTPNR_BEL": site},
                "port_directions": {p: "input" if p in INPUTS else "output" for p in ports},
                "connections": {port: [numbers[net]] for port, net in ports.items()},
            }
            for name, (kind, parameters, ports, site) in self.cells.items()
        }
        return {"modules": {"top": {"attributes": {"top": f"{1:032b}"}, "cells": cells}}}


def site(x: int, y: int, slot: int, register: bool = False) -> str:
    """Return nextpnr's name of a place in a slice."""
    return f"X{x}/Y{y}/SLICE{'ABCD'[slot // 2]}.{'FF' if register else 'COMB'}{slot % 2}"


def spread_design(seed: int, pipelines: int) -> PlacedDesign:
    """Return short pipelines with every kind of cell group, scattered over the device.

    Every pipeline can fit a tile or two. A third of the tiles is left free.
    """
    rng = random.Random(seed)
    made = PlacedDesign()
    tiles = [(x, y) for y in range(1, ROWS + 1) for x in range(2, COLUMNS + 2)]
    rng.shuffle(tiles)
    free = tiles[: len(tiles) * 2 // 3]
    # Rows are known by their cells.
    for x, y in [(x, y) for y in range(1, ROWS + 1) for x in (2, COLUMNS + 1)]:
        if (x, y) in free:
            free.remove((x, y))
        made.add(f"edge_{x}_{y}", "TRELLIS_COMB", site(x, y, 7), {}, F=f"edge_{x}_{y}")

    def registers(name: str, source: str, direct: bool = False) -> dict[str, str]:
        enable = ENABLES[len(name) % len(ENABLES)]
        reset = "reset" if len(name) % 2 else ""
        return {
            "DI" if direct else "M": source,
            "Q": name,
            "CE": enable,
            "LSR": reset,
            "CLK": "clk",
        }

    made.add("$PACKER_GND", "TRELLIS_COMB", site(*free[0], 0), {}, F="gnd")
    made.add(
        "zero", "TRELLIS_FF", site(*free.pop(0), 0, True), {}, **registers("zero", "gnd", True)
    )
    x, y = free.pop()
    for lane in range(2):
        nets = {"A": "zero", "F": f"ram_{lane}"}
        made.add(f"ram_{lane}", "TRELLIS_COMB", site(x, y, lane), {"MODE": "DPRAM"}, **nets)
        block = site(x, y, 4 + lane)
        made.add(f"block_{lane}", "TRELLIS_COMB", block, {"MODE": "RAMW_BLOCK"})
    made.add("ramw", "TRELLIS_RAMW", f"X{x}/Y{y}/SLICEC.RAMW", {}, A0="zero", WDO0="ram_data")

    for n in range(pipelines):
        x, y = free.pop()
        first = f"first_{n:03}"
        made.add(first, "TRELLIS_FF", site(x, y, n % 8, True), {}, **registers(first, f"end_{n}"))
        x, y = free.pop()
        made.add(f"a_{n}", "TRELLIS_COMB", site(x, y, n % 8), {}, A=first, F=f"a_{n}")
        x, y = free.pop()
        # Two look-up tables and their multiplexer, into a register without a look-up table.
        low = n % 4 * 2
        made.add(f"up_{n}", "TRELLIS_COMB", site(x, y, low + 1), {}, B=f"a_{n}", F=f"up_{n}")
        nets = {"A": first, "F": f"low_{n}", "F1": f"up_{n}", "M": f"a_{n}", "OFX": f"mux_{n}"}
        made.add(f"mux_{n}", "TRELLIS_COMB", site(x, y, low), {}, **nets)
        x, y = free.pop()
        chosen = f"chosen_{n}"
        made.add(chosen, "TRELLIS_FF", site(x, y, n % 8, True), {}, **registers(chosen, f"mux_{n}"))
        x, y = next((x, y) for x, y in free if (x + 1, y) in free)
        free.remove((x, y))
        free.remove((x + 1, y))
        carry = ""
        for bit in range(CARRIES):
            nets = {"A": chosen, "FCI": carry, "F": f"sum_{n}_{bit}"}
            carry = f"carry_{n}_{bit}" if bit < CARRIES - 1 else ""
            place = site(x + bit // 8, y, bit % 8)
            made.add(f"sum_{n}_{bit}", "TRELLIS_COMB", place, {"MODE": "CCU2"}, **nets, FCO=carry)
        x, y = free.pop()
        end = f"end_{n}"
        made.add(
            f"logic_{n}",
            "TRELLIS_COMB",
            site(x, y, n % 8),
            {},
            A=f"sum_{n}_{CARRIES - 1}",
            F=f"logic_{n}",
        )
        nets = registers(end, f"logic_{n}", True)
        made.add(end, "TRELLIS_FF", site(x, y, n % 8, True), {}, **nets)
    return made


def broken_rules(design: dict[str, Any]) -> list[str]:
    """Return the violations that nextpnr or the device would refuse.

    The rules are for the slices of an ECP5, as Lattice's sysCLOCK and slice documentation describes
    and nextpnr checks them.
    """
    cells = design["modules"]["top"]["cells"]
    nets = {
        name: {port: bits[0] for port, bits in cell["connections"].items()}
        for name, cell in cells.items()
    }
    places: dict[str, tuple[int, int, int]] = {}
    at: dict[tuple[str, tuple[int, int, int]], str] = {}
    broken: list[str] = []
    for name, cell in cells.items():
        match = re.fullmatch(
            r"X(\d+)/Y(\d+)/SLICE([A-D])\.(?:(?:COMB|FF)([01])|RAMW)",
            cell["attributes"]["NEXTPNR_BEL"],
        )
        assert match is not None
        slot = "ABCD".index(match[3]) * 2 + int(match[4] or 0)
        places[name] = int(match[1]), int(match[2]), slot
        if (cell["type"], places[name]) in at:
            broken.append(f"{name} is where another one is")
        at[cell["type"], places[name]] = name
    drivers = {
        nets[name][port]: (name, port)
        for name, cell in cells.items()
        for port in nets[name]
        if cell["port_directions"][port] == "output"
    }
    of_tile: dict[object, set[object]] = defaultdict(set)
    of_slice: dict[object, set[object]] = defaultdict(set)
    kinds_of_slice: dict[object, set[str]] = defaultdict(set)
    for name, cell in cells.items():
        x, y, slot = places[name]
        mine = nets[name]
        if cell["type"] == "TRELLIS_FF":
            of_tile[x, y].add((mine.get("LSR"), mine.get("CLK")))
            of_slice[x, y, slot // 2].add(mine.get("CE"))
            other = at.get(("TRELLIS_COMB", (x, y, slot)))
            if "M" in mine and other is not None and "M" in nets[other]:
                broken.append(f"{name} and {other} have one wire M")
            if "DI" in mine and places[drivers[mine["DI"]][0]] != (x, y, slot):
                broken.append(f"{name} is away from its look-up table")
        elif cell["type"] == "TRELLIS_COMB":
            kinds_of_slice[x, y, slot // 2].add(cell["parameters"].get("MODE", ""))
            if "F1" in mine and places[drivers[mine["F1"]][0]] != (x, y, slot + 1):
                broken.append(f"{name} is away from its other half")
            carry = (x, y, slot - 1) if slot else (x - 1, y, 7)
            if "FCI" in mine and places[drivers[mine["FCI"]][0]] != carry:
                broken.append(f"{name} is away from the carry before it")
    broken += [f"resets of tile {tile}" for tile, found in of_tile.items() if len(found) > 1]
    broken += [f"enables of slice {place}" for place, found in of_slice.items() if len(found) > 1]
    broken += [
        f"modes in slice {place}" for place, found in kinds_of_slice.items() if len(found) > 1
    ]
    return broken
