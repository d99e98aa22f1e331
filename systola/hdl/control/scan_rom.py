# SPDX-License-Identifier: Apache-2.0
"""The scan ROM: the regions of older instructions that regions of an instruction must not meet.

Its rows follow from the memories that instructions read and write, as `arch/isa` has them. Two
regions in one memory must not meet if one of them is written. Units work in order, so instructions
do not wait for older ones of their own unit. The activation unit has several instructions in its
pipeline at once. So its instructions also wait for results of older instructions of this unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.features import has
from systola.arch.isa import (
    INSTRUCTIONS,
    Executor,
    Instruction,
    Memory,
    Opcode,
    Use,
    Way,
    way_of,
)
from systola.hdl.control.step_row import SCANNED

NOTHING = len(SCANNED)
"""The index of an empty region, which overlaps no region. It comes after the indices of the
instruction's own regions.
"""
KEPT: Mapping[str, tuple[str, ...]] = {
    "host_reading": ("result", "host"),
    "loading": ("result",),
    "host_writing": ("result", "host"),
    "matrix_reading": ("result",),
    "matrix_summing": ("sums", "source"),
    "activate_reading": ("sums",),
    "activate_operands": ("source", "operand"),
    "activate_writing": ("result", "entries", "table"),
}
"""The regions that each list keeps of its instructions.

An instruction uses the addresses of the first region in ascending order, and this region decides if
its entry rises. An instruction in two lists keeps a region only in the first of them. The lines of
weights are kept with training only.
"""
LISTS = tuple(KEPT)
_WEIGHTS = ("matrix_summing", "source")
REGIONS = tuple((name, own) for name, regions in KEPT.items() for own in regions)
"""Pairs of a list and a region that it keeps; the index is the number in the region memory."""
AWAITS_ITSELF = "activate_writing"
"""The list in which instructions also wait for older instructions of their own unit."""
_ALONE = {
    "host_memory": ("host", "host_reading"),
    "operand_writing": ("operand", "activate_writing"),
}
"""For each mask that has not the name of its list: the region of the instruction, and the list.

A write to host memory waits until older reads of the same host memory are complete. The write waits
line by line for buffer lines that older reads fill. Operand b, and taps, have a mask of their own,
apart from operand a.
"""
_TILES = {
    "tiles_loading": "host_reading",
    "tiles_writing": "activate_writing",
    "tiles_reading": "matrix_summing",
}
"""Masks for weights from the buffer, with their list.

Reads of such weights wait until whole instructions that write their lines are done. Writers of
these lines wait until the MatrixMultiply has its last sum.
"""
QUEUES = ("host_reads", "host_writes", "weights", "matrix", "activate", "tags")
NO_QUEUE = len(QUEUES)
_SPACES = {Memory.PARAMETERS: 1, Memory.TABLES: 2}
"""Numbers of the address spaces: memories that are compared in the same way as buffer lines.

Buffer lines have number 0. In the interlocks' addresses the spaces follow one another in this
order.
"""
WEIGHT_MASKS = ("tiles_loading", "tiles_writing")
ROM_ROWS = 512
STARTS = 128
"""Number of rows at the beginning of the ROM.

