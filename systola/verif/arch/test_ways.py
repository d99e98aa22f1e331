# SPDX-License-Identifier: Apache-2.0
"""Tests of each instruction's declaration: executor, memories, and way through the scoreboard.

An instruction waits for its unit in a queue. Lists of the scoreboard hold the regions of memory
that the instruction uses. The queue and the lists are the instruction's way.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from systola.arch.config import preset
from systola.arch.isa import (
    BY_MNEMONIC,
    BY_OPCODE,
    INSTRUCTIONS,
    Executor,
    Fault,
    Instruction,
    Memory,
    Opcode,
    Unit,
    Use,
    fields,
    way_of,
)
from systola.golden.ranges import accesses, host_bytes, is_partition, parameter_entries
from systola.golden.window import Window
from systola.hdl.control.hazards import COMPLETES, CONFLICTS, LINK_MASKS, MASKS, groups_of, list_of
from systola.verif.kit.seeds import case_seed
from systola.verif.units.control.scoreboard_model import LISTS, QUEUE

ONLY_ISSUED = (
    *("nop", "halt", "synchronize", "interrupt_host"),
    *("synchronize_host", "require_machine", "set_register", "loop"),
    *("end_loop", "set_config_window", "set_config_scale", "barrier"),
)
"""Instructions that are complete when they are issued, so that no unit executes them."""
TRAINING = {
    Opcode.MEASURE: {"activate_reading", "activate_operands", "activate_writing"},
    Opcode.TRANSPOSE: {"activate_operands", "activate_writing"},
    Opcode.RANDOM: {"activate_operands", "activate_writing"},
}
RANGES = {
    Fault.BUFFER_RANGE: Memory.BUFFER,
    Fault.ACCUMULATOR_RANGE: Memory.ACCUMULATORS,
    Fault.PARAMETER_RANGE: Memory.PARAMETERS,
    Fault.TABLE_RANGE: Memory.TABLES,
    Fault.HOST_WINDOW: Memory.HOST,
    Fault.WEIGHT_WINDOW: Memory.WEIGHTS,
}
CONFIG = preset("4x4")
WINDOW = Window(
    **{"height": 4, "width": 4, "pitch": 4, "kernel_height": 2, "kernel_width": 2},
    **dict.fromkeys(("stride_y", "stride_x", "dilation_y", "dilation_x"), 1),
    **{"top": 0, "left": 0, "out_height": 3, "out_width": 3},
)
SIZES = WINDOW.sizes(CONFIG)


def test_the_sizes_of_extents_have_values() -> None:
    assert set(SIZES) == set(fields.SIZES)


def test_every_opcode_is_an_instruction() -> None:
    assert set(BY_OPCODE) == set(Opcode)


def test_every_instruction_has_a_way() -> None:
    """Check that each instruction that a unit executes has a way (queue and lists).

    An instruction without a way in the scoreboard would vanish with its issue.
    """
    groups = groups_of(preset("small-training-links"))
    gone = {entry.mnemonic for entry in BY_OPCODE.values()}
    gone -= {opcode.name.lower() for group in groups for opcode in group.opcodes}
    assert gone == set(ONLY_ISSUED)
    assert {name for name, entry in BY_MNEMONIC.items() if way_of(entry) is None} == gone


def test_ways_are_those_of_the_text() -> None:
    expected = {opcode: (QUEUE[opcode], set(LISTS[opcode])) for opcode in QUEUE}
    expected |= {opcode: ("activate", lists) for opcode, lists in TRAINING.items()}
    ways = {entry.opcode: way_of(entry) for entry in INSTRUCTIONS}
    assert {op: (way.queue, set(way.lists)) for op, way in ways.items() if way} == expected


def test_a_tag_can_wait_for_each_unit_that_completes() -> None:
    """Check that all instructions of a unit leave the same list last.

    So a Debug_Tag can wait for the unit.

    The bits of Debug_Tag have the names of the units.
    """
    for unit in Unit:
        ends = {
            way.lists[-1]
            for entry in INSTRUCTIONS
            if entry.executor is Executor[str(unit.name)] and (way := way_of(entry))
        }
        assert ends == {COMPLETES[unit]}


@pytest.mark.parametrize("entry", BY_OPCODE.values(), ids=list(BY_MNEMONIC))
def test_memories_are_those_that_are_checked(entry: Instruction) -> None:
    checked = {memory for fault, memory in RANGES.items() if fault in entry.checks}
    assert {use.memory for use in (*entry.reads, *entry.writes)} == checked
    names = {field.name for field in entry.fields}
    assert all(use.base in names for use in (*entry.reads, *entry.writes))


@pytest.mark.parametrize("entry", BY_OPCODE.values(), ids=list(BY_MNEMONIC))
def test_parts_of_memories_are_those_of_the_golden_model(entry: Instruction) -> None:
    """Check that the golden model uses exactly the addresses that an instruction declares.

    This must hold for random operands. Each declared use of a memory must occur for some of them.
    """
    chance = random.Random(f"{case_seed()} {entry.mnemonic}")
    bases = [f.name for f in entry.fields if f.width >= 16 and f.minimum is None]
    found: set[Use] = set()
    read, written = ({use.memory for use in uses} for uses in (entry.reads, entry.writes))
    for _ in range(100):
        at = {
            f.name: chance.choice(
                [int(each) for each in f.values if int(each) < 1 << f.width]
                if f.values
                else range(f.minimum or 0, min(1 << f.width, 4))
            )
            for f in entry.fields
        }
        at |= {name: 1000 * place for place, name in enumerate(bases, 1)}
        model = set[tuple[Memory, range, bool]]()
        for access in accesses(entry, at, WINDOW, 4):
            memory = Memory.ACCUMULATORS if access.accumulators else Memory.BUFFER
            model.add((memory, access.region, access.writes))
        if Memory.PARAMETERS in written | read:
            entries = parameter_entries(entry.opcode, at, WINDOW)
            if Memory.PARAMETERS in read:
                model.add((Memory.PARAMETERS, entries, False))
            if entry.opcode is Opcode.LOAD_PARAMETERS or (
                entry.opcode is Opcode.VECTOR and is_partition(at["accumulate"], at["wide"])
            ):
                model.add((Memory.PARAMETERS, entries, True))
        if Memory.HOST in written | read:
            model.add((Memory.HOST, host_bytes(entry.opcode, at, CONFIG), Memory.HOST in written))
        named = set[tuple[Memory, range, bool]]()
        for uses, writes in ((entry.reads, False), (entry.writes, True)):
            for use in uses:
                part = entry.addresses(use, at, SIZES)
                if part and use.memory not in (Memory.TABLES, Memory.WEIGHTS):
                    named.add((use.memory, part, writes))
        assert model == named, at
        found |= {use for use in (*entry.reads, *entry.writes) if entry.addresses(use, at, SIZES)}
    assert found == {*entry.reads, *entry.writes}


def test_hardware_that_may_be_left_out() -> None:
    assert {name: entry.needs.name for name, entry in BY_MNEMONIC.items() if entry.needs} == {
        "load_table": "TABLES",
        "depthwise": "DEPTHWISE",
        **dict.fromkeys(("measure", "transpose", "random"), "TRAINING"),
        **dict.fromkeys(("send", "receive", "reduce", "barrier"), "LINKS"),
    }
    assert all(Fault.UNAVAILABLE in entry.checks for entry in BY_OPCODE.values() if entry.needs)


def region(entry: Instruction, use: Use) -> str:
    """Return the field of `Decoded` with the addresses of one use of a memory by an instruction."""
    reads = use in entry.reads
    if use.memory is Memory.BUFFER:
        if entry.executor is Executor.ACTIVATION_UNIT and reads:
            return "source" if use.base == "buffer" else "operand"
        return "source" if use.base == "weights" else "buffer"
    loaded = {Memory.PARAMETERS: "parameters", Memory.TABLES: "table"}
    if use.memory in loaded:
        return loaded[use.memory] if reads else "buffer"
    return {Memory.ACCUMULATORS: "accumulator", Memory.HOST: "host"}[use.memory]


def in_order(younger: Instruction, older: Instruction, memory: Memory, writes: bool) -> bool:
    """Return whether two instructions access `memory` in order without the scoreboard's help.

    They do so in one unit, unless the older instruction `writes` and the younger instruction reads:
    a unit reads lines for the younger instruction before it writes lines of the older instruction.
    But it does not read parameter entries before a partition has written its entry.
    """
    return younger.executor is older.executor and (not writes or memory is Memory.PARAMETERS)


@pytest.mark.parametrize("younger", BY_OPCODE.values(), ids=list(BY_MNEMONIC))
def test_what_must_not_meet_is_compared(younger: Instruction) -> None:
    """Check that the scoreboard compares all regions in which two instructions may conflict.

    Two instructions conflict if both use the same memory and at least one of them writes it. For
    each such pair of regions, a mask of the younger instruction's queue must compare the pair. The
    mask must be for a list that the older instruction is in.
    """
    groups = groups_of(preset("small-training-links"))
    masks = MASKS | LINK_MASKS
    for group, older in product(groups, INSTRUCTIONS):
        if younger.opcode not in group.opcodes:
            continue
        lists = {name for each in groups if older.opcode in each.opcodes for name in each.lists}
        for one, other in product((*younger.reads, *younger.writes), (*older.reads, *older.writes)):
            writes = other in older.writes
            if (one.base == "weights") is not group.from_buffer:
                continue  # for the other queue of a MatrixMultiply with weights in the buffer
            if one.memory is not other.memory or not (writes or one in younger.writes):
                continue
            if in_order(younger, older, one.memory, writes and one in younger.reads):
                continue
            pair = region(younger, one), region(older, other)
            assert any(
                list_of(mask) in lists and pair in CONFLICTS[mask] for mask in masks[group.queue]
            ), (group.queue, younger.mnemonic, one.base, older.mnemonic, other.base)
