# SPDX-License-Identifier: Apache-2.0
"""Which instructions use the same part of a memory shortly after one another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Source
from systola.golden import ranges
from systola.golden.window import Window

NEAR, FAR = 3, 24
"""Executed instructions from the older to the younger one, at most: so near that they may be in
flight together; and farther."""

_COPIES_IN = ("read_host_memory", "read_host_memory_alternate")
_COPIES_OUT = ("write_host_memory", "write_host_memory_alternate")
_USERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lines": (
        (*_COPIES_IN, "activate", "depthwise", "pool", "vector", "transpose", "random"),
        (
            *_COPIES_OUT,
            *("matrix_multiply", "convolve", "activate addend"),
            *("depthwise map", "depthwise taps", "pool map"),
            *("vector a", "vector b", "vector addend"),
            *("matrix_multiply weights", "measure", "transpose source"),
        ),
    ),
    "rows": (("matrix_multiply", "convolve"), ("activate", "measure")),
    "parameters": (("load_parameters",), ("activate", "depthwise", "pool", "vector")),
    "tables": (("load_table",), ("activate", "vector")),
    "host bytes": (_COPIES_OUT, (*_COPIES_IN, "load_parameters", "load_table")),
    "weight queue": (("read_weights",), ("matrix_multiply", "convolve")),
    "window": (("set_config_window",), ("convolve", "depthwise", "pool")),
    "scale": (("set_config_scale",), ("vector",)),
    "exponents": (("measure",), ("activate", "vector", "measure operand")),
}
"""For each resource those who write it and those who read it."""


@dataclass(frozen=True)
class Access:
    """Part `where` of a resource is written or read by `who`, one of _USERS."""

    resource: str
    who: str
    writes: bool
    where: range


def hazard_bins() -> Iterator[str]:
    """Every ordered pair of which one writes, near and far."""
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
    """Watches the instructions of a program in their order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recent: deque[list[Access]] = deque(maxlen=FAR)

    def bins(self, opcode: Opcode, operands: Mapping[str, int], window: Window) -> Iterator[str]:
        """The pairs that the next instruction makes with earlier ones."""
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
        who = opcode.name.lower()
        whole = range(1)
        match opcode:
            case Opcode.READ_HOST_MEMORY | Opcode.READ_HOST_MEMORY_ALTERNATE:
                (lines,) = ranges.buffer_lines(opcode, at, window, self._config.rows)
                yield Access("host bytes", who, False, self._host(opcode, at))
                yield Access("lines", who, True, lines)
            case Opcode.WRITE_HOST_MEMORY | Opcode.WRITE_HOST_MEMORY_ALTERNATE:
                (lines,) = ranges.buffer_lines(opcode, at, window, self._config.rows)
                yield Access("lines", who, False, lines)
                yield Access("host bytes", who, True, self._host(opcode, at))
            case Opcode.LOAD_PARAMETERS:
                yield Access("host bytes", who, False, self._host(opcode, at))
                entries = ranges.parameter_entries(opcode, at, window)
                yield Access("parameters", who, True, entries)
            case Opcode.LOAD_TABLE:
                yield Access("host bytes", who, False, self._host(opcode, at))
                yield Access("tables", who, True, range(at["table"], at["table"] + 1))
            case Opcode.READ_WEIGHTS:
                yield Access("weight queue", who, True, whole)
            case Opcode.SET_CONFIG_WINDOW:
                yield Access("window", who, True, whole)
            case Opcode.SET_CONFIG_SCALE:
                yield Access("scale", who, True, whole)
            case Opcode.MATRIX_MULTIPLY | Opcode.CONVOLVE:
                lines, *weights = ranges.buffer_lines(opcode, at, window, self._config.rows)
                yield Access("lines", who, False, lines)
                for tiles in weights:
                    yield Access("lines", "matrix_multiply weights", False, tiles)
                if not weights:
                    yield Access("weight queue", who, False, whole)
                yield Access("rows", who, True, ranges.accumulator_rows(opcode, at, window))
                if opcode == Opcode.CONVOLVE:
                    yield Access("window", who, False, whole)
            case Opcode.ACTIVATE | Opcode.DEPTHWISE | Opcode.POOL | Opcode.VECTOR:
                yield from self._activation_unit(opcode, at, window)
            case Opcode.MEASURE | Opcode.TRANSPOSE | Opcode.RANDOM:
                yield from self._training(opcode, at, window)
            case _:
                pass

    def _activation_unit(
        self, opcode: Opcode, at: Mapping[str, int], window: Window
    ) -> Iterator[Access]:
        who = opcode.name.lower()
        *sources, result = ranges.buffer_lines(opcode, at, window, self._config.rows)
        entries = ranges.parameter_entries(opcode, at, window)
        yield Access("parameters", who, False, entries)
        match opcode:
            case Opcode.ACTIVATE:
                names: tuple[str, ...] = ()
                yield Access("rows", who, False, ranges.accumulator_rows(opcode, at, window))
            case Opcode.DEPTHWISE:
                names = ("map", "taps")
            case Opcode.POOL:
                names = ("map",)
            case _:
                names = ("a",) if at["operation"] == Operation.COPY else ("a", "b")
        for name, lines in zip(names, sources, strict=True):
            yield Access("lines", f"{who} {name}", False, lines)
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            if at["accumulate"]:
                yield Access("lines", f"{who} addend", False, result)
            if at["function"] == Function.TABLE:
                yield Access("tables", who, False, range(at["table"], at["table"] + 1))
        yield Access("lines", who, True, result)
        if opcode in (Opcode.DEPTHWISE, Opcode.POOL):
            yield Access("window", who, False, range(1))
        if at.get("exponent"):
            used = range(at["exponent"], at["exponent"] + 1)
            yield Access("exponents", who, False, used)
        if opcode == Opcode.VECTOR:
            yield Access("scale", who, False, range(1))

    def _training(self, opcode: Opcode, at: Mapping[str, int], window: Window) -> Iterator[Access]:
        regions = ranges.buffer_lines(opcode, at, window, self._config.rows)
        match opcode:
            case Opcode.MEASURE:
                for lines in regions:
                    yield Access("lines", "measure", False, lines)
                if at["source"] == Source.ACCUMULATORS:
                    rows = ranges.accumulator_rows(opcode, at, window)
                    yield Access("rows", "measure", False, rows)
                for operand in ("first", "second", "third"):
                    if at[operand]:
                        used = range(at[operand], at[operand] + 1)
                        yield Access("exponents", "measure operand", False, used)
                written = range(at["exponent"], at["exponent"] + 1)
                yield Access("exponents", "measure", True, written)
            case Opcode.TRANSPOSE:
                yield Access("lines", "transpose source", False, regions[0])
                yield Access("lines", "transpose", True, regions[1])
            case _:
                yield Access("lines", "random", True, regions[0])

    def _host(self, opcode: Opcode, at: Mapping[str, int]) -> range:
        return ranges.host_bytes(opcode, at, self._config)
