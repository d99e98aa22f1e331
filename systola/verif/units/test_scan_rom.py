# SPDX-License-Identifier: Apache-2.0
"""The rows of the scan ROM against the rules of the scoreboard, and their order."""

import pytest

from systola.arch.isa import BY_OPCODE, Opcode, way_of
from systola.hdl.control.hazards import CONFLICTS, LINK_MASKS, MASKS, TILES, list_of
from systola.hdl.control.scan_rom import (
    KEPT,
    ROM_ROWS,
    ScanLayout,
    ScanRom,
    Step,
    known,
    owns,
    pairs,
)
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import REGION_CELLS, SCANNED
from systola.verif.units.unit import small_config

CONFIG = small_config(tables=3)
ROM = ScanRom(CONFIG)
ISSUED = [entry for entry in known(CONFIG) if way_of(entry)]
OWN = {
    **{"buffer": "result", "accumulator": "sums", "parameters": "entries"},
    **{name: name for name in ("source", "operand", "table", "host")},
}
"""Regions of the decoder, by their names in the scan."""


def mnemonic(entry):
    return entry.mnemonic


def test_masks():
    for queue, masks in ROM.masks.items():
        expected = {mask for mask in MASKS.get(queue, ()) if mask not in TILES}
        assert set(masks) == expected, queue
    assert not set(LINK_MASKS) & set(ROM.masks)


@pytest.mark.parametrize("entry", ISSUED, ids=mnemonic)
def test_pairs(entry):
    """Compare the pairs of an instruction with the scoreboard's pairs that share a memory."""
    expected = set()
    for mask in MASKS.get(way_of(entry).queue, ()):
        for mine, theirs in CONFLICTS[mask] if mask not in TILES else ():
            own, its = OWN[mine], OWN[theirs]
            for other in ISSUED:
                both = own in owns(entry) and its in owns(other)
                if both and list_of(mask) in way_of(other).lists:
                    name = list_of(mask)
                    # A load has its entry in `loading` for the instructions that use it.
                    loads = "loading" in way_of(other).lists and its == "result"
                    if owns(entry)[own].memory is owns(other)[its].memory:
                        assert loads == (name == "loading")
                        expected.add((mask, name, own, its))
    found = {(pair.mask, pair.list, pair.own, pair.its) for pair in pairs(entry, CONFIG)}
    assert found == expected


@pytest.mark.parametrize("entry", ISSUED, ids=mnemonic)
def test_rows(entry):
    """Before the issue each pair is compared, each number told, and each region kept, once."""
    rows, way = ROM.programs[entry.opcode], way_of(entry)
    masks = ROM.masks[way.queue]
    own, compared, kept, told, rising = "", [], [], [], set()
    open_mask = None
    for row in rows[:-1]:
        if row.step == Step.OWN:
            own = row.own
        if row.step == Step.COMPARE:
            assert row.first == (open_mask is None) and open_mask in (None, row.mask)
            open_mask = None if row.last else row.mask
            told += [masks[row.mask]] * row.last
            assert list_of(masks[row.mask]) == row.list
            compared += [] if row.never else [(row.list, own, row.its, row.space)]
        if row.step == Step.KEEP:
            assert row.walked == (row.its == KEPT[row.list][0])
            assert row.walked or row.list in rising
            rising.add(row.list)
            kept.append((row.list, row.its, own))
    expected = {(pair.list, pair.own, pair.its, pair.space) for pair in pairs(entry, CONFIG)}
    assert sorted(compared) == sorted(expected)
    assert sorted(told) == sorted(masks)
    assert sorted(kept, key=str) == sorted(
        (
            (name, its, its if its in owns(entry) else None)
            for name in way.lists
            for its in KEPT[name]
        ),
        key=str,
    )
    assert rows[-1].step == Step.ISSUE and rows[-1].way == way


def test_others_have_no_rows():
    without = [entry.opcode for entry in known(CONFIG) if not way_of(entry)]
    assert Opcode.NOP in without
    assert all([row.step for row in ROM.programs[each]] == [Step.ISSUE] for each in without)


def test_fits_a_block_ram():
    assert len(ROM.contents) <= ROM_ROWS and ScanLayout().size <= 36
    assert all(ROM.contents[opcode] == start for opcode, start in ROM.starts.items())
    assert all(opcode in BY_OPCODE for opcode in ROM.starts)


def test_cells_of_regions():
    """Check that the number of a cell gives the end and the region that it has."""
    cells = StepRom(CONFIG).cells
    for number, name in enumerate(SCANNED):
        ends = [cells[f"{name}.{end}"] - REGION_CELLS for end in ("base", "end")]
        assert ends == [2 * number, 2 * number + 1]
    inside = range(REGION_CELLS, 2 * REGION_CELLS)
    assert sum(number in inside for number in cells.values()) == 2 * len(SCANNED)
