# SPDX-License-Identifier: Apache-2.0
"""The test of the scan ROM: its rows and their order follow the rules of the scoreboard.

The rows of an instruction are the steps of a scan, which finds the older instructions to wait for.
A row compares a region of the instruction with regions of a list of older instructions. Other rows
hand on the number found for a mask, or store a region. A mask names the entry to wait for.
"""

import pytest

from systola.arch.isa import BY_OPCODE, Opcode, way_of
from systola.hdl.control.hazards import CONFLICTS, LINK_MASKS, MASKS, TILES, list_of
from systola.hdl.control.scan_rom import (
    KEPT,
    ROM_ROWS,
    ScanLayout,
    ScanRom,
    Step,
    kept_in,
    known,
    owns,
    pairs,
)
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import REGION_CELLS, SCANNED
from systola.verif.units.unit import small_config

CONFIGS = {
    "plain": small_config(tables=3),
    "training": small_config(rows=4, cols=4, host_bus_bytes=8, tables=3, training=True),
}
ROMS = {name: ScanRom(config) for name, config in CONFIGS.items()}
CONFIG = CONFIGS["plain"]
ROM = ROMS["plain"]
ISSUED = [
    pytest.param(name, entry, id=f"{name}-{entry.mnemonic}")
    for name, config in CONFIGS.items()
    for entry in known(config)
    if way_of(entry)
]
each_instruction = pytest.mark.parametrize(("name", "entry"), ISSUED)
OWN = {
    **{"buffer": "result", "accumulator": "sums", "parameters": "entries"},
    **{name: name for name in ("source", "operand", "table", "host")},
}
"""The names that regions have in the scan ROM, by the names that the decoder has for them."""


@pytest.mark.parametrize("name", CONFIGS)
def test_masks(name):
    for queue, masks in ROMS[name].masks.items():
        expected = {
            mask for mask in MASKS.get(queue, ()) if CONFIGS[name].training or mask not in TILES
        }
        assert set(masks) == expected, queue
    assert not set(LINK_MASKS) & set(ROM.masks)


def old_masks(entry, config):
    """Return the names of the masks that the scoreboard makes for an instruction."""
    masks = MASKS.get(way_of(entry).queue, ())
    if entry.opcode is Opcode.MATRIX_MULTIPLY:
        masks += MASKS["weights"]
    return [mask for mask in masks if config.training or mask not in TILES]


@each_instruction
def test_pairs(name, entry):
    """Check that the scan compares the same pairs of regions as the scoreboard.

    Pairs of regions in different memories are left out, as such regions cannot overlap.
    """
    config = CONFIGS[name]
    expected = set()
    for mask in old_masks(entry, config):
        for mine, theirs in CONFLICTS[mask]:
            own, its = OWN[mine], OWN[theirs]
            # Weights from the buffer wait for whole instructions, by the masks in TILES alone.
            weights = entry.opcode is Opcode.MATRIX_MULTIPLY and own == "source"
            if weights and mask not in TILES:
                continue
            for other in known(config):
                if not way_of(other):
                    continue
                both = own in owns(entry) and its in owns(other)
                if both and list_of(mask) in way_of(other).lists:
                    of = list_of(mask)
                    # Instructions that use loaded data wait for the load's entry in list `loading`.
                    loads = "loading" in way_of(other).lists and its == "result"
                    if owns(entry)[own].memory is owns(other)[its].memory:
                        assert loads == (of == "loading")
                        expected.add((mask, of, own, its))
    found = {(pair.mask, pair.list, pair.own, pair.its) for pair in pairs(entry, config)}
    assert found == expected


@each_instruction
def test_rows(name, entry):
    """Check that an instruction's rows do each part of the scan once, and end with the issue.

    Each pair of regions is compared, each mask's number handed on, and each own region stored.
    """
    config, rom = CONFIGS[name], ROMS[name]
    rows, way = rom.programs[entry.opcode], way_of(entry)
    masks = rom.masks[way.queue]
    if entry.opcode is Opcode.MATRIX_MULTIPLY:
        masks += rom.masks["weights"]
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
    expected = {(pair.list, pair.own, pair.its, pair.space) for pair in pairs(entry, config)}
    assert sorted(compared) == sorted(expected)
    assert sorted(told) == sorted(masks)
    assert sorted(kept, key=str) == sorted(
        (
            (each, its, its if its in owns(entry) else None)
            for each in way.lists
            for its in kept_in(each, config)
        ),
        key=str,
    )
    assert rows[-1].step == Step.ISSUE and rows[-1].way == way


def test_others_have_no_rows():
    without = [entry.opcode for entry in known(CONFIG) if not way_of(entry)]
    assert Opcode.NOP in without
    assert all([row.step for row in ROM.programs[each]] == [Step.ISSUE] for each in without)


@pytest.mark.parametrize("rom", ROMS.values(), ids=ROMS)
def test_fits_a_block_ram(rom):
    assert len(rom.contents) <= ROM_ROWS and ScanLayout().size <= 36
    assert all(rom.contents[opcode] == start for opcode, start in rom.starts.items())
    assert all(opcode in BY_OPCODE for opcode in rom.starts)


def test_cells_of_regions():
    """Check that the number of a scratch cell gives its region, and whether it is base or end."""
    cells = StepRom(CONFIG).cells
    for number, name in enumerate(SCANNED):
        ends = [cells[f"{name}.{end}"] - REGION_CELLS for end in ("base", "end")]
        assert ends == [2 * number, 2 * number + 1]
    inside = range(REGION_CELLS, 2 * REGION_CELLS)
    assert sum(number in inside for number in cells.values()) == 2 * len(SCANNED)
