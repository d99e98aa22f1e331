# SPDX-License-Identifier: Apache-2.0
"""Tests of multiplier sites: all different, with neighbours in array and lanes side by side."""

from __future__ import annotations

import itertools
import re

import pytest

from systola.hdl.matrix.multiplier_row import MultiplierRow
from systola.hdl.parts.fabric import Fabric
from systola.hdl.verilog import convert
from systola.synth.floorplan import BLOCK, MULTIPLIER, constrain, multiplier_sites
from systola.synth.targets import TARGETS
from systola.verif.synth.netlists import netlist_json

BLOCKS = TARGETS["ecp5-85f"].dsp_blocks
assert BLOCKS is not None


def names(rows: int, blocks_of_row: int, lanes: int) -> list[str]:
    """Return multipliers of an array, of the lanes, and of the decoder."""
    array = [f"tpu.mxu.row_{r}.dsp_{c}" for r in range(rows) for c in range(blocks_of_row)]
    of_lane = ("high_high", "high_low", "low_high", "low_low", "first", "second")
    return [
        *array,
        *(f"tpu.lanes.lane_{n}.{part}.dsp" for n in range(lanes) for part in of_lane),
        *(f"tpu.decoder.product_{n}.dsp" for n in range(6)),
    ]


def block_of(site: str) -> tuple[int, int]:
    """Return row and column of the DSP block, in nextpnr's coordinates."""
    match = re.fullmatch(r"X(\d+)/Y(\d+)/MULT18_([0145])", site)
    assert match is not None
    x, y, place = map(int, match.groups())
    return y, x - place


@pytest.mark.parametrize(
    ("rows", "blocks_of_row", "lanes"), [(4, 4, 4), (8, 8, 8), (12, 6, 12), (14, 8, 6)]
)
def test_sites(rows: int, blocks_of_row: int, lanes: int) -> None:
    """Give each multiplier a site of its own; no block has more than two rows of the array."""
    cells = names(rows, blocks_of_row, lanes)
    sites = multiplier_sites(cells, BLOCKS)
    assert sorted(sites) == sorted(cells)
    assert len(set(sites.values())) == len(cells)
    users: dict[tuple[int, int], set[str]] = {}
    for cell, site in sites.items():
        y, x = block_of(site)
        assert y in BLOCKS.rows
        assert x in BLOCKS.columns
        users.setdefault((y, x), set()).add(cell.rsplit(".", 1)[0])
    for rows_or_lanes in users.values():
        if any("mxu" in each for each in rows_or_lanes):
            assert len(rows_or_lanes) <= 2


def test_rows_of_the_array_are_side_by_side() -> None:
    """Put rows side by side, so that a partial sum only goes to the next column of blocks."""
    sites = multiplier_sites(names(10, 8, 8), BLOCKS)
    for row, column in itertools.product(range(9), range(8)):
        here, behind = (
            block_of(sites[f"tpu.mxu.row_{each}.dsp_{column}"]) for each in (row, row + 1)
        )
        assert here[0] == behind[0]
        assert BLOCKS.columns.index(behind[1]) == BLOCKS.columns.index(here[1]) + 1


def test_lanes_are_side_by_side() -> None:
    """Put lanes in order on the row of blocks after the array; two lanes may share a block."""
    sites = multiplier_sites(names(8, 8, 8), BLOCKS)
    columns: list[int] = []
    for lane in range(8):
        blocks = {block_of(site) for cell, site in sites.items() if f"lane_{lane}." in cell}
        assert {y for y, _ in blocks} == {BLOCKS.rows[2]}
        columns += sorted(BLOCKS.columns.index(x) for _, x in blocks)
    assert columns == sorted(columns)
    assert max(columns) - min(columns) < -(-8 * 6 // 4)


def test_more_than_two_rows_of_blocks() -> None:
    """Put the rest of the array at the end of the next row of blocks, beside no lane."""
    sites = multiplier_sites(names(14, 8, 6), BLOCKS)
    rest = {block_of(sites[f"tpu.mxu.row_13.dsp_{column}"]) for column in range(8)}
    assert rest == {(BLOCKS.rows[2], x) for x in BLOCKS.columns[-2:]}


def test_too_many() -> None:
    """Place nothing of a design that does not fit."""
    assert multiplier_sites(names(14, 8, 8), BLOCKS) == {}
    assert multiplier_sites(names(8, 8, 18), BLOCKS) == {}


def test_a_netlist() -> None:
    """Add the attribute to multipliers, and to nothing else."""
    multiplier = "tpu.mxu.row_0.dsp_0"
    design = netlist_json({multiplier: MULTIPLIER, "tpu.mxu.valid_TRELLIS_FF_Q": "TRELLIS_FF"}, [])
    constrain(design, BLOCKS)
    cells = design["modules"]["harness"]["cells"]
    (site,) = multiplier_sites([multiplier], BLOCKS).values()
    assert cells[multiplier]["attributes"]["BEL"] == site
    assert "BEL" not in str(cells["tpu.mxu.valid_TRELLIS_FF_Q"])


def test_two_stages_share_the_enables_of_a_block() -> None:
    """Use at most two enables a multiplier: a block has four, and nextpnr counts constants."""
    row = MultiplierRow(cols=8, columns_per_stage=4, wide=False, products_per_dsp=2)
    enables = re.findall(r"\.CE\d\((.*?)\),?$", convert(row, "row", Fabric.ECP5), re.MULTILINE)
    assert len(enables) == BLOCK * 4
    assert all(len(set(enables[n : n + 4])) == 2 for n in range(0, len(enables), 4))
