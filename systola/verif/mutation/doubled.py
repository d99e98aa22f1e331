# SPDX-License-Identifier: Apache-2.0
"""A netlist with two copies of the logic after a fault, for proofs that a fault is harmless.

One copy has the fault, and the other copy does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Bit = int | str
"""A bit in Yosys' JSON: the number of a signal's bit, or a constant "0", "1" or "x"."""
Cell = dict[str, Any]
Module = dict[str, Any]
"""A module of a netlist, in the form in which Yosys writes and reads JSON."""

_REGISTER = re.compile(r"\$s?dff")
_OPAQUE = re.compile(r"\$(mem|mul|scopeinfo)|[^$]")
"""Types of cells that a proof leaves out: their outputs are free, and equal in both copies."""


def doubled(module: Module, select: str, distance: int) -> Module:
    """Return a flat module that compares `module` with and without a fault in its output `differs`.

    The input `select` of `module` plants the fault. `differs`, the only output, is 1 if the fault
    changes a value that a register, an opaque cell or an output of the module gets. Both copies
    share the contents of registers. A register's content is free if more than `distance` - 1 other
    registers lie between it and `differs`.
    """
    (chosen,) = module["ports"][select]["bits"]
    cells: dict[str, Cell] = module["cells"]
    numbers = (bit for cell in cells.values() for _, bits in _ports(cell) for bit in bits)
    fresh = iter(range(1 + max(bit for bit in numbers if isinstance(bit, int)), 1 << 40))
    faulty, copied = _behind(cells, chosen, fresh)
    watched = [bit for bit in _watched(module) if bit in faulty and bit != chosen]
    healthy: dict[Bit, Bit] = {chosen: "0"}
    kept = {name: _renamed(cell, healthy) for name, cell in cells.items()}
    kept |= {f"$faulty{name}": _renamed(cells[name], faulty) for name in copied}
    result = next(fresh)
    compare = _unequal(watched, [faulty[bit] for bit in watched], result)
    inputs = {
        name: port
        for name, port in module["ports"].items()
        if port["direction"] == "input" and name != select
    }
    return {
        "attributes": {},
        "ports": {**inputs, "differs": {"direction": "output", "bits": [result]}},
        "cells": {**_before(kept, watched, faulty, distance), "$differs": compare},
        "netnames": {
            name: net for name, net in module["netnames"].items() if chosen not in net["bits"]
        },
    }


def _ports(cell: Cell, direction: str | None = None) -> Iterator[tuple[str, list[Bit]]]:
    for port, bits in cell["connections"].items():
        if direction is None or cell["port_directions"][port] == direction:
            yield port, bits


def _is_gate(cell: Cell) -> bool:
    return not _REGISTER.match(cell["type"]) and not _OPAQUE.match(cell["type"])


def _behind(
    cells: dict[str, Cell], chosen: Bit, fresh: Iterator[int]
) -> tuple[dict[Bit, Bit], list[str]]:
    """Return the bits that the fault may change, and the cells to copy.

    The keys are the bits that the fault may change. The value of a key is the bit that replaces it
    in the faulty copy.
    """
    readers: dict[Bit, list[str]] = {}
    for name, cell in cells.items():
        if _is_gate(cell):
            for _, bits in _ports(cell, "input"):
                for bit in bits:
                    readers.setdefault(bit, []).append(name)
    faulty: dict[Bit, Bit] = {chosen: "1"}
    copied: dict[str, None] = {}
    queue = [chosen]
    while queue:
        for name in readers.get(queue.pop(), ()):
            if name not in copied:
                copied[name] = None
                for _, bits in _ports(cells[name], "output"):
                    for bit in bits:
                        faulty[bit] = next(fresh)
                        queue.append(bit)
    return faulty, list(copied)


def _watched(module: Module) -> Iterator[Bit]:
    """Yield the bits to compare, each once: inputs of registers and opaque cells, and outputs."""
    seen: dict[Bit, None] = {}
    for cell in module["cells"].values():
        if not _is_gate(cell):
            for _, bits in _ports(cell, "input"):
                seen.update(dict.fromkeys(bits))
    for port in module["ports"].values():
        if port["direction"] == "output":
            seen.update(dict.fromkeys(port["bits"]))
    yield from seen


def _renamed(cell: Cell, names: dict[Bit, Bit]) -> Cell:
    connections = {port: [names.get(bit, bit) for bit in bits] for port, bits in _ports(cell)}
    return {**cell, "connections": connections}


def _before(
    cells: dict[str, Cell], watched: list[Bit], faulty: dict[Bit, Bit], distance: int
) -> dict[str, Cell]:
    """Return the cells on which watched bits depend within `distance` registers."""
    drivers: dict[Bit, str] = {}
    for name, cell in cells.items():
        if not _OPAQUE.match(cell["type"]):
            for _, bits in _ports(cell, "output"):
                drivers.update(dict.fromkeys(bits, name))
    kept: dict[str, Cell] = {}
    edge = [*watched, *(faulty[bit] for bit in watched)]
    for passed in range(distance + 1):
        registers: dict[str, None] = {}
        while edge:
            name = drivers.get(edge.pop())
            if name is None or name in kept or name in registers:
                continue
            if _is_gate(cells[name]):
                kept[name] = cells[name]
                edge += [bit for _, bits in _ports(cells[name], "input") for bit in bits]
            else:
                registers[name] = None
        for name in registers if passed < distance else ():
            kept[name] = cells[name]
            edge += [bit for _, bits in _ports(cells[name], "input") for bit in bits]
    return kept


def _unequal(a: list[Bit], b: list[Bit], result: int) -> Cell:
    width = max(1, len(a))
    return {
        "hide_name": 1,
        "type": "$ne",
        "parameters": {
            **{"A_SIGNED": 0, "B_SIGNED": 0},
            **{"A_WIDTH": width, "B_WIDTH": width, "Y_WIDTH": 1},
        },
        "attributes": {},
        "port_directions": {"A": "input", "B": "input", "Y": "output"},
        "connections": {"A": a or ["0"], "B": b or ["0"], "Y": [result]},
    }
