# SPDX-License-Identifier: Apache-2.0
"""The resources that the cells of each family occupy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from functools import cache

from systola.hdl.parts.fabric import Fabric


class Kind(Enum):
    """A kind of resource, which is a column of the report."""

    LUT = "lut"
    """Places of look-up tables, for logic, for a carry chain, or for a small memory."""
    CARRY = "carry"
    """Cells of carry chains."""
    LUT_RAM = "lut_ram"
    """Places of look-up tables that are a memory; contained in LUT."""
    FF = "ff"
    DSP = "dsp"
    BLOCK_RAM = "block_ram"
    LARGE_RAM = "large_ram"
    """Large single-port memories of some small FPGAs."""


CELLS: Mapping[Fabric, tuple[tuple[str, Mapping[Kind, float]], ...]] = {
    Fabric.ECP5: (
        (r"LUT4", {Kind.LUT: 1}),
        (r"CCU2C", {Kind.LUT: 2, Kind.CARRY: 1}),
        # Two slices hold the 16 x 4 bits of a small memory, and a third slice drives their write
        # port.
        (r"TRELLIS_DPR16X4", {Kind.LUT: 6, Kind.LUT_RAM: 6}),
        (r"TRELLIS_FF", {Kind.FF: 1}),
        (r"MULT18X18D", {Kind.DSP: 1}),
        (r"DP16KD|PDPW16KD", {Kind.BLOCK_RAM: 1}),
    ),
    Fabric.NEXUS: (
        (r"LUT4", {Kind.LUT: 1}),
        (r"WIDEFN9", {Kind.LUT: 2}),
        (r"CCU2", {Kind.LUT: 2, Kind.CARRY: 1}),
        (r"DPR16X4", {Kind.LUT: 6, Kind.LUT_RAM: 6}),
        (r"FD1P3\w\w", {Kind.FF: 1}),
        (r"MULT18X18", {Kind.DSP: 1}),
        (r"MULT9X9", {Kind.DSP: 0.5}),
        (r"MULT18X36|MULTADDSUB18X18", {Kind.DSP: 2}),
        (r"MULT36X36", {Kind.DSP: 4}),
        (r"PDP(SC)?(16|512)K?|DP16K|SP16K|PDPSC16K|FIFO16K", {Kind.BLOCK_RAM: 1}),
        (r"(DP|SP|PDP|PDPSC)(512|SC512)K", {Kind.LARGE_RAM: 1}),
    ),
    Fabric.ICE40: (
        (r"SB_LUT4", {Kind.LUT: 1}),
        (r"SB_CARRY", {Kind.CARRY: 1}),
        (r"SB_DFF\w*", {Kind.FF: 1}),
        (r"SB_MAC16", {Kind.DSP: 1}),
        (r"SB_RAM40_4K\w*", {Kind.BLOCK_RAM: 1}),
        (r"SB_SPRAM256KA", {Kind.LARGE_RAM: 1}),
    ),
    Fabric.GOWIN: (
        (r"LUT[1-4]", {Kind.LUT: 1}),
        (r"ALU", {Kind.LUT: 1, Kind.CARRY: 1}),
        (r"RAM16S\w*4", {Kind.LUT: 8, Kind.LUT_RAM: 8}),
        (r"RAM16S\w*2", {Kind.LUT: 4, Kind.LUT_RAM: 4}),
        (r"RAM16S\w*1", {Kind.LUT: 2, Kind.LUT_RAM: 2}),
        (r"DFF\w*", {Kind.FF: 1}),
        (r"MULT9X9", {Kind.DSP: 0.5}),
        (r"MULT18X18", {Kind.DSP: 1}),
        (r"MULT36X36", {Kind.DSP: 4}),
        (r"(SP|SDP|DP|pROM)X?9?B?", {Kind.BLOCK_RAM: 1}),
    ),
    # A programmable element of Cologne Chip is two places of look-up tables. A place holds a tree
    # of up to four inputs, or a sum bit.
    Fabric.GATEMATE: (
        (r"CC_LUT[1-4]|CC_L2T4|CC_MX2", {Kind.LUT: 1}),
        (r"CC_L2T5|CC_MX4", {Kind.LUT: 2}),
        (r"CC_ADDF", {Kind.LUT: 1, Kind.CARRY: 1}),
        (r"CC_DFF|CC_DLT", {Kind.FF: 1}),
        # nextpnr builds a multiplier from programmable elements, about 40 for 8x8 bits, and counts
        # them itself.
        (r"CC_MULT", {Kind.DSP: 1}),
        (r"CC_BRAM_20K", {Kind.BLOCK_RAM: 1}),
        (r"CC_BRAM_40K", {Kind.BLOCK_RAM: 2}),
    ),
    Fabric.XILINX7: (
        (r"LUT[1-6]|INV", {Kind.LUT: 1}),
        (r"CARRY4", {Kind.CARRY: 1}),
        (r"RAM(32M|64M)", {Kind.LUT: 4, Kind.LUT_RAM: 4}),
        (r"RAM(32|64)X1D", {Kind.LUT: 2, Kind.LUT_RAM: 2}),
        (r"RAM128X1D|RAM256X1S", {Kind.LUT: 4, Kind.LUT_RAM: 4}),
        (r"SRL\w+", {Kind.LUT: 1, Kind.LUT_RAM: 1}),
        (r"FD[RSCP]E(_1)?", {Kind.FF: 1}),
        (r"DSP48E1", {Kind.DSP: 1}),
        (r"RAMB18E1", {Kind.BLOCK_RAM: 1}),
        (r"RAMB36E1", {Kind.BLOCK_RAM: 2}),
    ),
}
"""For each fabric, patterns of cell names, and the resources of one such cell."""


def resources(fabric: Fabric, cells: Mapping[str, int]) -> Counter[Kind]:
    """Return the resources of a number of cells of each type; other types count nothing."""
    total: Counter[Kind] = Counter()
    for name, count in cells.items():
        for kind, weight in _weights(fabric, name).items():
            total[kind] += weight * count  # pyright: ignore[reportArgumentType] - may be 0.5
    return total


@cache
def _weights(fabric: Fabric, cell: str) -> Mapping[Kind, float]:
    for pattern, weights in CELLS[fabric]:
        if re.fullmatch(pattern, cell):
            return weights
    return {}
