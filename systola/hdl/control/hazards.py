# SPDX-License-Identifier: Apache-2.0
"""The rules of the scoreboard: the way of each instruction, and its reasons to wait.

A list holds the instructions under way that use one resource, such as the buffer lines that the
matrix unit reads. An instruction waits in a queue for its unit. Its masks name the entries of lists
that it awaits; `in_flight` explains lists and masks.
"""

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
    | `queue`       | the queue that they enter |
    | `lists`       | the lists that they enter |
    | `from_buffer` | only a MatrixMultiply that takes its weights from the buffer belongs to the
                      group |
    | `side`        | only instructions of the links that name this side belong to the group |
    """

    opcodes: tuple[Opcode, ...]
    queue: str
    lists: tuple[str, ...] = ()
    from_buffer: bool = False
    side: Side | None = None


def _opcodes(executor: Executor, *written: Memory) -> tuple[Opcode, ...]:
    """Return the instructions that a unit executes.

    If memories are named, only instructions that write one of these memories are returned.
    """
    return tuple(
        entry.opcode
        for entry in INSTRUCTIONS
        if entry.executor is executor
        and (not written or any(use.memory in written for use in entry.writes))
    )


def _groups(opcodes: Collection[Opcode]) -> dict[Way, tuple[Opcode, ...]]:
    """Return the instructions of each way; a way is a queue and the lists that go with it."""
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
"""Additional groups of instructions of a machine with links.

Each part of the link unit, a sender and a receiver on each side, has a queue and a list.
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
"""For each unit, the list that an instruction leaves when it is complete."""
SCANS = {
    "copies": (("host_reading", "host_writing"), ("buffer", "host")),
    "lines": (
        ("matrix_reading", "activate_writing", "loading"),
        ("buffer", "parameters", "table"),
    ),
    "rows": (("matrix_summing", "activate_reading"), ("accumulator", "source")),
    "operands": (("activate_operands",), ("source", "operand")),
}
"""Scans of the scoreboard, each with its lists and the regions that it keeps of their entries.

A scan reads its lists one after the other. An instruction is in at most one list of a scan. It uses
the addresses of the first region in ascending order.
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
"""For each queue, the names of its masks. `list_of` gives the list of a mask."""
_SEND_MASKS = ("host_reading", "activate_writing", "matrix_summing")
_TAKE_MASKS = (
    *("host_reading", "host_writing", "matrix_reading", "matrix_summing", "tiles_reading"),
    *("activate_reading", "activate_operands", "activate_writing"),
)
LINK_MASKS = {
    group.queue: _SEND_MASKS if group.lists[0] in SENDING else _TAKE_MASKS for group in LINK_GROUPS
}
"""For each queue of the links, the names of its masks.

With these masks, instructions of the links wait until whole older instructions are done. They wait
for each other in LinkInterlock, line by line. Other instructions wait for them in LinkGate.
"""
FILLS = tuple(
    entry.opcode
    for entry in INSTRUCTIONS
    if any(use.memory is Memory.BUFFER for use in entry.writes)
)
"""Instructions that write buffer lines, except for the instructions of the links."""
TOUCHES = tuple(
    entry.opcode for entry in INSTRUCTIONS if entry.uses(Memory.BUFFER, Memory.ACCUMULATORS)
)
"""Instructions that use buffer lines or accumulator rows, except for instructions of links."""
TILES = ("tiles_reading", "tiles_loading", "tiles_writing")
"""Masks for weights that a MatrixMultiply takes from the buffer; only with training."""
LIST_OF = {
    "host_memory": "host_reading",
    "operand_writing": "activate_writing",
    "tiles_reading": "matrix_summing",
    "tiles_loading": "host_reading",
    "tiles_writing": "activate_writing",
}
"""For each mask that is named differently from its list, the name of the list.

- `host_memory`: a write to host memory waits for whole reads of the same host memory. The write
  waits line by line for reads that fill the buffer lines that it sends.
- `operand_writing`: operand b, and taps, have a mask of their own, apart from operand a and
  addends.
- `tiles_loading`, `tiles_writing`: weights from the buffer wait until the instructions that write
  them are done.
- `tiles_reading`: writers of the lines of these weights wait until the MatrixMultiply has its last
  sum. By then the array has all weights.
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
"""For each mask, the pairs of regions that must not overlap.

The first region belongs to the younger instruction, the second to the older one.
"""


def groups_of(config: Config) -> tuple[Group, ...]:
    """Return the groups of instructions that a configuration has."""
    groups = (*GROUPS, *LINK_GROUPS) if config.links else GROUPS
    return tuple(group for group in groups if config.training or not group.from_buffer)


def list_of(mask: str) -> str:
    """Return the list that a mask belongs to."""
    return LIST_OF.get(mask, mask)


def list_bits(name: str, config: Config) -> int:
    """Return the width in bits of the addresses that a list compares: of rows or of lines."""
    is_rows = name in ("matrix_summing", "activate_reading")
    return row_bits(config) if is_rows else address_bits(config)


def masks_of(queue: str, config: Config) -> dict[str, int]:
    """Return the masks of the commands in a queue, each with the width in bits of its addresses."""
    return {
        mask: list_bits(list_of(mask), config)
        for mask in (MASKS | LINK_MASKS).get(queue, ())
        if config.training or mask not in TILES
    }
