# SPDX-License-Identifier: Apache-2.0
"""The rules of the scoreboard: the way of each instruction, and its reasons to wait."""

from collections.abc import Collection
from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTIONS,
    LINK_OPCODES,
    Executor,
    Memory,
    Opcode,
    Side,
    Unit,
    Way,
    way_of,
)
from systola.hdl.commands import address_bits, row_bits


@dataclass(frozen=True)
class Group:
    """A set of instructions that enter the same queue and the same lists.

    | field         | meaning |
    |---|---|
    | `opcodes`     | the instructions |
    | `queue`       | their queue |
    | `lists`       | their lists |
    | `from_buffer` | only instructions with weights from the buffer belong to the group |
    | `side`        | only instructions of the links for this side belong to the group |
    """

    opcodes: tuple[Opcode, ...]
    queue: str
    lists: tuple[str, ...] = ()
    from_buffer: bool = False
    side: Side | None = None


def _opcodes(executor: Executor, *written: Memory) -> tuple[Opcode, ...]:
    """Return the instructions that a part of the machine executes.

    If memories are named, only instructions that write one of these memories are returned.
    """
    return tuple(
        entry.opcode
        for entry in INSTRUCTIONS
        if entry.executor is executor
        and (not written or any(use.memory in written for use in entry.writes))
    )


def _groups(opcodes: Collection[Opcode]) -> dict[Way, tuple[Opcode, ...]]:
    """Return each set of queue and lists, with the instructions that enter them."""
    ways: dict[Way, tuple[Opcode, ...]] = {}
    for opcode in opcodes:
        way = way_of(BY_OPCODE[opcode])
        if way is not None:
            ways[way] = (*ways.get(way, ()), opcode)
    return ways