Row n of these rows holds the number of the first scan row of the instruction with opcode n.
"""
LIST_BITS = ceil_log2(len(LISTS))
REGION_BITS = 4
OWN_BITS = ceil_log2(NOTHING + 1)
MASK_BITS = 3
QUEUE_BITS = ceil_log2(NO_QUEUE + 1)


class Step(IntEnum):
    """A kind of step of a scan: read an own region, compare it with a list, keep it, or issue."""

    OWN = 0
    COMPARE = 1
    KEEP = 2
    ISSUE = 3


@dataclass(frozen=True, kw_only=True)
class ScanRow:
    """A step of a scan.

    | field   | meaning |
    |---|---|
    | `step`  | kind of the step |
    | `own`   | OWN: region of the instruction to read; the steps after it use it |
    | `list`  | COMPARE, KEEP: the list |
    | `its`   | COMPARE, KEEP: region kept in the list |
    | `space` | COMPARE, KEEP: address space of this region |
    | `mask`  | COMPARE: index of the mask among the masks of the queue |
    | `first` | COMPARE: first row of the mask |
    | `last`  | COMPARE: last row of the mask |

    With `never`, COMPARE finds no conflict. KEEP with `walked` also finds if the entry rises. ISSUE
    names the queue and the lists of the instruction.
    """

    step: Step
    own: str | None = None
    list: str = LISTS[0]
    its: str = ""
    space: int = 0
    mask: int = 0
    first: bool = False
    last: bool = False
    never: bool = False
    walked: bool = False
    way: Way | None = None


class ScanLayout(data.StructLayout):
    """A layout of one step of a scan, a ScanRow, in the ROM."""

    def __init__(self) -> None:
        super().__init__(
            {
                "step": 2,
                "own": OWN_BITS,
                "list": LIST_BITS,
                "region": REGION_BITS,
                "space": 2,
                "mask": MASK_BITS,
                "first": 1,
                "last": 1,
                "never": 1,
                "walked": 1,
                "lists": len(LISTS),
                "queue": QUEUE_BITS,
            }
        )


@dataclass(frozen=True)
class Pair:
    """A pair of regions that must not overlap: one of an instruction, one of the older instructions
    in a list.
    """

    mask: str
    list: str
    own: str
    its: str
    space: int


def own_of(entry: Instruction, use: Use) -> str | None:
    """Return the name among SCANNED of the region that a use of a memory is.

    It is None for weights, which are not compared.
    """
    alike = {Memory.HOST: "host", Memory.ACCUMULATORS: "sums", Memory.WEIGHTS: None}
    if use.memory in alike:
        return alike[use.memory]
    lines = [each for each in entry.reads if each.memory is Memory.BUFFER]
    if entry.executor is Executor.MATRIX_UNIT:
        return ("result", "source")[lines.index(use)]
    if entry.executor is not Executor.ACTIVATION_UNIT:
        return "result"
    entries = {Memory.PARAMETERS: "entries", Memory.TABLES: "table"}
    if use.memory in entries:
        return entries[use.memory]
    if use in entry.writes:
        return "result"
    return ("source", "operand")[lines.index(use)]


def owns(entry: Instruction) -> dict[str, Use]:
    """Return the regions of an instruction, by their names among SCANNED."""
    found = ((own_of(entry, use), use) for use in (*entry.writes, *entry.reads))
    return {own: use for own, use in found if own is not None}


def mask_of(own: str, name: str) -> str:
    """Return the mask for conflicts of a region of an instruction with the entries of a list."""
    return next((mask for mask, pair in _ALONE.items() if pair == (own, name)), name)


def list_of(mask: str) -> str:
    """Return the list that a mask belongs to."""
    return _ALONE[mask][1] if mask in _ALONE else _TILES.get(mask, mask)


def known(config: Config) -> tuple[Instruction, ...]:
    """Return the instructions of a machine without links."""
    assert not config.links
    return tuple(entry for entry in INSTRUCTIONS if entry.needs is None or has(config, entry.needs))


def kept_in(name: str, config: Config) -> tuple[str, ...]:
    """Return the regions that a list keeps; the lines of weights only with training."""
    return tuple(own for own in KEPT[name] if config.training or (name, own) != _WEIGHTS)


def _own(entry: Instruction, config: Config) -> dict[str, Use]:
    """Return the regions of an instruction that a machine has to compare, by their names."""
    found = owns(entry)
    if not config.training and entry.executor is Executor.MATRIX_UNIT:
        found.pop("source", None)
    return found


def pairs(entry: Instruction, config: Config) -> tuple[Pair, ...]:
    """Return all pairs of regions that must not overlap, for an instruction about to be issued."""
    found: dict[Pair, None] = {}
    for own, use in _own(entry, config).items():
        for other in known(config):
            way = way_of(other)
            for name, its in _compared(other, way, config) if way else ():
                older = owns(other)[its]
                itself = other.executor is entry.executor and name != AWAITS_ITSELF
                written = use in entry.writes or older in other.writes
                if older.memory is use.memory and written and not itself:
                    space = _SPACES.get(older.memory, 0) if its == "result" else 0
                    mask = _mask_of(entry, own, name, its)
                    found[Pair(mask, name, own, its, space)] = None
    return tuple(found)


def _mask_of(entry: Instruction, own: str, name: str, its: str) -> str:
    """Return the name of the mask for a pair of regions.

    A region of the younger or of the older instruction may be weights in the buffer.
    """
    if (name, its) == _WEIGHTS:
        return "tiles_reading"
    if own == "source" and entry.executor is Executor.MATRIX_UNIT:
        return next(mask for mask, of in _TILES.items() if of == name)
    return mask_of(own, name)


def _compared(entry: Instruction, way: Way, config: Config) -> list[tuple[str, str]]:
    """Return pairs of a list and a region in it with which younger instructions are compared."""
    found: dict[str, str] = {}
    for name in way.lists:
        for own in kept_in(name, config):
            if own in owns(entry):
                found.setdefault(own, name)
    return [(name, own) for own, name in found.items()]


def masks_of(config: Config) -> Mapping[str, tuple[str, ...]]:
    """Return the masks of the instructions in each queue, in the order of the masks' numbers.

    The queue of weights has masks of its own for MatrixMultiply with weights from the buffer.
    """
    found: dict[str, dict[str, None]] = {queue: {} for queue in QUEUES}
    for entry in known(config):
        way = way_of(entry)
        if way is None:
            continue
        for pair in pairs(entry, config):
            queue = "weights" if pair.mask in WEIGHT_MASKS else way.queue
            found[queue][pair.mask] = None
    return {queue: tuple(masks) for queue, masks in found.items()}


def first_number(config: Config, queue: str) -> int:
    """Return the number of the first mask of a queue.

    An instruction with commands in two queues has different masks for each queue.
    """
    return len(masks_of(config)["matrix"]) if queue == "weights" else 0


def rows_of(
    entry: Instruction, config: Config, masks: Mapping[str, tuple[str, ...]]
) -> tuple[ScanRow, ...]:
    """Return the ROM rows for the scan of an instruction; `masks` has the masks of each queue.

    No comparison for another mask comes between two comparisons for the same mask.
    """
    way = way_of(entry)
    if way is None:
        return (ScanRow(step=Step.ISSUE),)
    rows: list[ScanRow] = []
    loaded: str | None = ""
    keeps = [
        (name, its, its if its in owns(entry) else None)
        for name in way.lists
        for its in kept_in(name, config)
    ]
    rising: set[str] = set()

    def load(own: str | None) -> None:
        nonlocal loaded
        if own != loaded:
            rows.append(ScanRow(step=Step.OWN, own=own))
            loaded = own

    def keep() -> None:
        """Append rows that keep the loaded region in the lists of the instruction.

        The first region of a list must be kept first, as it decides if the entry rises.
        """
        for name, its, own in tuple(keeps):
            walked = its == KEPT[name][0]
            if own == loaded and (walked or name in rising):
                space = _space(entry, own)
                rows.append(ScanRow(step=Step.KEEP, list=name, its=its, space=space, walked=walked))
                rising.add(name)
                keeps.remove((name, its, own))

    todo = pairs(entry, config)
    own_masks = masks[way.queue]
    if any(pair.mask in WEIGHT_MASKS for pair in todo):
        own_masks = (*own_masks, *masks["weights"])
    groups = [
        [pair for pair in todo if pair.mask == mask]
        for mask in dict.fromkeys(pair.mask for pair in todo)
    ]
    while groups:
        # A group that uses the loaded region comes next, as this saves a row that loads a region.
        group = min(groups, key=lambda each: (all(p.own != loaded for p in each), len(each)))
        groups.remove(group)
        group.sort(key=lambda pair: pair.own != loaded)
        for pair in group:
            load(pair.own)
            rows.append(
                ScanRow(
                    step=Step.COMPARE,
                    list=pair.list,
                    its=pair.its,
                    space=pair.space,
                    mask=own_masks.index(pair.mask),
                    first=pair is group[0],
                    last=pair is group[-1],
                )
            )
            keep()
    # Each mask must get a new number, even if there is nothing to wait for: an old number in its
    # place could belong to a later entry.
    for number, mask in enumerate(own_masks):
        if all(pair.mask != mask for pair in todo):
            rows.append(
                ScanRow(
                    step=Step.COMPARE,
                    list=list_of(mask),
                    mask=number,
                    first=True,
                    last=True,
                    never=True,
                )
            )
    while keeps:
        load(keeps[0][2])
        keep()
    return (*rows, ScanRow(step=Step.ISSUE, way=way))


def _space(entry: Instruction, own: str | None) -> int:
    return _SPACES.get(owns(entry)[own].memory, 0) if own == "result" else 0


class ScanRom:
    """A ROM with the scan rows of all instructions of a machine.

    `contents` are the words of the ROM. First come STARTS words with the number of each
    instruction's first row, then all rows.
    """

    def __init__(self, config: Config):
        self.masks = masks_of(config)
        self.programs = {
            entry.opcode: rows_of(entry, config, self.masks) for entry in known(config)
        }
        self.starts: dict[Opcode, int] = {}
        self.rows: list[ScanRow] = []
        places: dict[tuple[ScanRow, ...], int] = {}
        for opcode, rows in self.programs.items():
            if rows not in places:
                places[rows] = STARTS + len(self.rows)
                self.rows += rows
            self.starts[opcode] = places[rows]
        if STARTS + len(self.rows) > ROM_ROWS:
            raise ValueError(f"{len(self.rows)} rows of the scan are too many")
        starts = [0] * STARTS
        for opcode, start in self.starts.items():
            starts[opcode] = start
        self.contents = [*starts, *map(self._encoded, self.rows)]

    def _encoded(self, row: ScanRow) -> int:
        lists = row.way.lists if row.way else ()
        return (
            ScanLayout()
            .const(
                {
                    "step": row.step,
                    "own": NOTHING if row.own is None else SCANNED.index(row.own),
                    "list": LISTS.index(row.list),
                    "region": REGIONS.index((row.list, row.its)) if row.its else 0,
                    "space": row.space,
                    "mask": row.mask,
                    "first": row.first,
                    "last": row.last,
                    "never": row.never,
                    "walked": row.walked,
                    "lists": sum(1 << LISTS.index(name) for name in lists),
                    "queue": QUEUES.index(row.way.queue) if row.way else NO_QUEUE,
                }
            )
            .as_bits()
        )
