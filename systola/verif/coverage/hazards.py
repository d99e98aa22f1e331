# SPDX-License-Identifier: Apache-2.0
"""Bins for hazards: pairs of instructions that use one part of a memory soon after each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTIONS,
    Executor,
    Fault,
    Instruction,
    Memory,
    Opcode,
    Use,
)
from systola.golden.window import Window

NEAR, FAR = 3, 24
"""Largest distances, in executed instructions, between the instructions of a near and a far pair.

Up to NEAR, both instructions may be in flight together. Pairs beyond NEAR, up to FAR, have bins of
their own.
"""

_RESOURCES = {
    Memory.BUFFER: "lines",
    Memory.ACCUMULATORS: "rows",
    Memory.PARAMETERS: "parameters",
    Memory.TABLES: "tables",
    Memory.HOST: "host bytes",
}
_PARTS = {
    ("depthwise", "buffer"): "map",
    ("depthwise", "taps"): "taps",
    ("pool", "buffer"): "map",
    ("vector", "buffer"): "a",
    ("vector", "operand"): "b",
    ("transpose", "buffer"): "source",
    ("matrix_multiply", "weights"): "weights",
}
"""Names of regions of lines that an instruction reads, if it reads several or a special one.

A key is the instruction's mnemonic and the field with the first line of the region.
"""


def _reader(entry: Instruction, use: Use) -> str:
    part = _PARTS.get((entry.mnemonic, use.base)) if use.memory is Memory.BUFFER else None
    return f"{entry.mnemonic} {part}" if part else entry.mnemonic


def _users(memory: Memory) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a memory's writing instructions, and of its reading instructions."""
    writers = (e.mnemonic for e in INSTRUCTIONS for use in e.writes if use.memory is memory)
    readers = (_reader(e, use) for e in INSTRUCTIONS for use in e.reads if use.memory is memory)
    return tuple(writers), tuple(readers)


_LINES = _users(Memory.BUFFER)
_USERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **{name: _users(memory) for memory, name in _RESOURCES.items()},
    "lines": (_LINES[0], (*_LINES[1], "activate addend", "vector addend")),
    "weight queue": (("read_weights",), ("matrix_multiply", "convolve")),
    "window": (("set_config_window",), ("convolve", "depthwise", "pool")),
    "scale": (("set_config_scale",), ("vector",)),
    "exponents": (("measure",), ("activate", "vector", "measure operand")),
}
"""For each resource: the names of the instructions that write it, and of the instructions that read
it.
"""


@dataclass(frozen=True)
class Access:
    """A use of a part of a resource by an instruction.

    `where` is the range of lines, rows or entries. `who` is the instruction's name in _USERS.
    `writes` is True for a write, False for a read.
    """

    resource: str
    who: str
    writes: bool
    where: range


def hazard_bins() -> Iterator[str]:
    """Yield the bins' names: each ordered pair of uses of which one or both write, near and far."""
    for resource, (writers, readers) in _USERS.items():
        both = [(who, True) for who in writers] + [(who, False) for who in readers]
        for older, younger in product(both, both):
            if older[1] or younger[1]:
                for distance in ("near", "far"):
                    yield _name(resource, *older, *younger, distance)


def _name(resource: str, a: str, a_writes: bool, b: str, b_writes: bool, distance: str) -> str:
    first, second = (("writes" if writes else "reads") for writes in (a_writes, b_writes))
    return f"{resource}: {a} {first}, {b} {second}, {distance}"


class Hazards:
    """A watch that takes a program's instructions in order and finds the hazards."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recent: deque[list[Access]] = deque(maxlen=FAR)

    def bins(self, opcode: Opcode, operands: Mapping[str, int], window: Window) -> Iterator[str]:
        """Yield the bins of the pairs that the next instruction forms with earlier instructions."""
        now = list(self._accesses(opcode, operands, window))
        for distance, earlier in enumerate(reversed(self._recent), 1):
            for old, new in product(earlier, now):
                if (
                    old.resource == new.resource
                    and (old.writes or new.writes)
                    and old.where.start < new.where.stop
                    and new.where.start < old.where.stop
                ):
                    far = "near" if distance <= NEAR else "far"
                    yield _name(old.resource, old.who, old.writes, new.who, new.writes, far)
        self._recent.append(now)

    def _accesses(self, opcode: Opcode, at: Mapping[str, int], window: Window) -> Iterator[Access]:
        entry, sizes = BY_OPCODE[opcode], window.sizes(self._config)
        for uses, writes in ((entry.reads, False), (entry.writes, True)):
            for use in uses:
                where = entry.addresses(use, at, sizes)
                if not where or use.memory not in _RESOURCES:
                    continue
                who = entry.mnemonic if writes else _reader(entry, use)
                yield Access(_RESOURCES[use.memory], who, writes, where)
                results = writes and use.memory is Memory.BUFFER
                if results and opcode in (Opcode.ACTIVATE, Opcode.VECTOR) and at["accumulate"]:
                    yield Access("lines", f"{who} addend", False, where)
        yield from self._state(entry, at)

    def _state(self, entry: Instruction, at: Mapping[str, int]) -> Iterator[Access]:
        """Yield an instruction's uses of state outside the memories, such as the window."""
        who, opcode, whole = entry.mnemonic, entry.opcode, range(1)
        if opcode == Opcode.READ_WEIGHTS:
            yield Access("weight queue", who, True, whole)
        if entry.executor is Executor.MATRIX_UNIT and not at.get("from_buffer"):
            yield Access("weight queue", who, False, whole)
        if opcode == Opcode.SET_CONFIG_WINDOW:
            yield Access("window", who, True, whole)
        if Fault.WINDOW in entry.checks:
            yield Access("window", who, False, whole)
        if opcode == Opcode.SET_CONFIG_SCALE:
            yield Access("scale", who, True, whole)
        if opcode == Opcode.VECTOR:
            yield Access("scale", who, False, whole)
        if opcode == Opcode.MEASURE:
            for operand in ("first", "second", "third"):
                if at[operand]:
                    used = range(at[operand], at[operand] + 1)
                    yield Access("exponents", "measure operand", False, used)
        if at.get("exponent"):
            used = range(at["exponent"], at["exponent"] + 1)
            yield Access("exponents", who, opcode == Opcode.MEASURE, used)