READS = _opcodes(Executor.HOST_READER, Memory.BUFFER)
LOADS = _opcodes(Executor.HOST_READER, Memory.PARAMETERS, Memory.TABLES)
STORES = _opcodes(Executor.HOST_WRITER)
PRODUCTS = _opcodes(Executor.MATRIX_UNIT)
GROUPS = (
    *(
        Group(opcodes, way.queue, way.lists)
        for way, opcodes in _groups([entry.opcode for entry in INSTRUCTIONS]).items()
    ),
    Group((Opcode.MATRIX_MULTIPLY,), "weights", from_buffer=True),
)
LINK_GROUPS = tuple(
    Group(
        opcodes,
        f"{way.queue}_{side.name.lower()}",
        tuple(f"{name}_{side.name.lower()}" for name in way.lists),
        side=side,
    )
    for way, opcodes in _groups(sorted(LINK_OPCODES)).items()
    for side in Side
)
"""Groups that a machine with links has in addition: a queue and a list for each part of the link
unit.
"""
SENDING, RECEIVING = (
    tuple(name for group in groups for name in group.lists)
    for groups in (LINK_GROUPS[:2], LINK_GROUPS[2:])
)
COMPLETES = {
    Unit.HOST_READER: "host_reading",
    Unit.MATRIX_UNIT: "matrix_summing",
    Unit.ACTIVATION_UNIT: "activate_writing",
    Unit.HOST_WRITER: "host_writing",
}
"""The list that an instruction of each unit leaves when it completes."""
SCANS = {
    "copies": (("host_reading", "host_writing"), ("buffer", "host")),
    "lines": (
        ("matrix_reading", "activate_writing", "loading"),
        ("buffer", "parameters", "table"),
    ),
    "rows": (("matrix_summing", "activate_reading"), ("accumulator", "source")),
    "operands": (("activate_operands",), ("source", "operand")),
}
"""Scans of the scoreboard. Each has its lists, read one after the other, and the regions it keeps.

An instruction walks through the first of these regions in order. An instruction is
in at most one list of a scan.
"""
MASKS = {
    "host_reads": (
        *("matrix_reading", "activate_operands", "activate_writing", "host_writing"),
        "tiles_reading",
    ),
    "matrix": ("host_reading", "activate_writing", "activate_reading"),
    "activate": (
        *("matrix_summing", "tiles_reading", "matrix_reading", "activate_writing"),
        *("operand_writing", "host_writing", "host_reading", "loading"),
    ),
    "host_writes": ("host_reading", "activate_writing", "host_memory"),
    "weights": ("tiles_loading", "tiles_writing"),
}
"""Masks of the instructions in each queue: the lists with an entry that they may await."""
_SEND_MASKS = ("host_reading", "activate_writing", "matrix_summing")
_TAKE_MASKS = (
    *("host_reading", "host_writing", "matrix_reading", "matrix_summing", "tiles_reading"),
    *("activate_reading", "activate_operands", "activate_writing"),
)
LINK_MASKS = {
    group.queue: _SEND_MASKS if group.lists[0] in SENDING else _TAKE_MASKS for group in LINK_GROUPS
}
"""Masks of the instructions of the links, which wait until whole older instructions are done.

Among themselves the links' instructions wait in LinkInterlock, line by line. Other instructions
wait for them in LinkGate.
"""
FILLS = tuple(
    entry.opcode
    for entry in INSTRUCTIONS
    if any(use.memory is Memory.BUFFER for use in entry.writes)
)
"""Instructions, not of the links, that write lines."""
TOUCHES = tuple(
    entry.opcode for entry in INSTRUCTIONS if entry.uses(Memory.BUFFER, Memory.ACCUMULATORS)
)
"""Instructions, not of the links, that use lines or rows."""
TILES = ("tiles_reading", "tiles_loading", "tiles_writing")
"""Masks for weights from the buffer, where there is training."""
LIST_OF = {
    "host_memory": "host_reading",
    "operand_writing": "activate_writing",
    "tiles_reading": "matrix_summing",
    "tiles_loading": "host_reading",
    "tiles_writing": "activate_writing",
}
"""Lists of the masks that are not named after their list.

A write to host memory waits for reads of the same buffer lines line by line. For reads of the same
host memory it waits as a whole. Operand b, and taps, have a mask of their own, apart from operand a
and addends. Weights from the buffer wait for whole instructions that write them. Writers of these
lines wait until the MatrixMultiply has its last sum, as the array has all weights by then.
"""
CONFLICTS = {
    "host_reading": (("buffer", "buffer"), ("source", "buffer"), ("operand", "buffer")),
    "loading": (("parameters", "buffer"), ("table", "buffer")),
    "host_memory": (("host", "host"),),
    "matrix_reading": (("buffer", "buffer"),),
    "matrix_summing": (("accumulator", "accumulator"),),
    "activate_reading": (("accumulator", "accumulator"),),
    "activate_operands": (("buffer", "source"), ("buffer", "operand")),
    "activate_writing": (
        *(("buffer", "buffer"), ("source", "buffer")),
        *(("buffer", "parameters"), ("buffer", "table")),
    ),
    "operand_writing": (("operand", "buffer"),),
    "host_writing": (("buffer", "buffer"), ("host", "host")),
    "tiles_reading": (("buffer", "source"),),
    "tiles_loading": (("source", "buffer"),),
    "tiles_writing": (("source", "buffer"),),
}
"""The regions that must not overlap, for each mask: of the younger and of the older instruction."""


def groups_of(config: Config) -> tuple[Group, ...]:
    """Return the groups that a configuration has."""
    groups = (*GROUPS, *LINK_GROUPS) if config.links else GROUPS
    return tuple(group for group in groups if config.training or not group.from_buffer)


def list_of(mask: str) -> str:
    """Return the list with the entries that a mask names."""
    return LIST_OF.get(mask, mask)


def list_bits(name: str, config: Config) -> int:
    """Return the bits of the addresses that the instructions in a list walk through."""
    is_rows = name in ("matrix_summing", "activate_reading")
    return row_bits(config) if is_rows else address_bits(config)


def masks_of(queue: str, config: Config) -> dict[str, int]:
    """Return the masks of the commands in a queue, each with the bits of its list's addresses."""
    return {
        mask: list_bits(list_of(mask), config)
        for mask in (MASKS | LINK_MASKS).get(queue, ())
        if config.training or mask not in TILES
    }
