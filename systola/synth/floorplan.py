# SPDX-License-Identifier: Apache-2.0
"""Places for the multipliers of a whole machine, which nextpnr's placers choose badly.

The placers leave a multiplier 25 columns on average from the cells that it feeds, and some of them
70 columns. The places here follow the data, and the rest of the machine is placed around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from systola.synth.netlist import top_module

MULTIPLIER = "MULT18X18D"
_ARRAY, _LANE = re.compile(r"\.mxu\."), re.compile(r"\.lane_\d")
_ARRAY_ROWS = 2
BLOCK = 4
"""Multipliers of a DSP block."""


@dataclass(frozen=True, kw_only=True)
class DspBlocks:
    """A description of a device's DSP blocks, for the ECP5 family, in nextpnr's coordinates.

    There is a block of four multipliers at each of `columns` of each of `rows`.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def sites(self, row: int, column: int) -> list[str]:
        """Return nextpnr's names for the multipliers of a block."""
        x, y = self.columns[column], self.rows[row]
        return [f"X{x + place}/Y{y}/MULT18_{place}" for place in (0, 1, 4, 5)]


def multiplier_sites(cells: Iterable[str], blocks: DspBlocks) -> dict[str, str]:
    """Return a site for each of the multipliers with these names; no sites if they do not fit.

    The array lies on the first two rows of blocks. Its own rows lie side by side, since partial
    sums move from a block to the next block. Multipliers of the array without room there lie at the
    end of the last row. A block has four multipliers of one or two rows of the array, which share
    the block's few enables. The multipliers of the lanes lie side by side on the next row. All
    others lie beside the array.
    """
    array, lanes, others = (list[str]() for _ in range(3))
    for cell in sorted(cells, key=_numbers_by_value):
        (array if _ARRAY.search(cell) else lanes if _LANE.search(cell) else others).append(cell)
    of_array, of_lanes, of_others = (
        [cells[n : n + BLOCK] for n in range(0, len(cells), BLOCK)]
        for cells in (array, lanes, others)
    )
    width = len(blocks.columns)
    inside = min(len(of_array), _ARRAY_ROWS * width)
    first = (width - -(-inside // _ARRAY_ROWS)) // 2
    middle = [(n % _ARRAY_ROWS, first + n // _ARRAY_ROWS) for n in range(inside)]
    behind = [(row, n) for row in range(_ARRAY_ROWS, len(blocks.rows)) for n in range(width)]
    at_end = len(of_array) - inside
    middle += reversed(behind[len(behind) - at_end :])
    behind = behind[: len(behind) - at_end]
    beside = [
        (row, column)
        for column in reversed(range(width))
        for row in reversed(range(_ARRAY_ROWS))
        if (row, column) not in middle
    ]
    places = [*middle, *behind[: len(of_lanes)], *beside, *behind[len(of_lanes) :]]
    needed = [*of_array, *of_lanes, *of_others]
    if len(needed) > len(places):
        return {}
    return {
        cell: site
        for cells, place in zip(needed, places, strict=False)
        for cell, site in zip(cells, blocks.sites(*place), strict=False)
    }


def _numbers_by_value(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def constrain(design: Mapping[str, Any], blocks: DspBlocks) -> None:
    """Write the sites into a netlist, in the attribute that nextpnr reads."""
    cells = top_module(design)["cells"]
    names = [name for name, cell in cells.items() if cell["type"] == MULTIPLIER]
    for name, site in multiplier_sites(names, blocks).items():
        cells[name]["attributes"]["BEL"] = site
