# SPDX-License-Identifier: Apache-2.0
"""The places of an ECP5's cells, the cells that stay together, and the places that suit them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from systola.synth.ecp5_delays import MEMORY
from systola.synth.netlist import top_module
from systola.synth.refine.graph import CARRY, COMB, CONSTANTS, FF, Graph

SITE = "NEXTPNR_BEL"
"""Attribute in which nextpnr keeps the place of a cell."""
SLOTS = 8
"""Number of slots of a tile.

A tile has four slices of two slots, each for a look-up table and a register.
"""
_FIXED_MODES = ("DPRAM", "RAMW_BLOCK")
_PLACE = re.compile(r"X(\d+)/Y(\d+)/(?:SLICE([A-D])\.([A-Z]+)(\d)?|(EBR\d))?")

Site = tuple[int, int, int, bool]
"""Type of a site: column, row, slot, and True for a register."""


@dataclass(eq=False)
class Group:
    """A group of cells that stay together, because wires in a slice or along a carry chain join
    them.

    For each cell, `columns` has its column from the first column on, and `slots` its slot if the
    shift is 0.
    """

    cells: tuple[int, ...]
    columns: tuple[int, ...]
    slots: tuple[int, ...]
    shifts: tuple[int, ...]
    """Numbers of slots by which the group may be shifted within its tiles."""
    chain: bool
    x: int
    y: int
    shift: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """Column of the first tile, row, and shift."""
        return self.x, self.y, self.shift


class Placement:
    """A placement by nextpnr: the sites of all cells in a design, and the groups that can move.

    Block memories are groups of one cell, which change places only with one another.
    """

    def __init__(self, design: Mapping[str, Any], graph: Graph):
        self._graph = graph
        self._cells: Mapping[str, Any] = top_module(design)["cells"]
        self.xs: list[int] = []
        self.ys: list[int] = []
        self._slots: list[int] = []
        self._prefixes: dict[bool, str] = {}
        self._at: dict[Site, int] = {}
        self._registers: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.columns: dict[int, set[int]] = defaultdict(set)
        """For each row, the columns of its tiles with slices. Only tiles that nextpnr has used
        count."""
        self._block_sites: dict[int, str] = {}
        """Name of the site of a block memory, by column. It is the same in each row."""
        for cell, data in enumerate(self._cells.values()):
            match = _PLACE.match(data["attributes"][SITE])
            if match is None:
                raise ValueError(f"a place that nobody knows: {data['attributes'][SITE]}")
            x, y = int(match[1]), int(match[2])
            self.xs.append(x)
            self.ys.append(y)
            kind = graph.kinds[cell]
            self._slots.append("ABCD".index(match[3]) * 2 + int(match[5] or 0) if match[3] else 0)
            if kind in (COMB, FF):
                self._prefixes[kind == FF] = match[4]
                self._enter(cell)
                self.columns[y].add(x)
            elif kind == MEMORY:
                self._block_sites[x] = match[6]
        self._sets = [self._control_set(cell) for cell in range(len(self.xs))]
        self._uses_m = [graph.kinds[cell] == COMB and "M" in nets for cell, nets in self._nets()]
        self._from_m = [graph.kinds[cell] == FF and "DI" not in nets for cell, nets in self._nets()]
        self.group_of: dict[int, Group] = {}
        self.groups = self._groups()
        memories = [cell for cell, kind in enumerate(graph.kinds) if kind == MEMORY]
        rows = dict.fromkeys(self.ys[cell] for cell in memories)
        self.blocks: dict[tuple[int, int], Group | None] = {
            (x, y): None for y in rows for x in self._block_sites
        }
        """Block memory, or None, at each site for block memories, by column and row.

        The sites are all combinations of a column and a row in which nextpnr has used such a site.
        """
        for cell in memories:
            x, y = self.xs[cell], self.ys[cell]
            self.blocks[x, y] = Group((cell,), (0,), (0,), (0,), False, x, y)

    def put_block(self, block: Group, x: int, y: int) -> None:
        """Put a block memory at a column and row of `blocks`."""
        (cell,) = block.cells
        block.x, block.y = self.xs[cell], self.ys[cell] = x, y
        self.blocks[x, y] = block

    def _nets(self) -> list[tuple[int, Mapping[str, int]]]:
        return list(enumerate(self._graph.nets))

    def _enter(self, cell: int) -> None:
        register = self._graph.kinds[cell] == FF
        x, y = self.xs[cell], self.ys[cell]
        self._at[x, y, self._slots[cell], register] = cell
        if register:
            self._registers[x, y].add(cell)

    def _control_set(self, cell: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """Return the settings that all registers of a tile share, and the settings that a slice
        shares."""
        nets, parameters = self._graph.nets[cell], self._graph.parameters[cell]
        tile = (
            nets.get("LSR"),
            nets.get("CLK"),
            *map(parameters.get, ("CLKMUX", "LSRMUX", "SRMODE")),
        )
        return tile, (nets.get("CE"), *map(parameters.get, ("CEMUX", "GSR")))

    def _groups(self) -> list[Group]:
        graph = self._graph
        parent = list(range(len(graph.names)))

        def first(cell: int) -> int:
            while parent[cell] != cell:
                parent[cell] = cell = parent[parent[cell]]
            return cell

        for pin, direct in enumerate(graph.direct):
            if direct:
                parent[first(graph.owners[pin])] = first(graph.drivers[graph.sources[pin]])
        together: dict[int, list[int]] = defaultdict(list)
        for cell, kind in enumerate(graph.kinds):
            if kind in (COMB, FF):
                together[first(cell)].append(cell)
        groups: list[Group] = []
        for cells in together.values():
            fixed = any(
                graph.modes[cell] in _FIXED_MODES or graph.names[cell] in CONSTANTS
                for cell in cells
            )
            if fixed or len({self.ys[cell] for cell in cells}) > 1:
                continue
            group = self._group(cells)
            groups.append(group)
            self.group_of |= dict.fromkeys(cells, group)
        return groups

    def _group(self, cells: list[int]) -> Group:
        graph = self._graph
        x = min(self.xs[cell] for cell in cells)
        slots = [self._slots[cell] for cell in cells]
        chain = any(graph.modes[cell] == CARRY for cell in cells)
        low, high = min(slots), max(slots)
        # A multiplexer of two look-up tables takes a slice. A multiplexer of four takes a pair of
        # slices.
        if chain or len({self.xs[cell] for cell in cells}) > 1 or low // 4 != high // 4:
            step = 0
        elif low // 2 != high // 2:
            step = 4
        elif low != high or any("OFX" in graph.nets[cell] for cell in cells):
            step = 2
        else:
            step = 1
        base = low // step * step if step else 0
        return Group(
            cells=tuple(cells),
            columns=tuple(self.xs[cell] - x for cell in cells),
            slots=tuple(slot - base for slot in slots),
            shifts=tuple(range(0, SLOTS, step)) if step else (0,),
            chain=chain,
            x=x,
            y=self.ys[cells[0]],
            shift=base,
        )

    def in_the_way(self, group: Group, x: int, y: int, shift: int) -> set[int] | None:
        """Return the cells that would have to leave this place for the group.

        Returns None if the group cannot come to this place.
        """
        found: set[int] = set()
        columns = self.columns.get(y, ())
        graph = self._graph
        for cell, column, slot in zip(group.cells, group.columns, group.slots, strict=True):
            tile, place = x + column, slot + shift
            if tile not in columns:
                return None
            if graph.kinds[cell] == FF:
                found |= self._others_of_register(cell, tile, y, place)
            else:
                found |= self._others_of_comb(cell, tile, y, place)
        return found.difference(group.cells)

    def _others_of_register(self, cell: int, x: int, y: int, slot: int) -> set[int]:
        at, (of_tile, of_slice) = self._at, self._sets[cell]
        found = {o for o in self._registers[x, y] if self._sets[o][0] != of_tile}
        if (o := at.get((x, y, slot, True))) is not None:
            found.add(o)
        if (o := at.get((x, y, slot ^ 1, True))) is not None and self._sets[o][1] != of_slice:
            found.add(o)
        o = at.get((x, y, slot, False))
        # A multiplexer and a register without a look-up table both need the slot's M input.
        if o is not None and self._from_m[cell] and self._uses_m[o]:
            found.add(o)
        return found

    def _others_of_comb(self, cell: int, x: int, y: int, slot: int) -> set[int]:
        at = self._at
        found: set[int] = set()
        if (o := at.get((x, y, slot, False))) is not None:
            found.add(o)
        o = at.get((x, y, slot, True))
        if o is not None and self._from_m[o] and self._uses_m[cell]:
            found.add(o)
        return found

    def lift(self, group: Group) -> None:
        """Remove a group from its sites."""
        for cell in group.cells:
            register = self._graph.kinds[cell] == FF
            x, y = self.xs[cell], self.ys[cell]
            del self._at[x, y, self._slots[cell], register]
            if register:
                self._registers[x, y].discard(cell)

    def drop(self, group: Group, x: int, y: int, shift: int) -> None:
        """Put a lifted group on free sites."""
        group.x, group.y, group.shift = x, y, shift
        for cell, column, slot in zip(group.cells, group.columns, group.slots, strict=True):
            self.xs[cell], self.ys[cell], self._slots[cell] = x + column, y, slot + shift
            self._enter(cell)

    def write(self) -> None:
        """Write the sites of all cells into the design."""
        data = list(self._cells.values())
        for cell in self.group_of:
            slot, register = self._slots[cell], self._graph.kinds[cell] == FF
            data[cell]["attributes"][SITE] = (
                f"X{self.xs[cell]}/Y{self.ys[cell]}/"
                f"SLICE{'ABCD'[slot // 2]}.{self._prefixes[register]}{slot % 2}"
            )
        for (x, y), block in self.blocks.items():
            if block is not None:
                data[block.cells[0]]["attributes"][SITE] = f"X{x}/Y{y}/{self._block_sites[x]}"
