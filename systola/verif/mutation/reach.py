# SPDX-License-Identifier: Apache-2.0
"""The search for bits of a flat module that can reach its outputs, in any number of cycles.

Some bits are unused: a command carries fields along after their last use, and often only the sign
of a difference is used. A fault in an unused bit is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from systola.verif.mutation.doubled import Bit, Cell, Module

_BITWISE = re.compile(r"\$(not|pos|and|or|xor|xnor|mux|pmux|a?s?dffe?|sdffce|aldffe?)")
"""Types of Yosys cells that work bit by bit.

Bit i of the result depends on bit i of the data inputs (_SIDES), and on all bits of other inputs.
"""
_SIDES = ("A", "B", "D", "AD")
_UPWARDS = re.compile(r"\$(add|sub|neg|mul)")
"""Types of arithmetic Yosys cells. Bit i of the result depends on bits 0 to i of the inputs."""
_READ, _WRITE = "$memrd_v2", "$memwr_v2"
_MACRO = "sram_1r1w"


def reaching(module: Module) -> set[Bit]:
    """Return the bits of a module on which an output of the module may depend.

    A change of any other bit makes no difference at the outputs. Modules and bit numbers are as in
    Yosys' JSON.
    """
    cells: dict[str, Cell] = module["cells"]
    drivers: dict[Bit, tuple[Cell, str, int]] = {}
    writers: dict[str, list[Cell]] = {}
    for cell in cells.values():
        for port, direction in cell["port_directions"].items():
            if direction == "output":
                for i, bit in enumerate(cell["connections"][port]):
                    drivers[bit] = cell, port, i
        if cell["type"] == _WRITE:
            writers.setdefault(cell["parameters"]["MEMID"], []).append(cell)
    found: set[Bit] = set()
    queue = [
        bit
        for port in module["ports"].values()
        if port["direction"] == "output"
        for bit in port["bits"]
    ]
    while queue:
        bit = queue.pop()
        if bit in found or bit not in drivers:
            found.add(bit)
            continue
        found.add(bit)
        cell, _, i = drivers[bit]
        queue += _before(cell, i)
        if cell["type"] == _READ:
            for writer in writers.get(cell["parameters"]["MEMID"], ()):
                queue += _column(writer, ("DATA", "EN"), i)
    return found


def _before(cell: Cell, i: int) -> Iterator[Bit]:
    """Return the bits on which bit `i` of the result of a cell depends."""
    kind: str = cell["type"]
    if kind == _MACRO:
        return _column(cell, ("write_data",), i)
    if _BITWISE.fullmatch(kind):
        return _column(cell, _SIDES, i, len(cell["connections"].get("Y", ())))
    if _UPWARDS.fullmatch(kind):
        return (bit for _, bits in _inputs(cell) for bit in bits[: i + 1])
    return (bit for _, bits in _inputs(cell) for bit in bits)


def _inputs(cell: Cell) -> Iterator[tuple[str, list[Bit]]]:
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == "input":
            yield port, bits


def _column(cell: Cell, ports: Iterable[str], i: int, width: int = 0) -> Iterator[Bit]:
    """Yield the input bits of a cell on which bit `i` of its result depends.

    For an input in `ports` this is bit `i` of each word. A word has `width` bits; if `width` is 0,
    the whole input is one word. For any other input these are all bits.
    """
    for port, bits in _inputs(cell):
        if port in ports:
            yield from bits[i :: width or len(bits)] if i < len(bits) else bits[-1:]
        else:
            yield from bits
