# SPDX-License-Identifier: Apache-2.0
"""The steps of all instructions as rows of a read-only table, with numbers for what they name."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from amaranth.hdl import Cat, Const, Mux, Signal, Value, ValueLike
from amaranth.hdl._ast import Operator, Slice  # they have no public names
from amaranth.lib import data
from amaranth.utils import ceil_log2

from systola.arch.isa import Fault, Opcode, instructions_of
from systola.hdl.control.checks import LEAST_STEPS, NOTHING, SUM, Limit, Step


class Choices:
    """Different values, each with a number."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[str, int] = {}

    @property
    def bits(self) -> int:
        """Width of a number."""
        return ceil_log2(len(self.values))

    def number(self, value: ValueLike) -> int:
        """The number of a value; a new one where none was made of the same bits in this way."""
        name = repr(Value.cast(value))
        if name not in self._numbers:
            self._numbers[name] = len(self.values)
            self.values.append(Value.cast(value))
        return self._numbers[name]

    def sort(self, *, grouped: bool) -> list[int]:
        """Puts long values first, and behind them, from half the numbers on if there are as many,
        those that are worked out, as they come late: one multiplexer is behind them all. Or,
        `grouped`, those that begin with the same bit side by side, from a multiple of a power of
        two on: either spares multiplexers. Returns the new number of each."""
        groups: dict[str, list[int]] = defaultdict(list)
        for index in sorted(range(len(self.values)), key=lambda index: -len(self.values[index])):
            value = self.values[index]
            groups[_begin(value) if grouped else str(_is_worked_out(value))].append(index)
        half = 1 << self.bits - 1
        fits = all(len(group) <= half for group in groups.values())
        order: list[int] = []
        for group in sorted(groups.values(), key=lambda group: -ceil_log2(len(group))):
            room = 1 << ceil_log2(len(group)) if grouped or fits else len(group)
            order += group + group[-1:] * (room - len(group))
        numbers = [order.index(index) for index in range(len(self.values))]
        self.values = [self.values[index] for index in order]
        return numbers


def _is_worked_out(value: Value) -> bool:
    """Whether it takes logic."""
    signed = isinstance(value, Operator) and value.operator == "s"  # it only counts as such
    return not (signed or isinstance(value, Signal | Const | Slice))


def _begin(value: Value) -> str:
    """The same for slices that begin with the same bit."""
    return f"{value.value!r} {value.start}" if isinstance(value, Slice) else repr(value)


def selected(values: Sequence[Value], number: Value) -> Value:
    """The value with this number; none has a number for which there is no value."""
    if len(values) == 1:
        return values[0]
    half = 1 << len(number) - 1
    low, rest = values[:half], number[:-1]
    if len(values) <= half:
        return selected(values, rest)
    return Mux(number[-1], selected(values[half:], rest), selected(low, rest))


def _constant(values: Sequence[int], width: int, number: Value) -> Value:
    """The same of constants, where as few bits of the number as possible are looked at."""
    if all(value == values[0] for value in values):
        return Const(values[0], width)
    half = 1 << len(number) - 1
    low = _constant(values[:half], width, number[:-1])
    if len(values) <= half:
        return low
    return Mux(number[-1], _constant(values[half:], width, number[:-1]), low)


class WalkTable:
    """The rows of all instructions, one after the other, the same rows once.

    `operands` is the layout of what a row says of the operands: their numbers, and whether it is
    the `last`; `results` that of the base, `sum` being that of the `total` before, the limit, where
    the step goes into, and whether its product must be at `least` 1. `checked`: the fields whose
    minimum is checked so.
    """

    def __init__(self, walks: dict[Opcode, tuple[Step, ...]], total: Value, *, links: bool = False):
        self.a, self.b, self.bases = Choices(), Choices(), Choices()
        self.limits: list[Limit | None] = [None]
        self.intos: list[tuple[str, ...]] = [()]
        self.checked: set[tuple[Opcode, str]] = set()
        self.sum = self.bases.number(total)
        self._rows: list[dict[str, int]] = []
        starts: dict[str, int] = {}
        self._starts: dict[Opcode, int] = {}
        for entry in instructions_of(links=links):
            steps = walks.get(entry.opcode, (NOTHING,) * LEAST_STEPS)
            rows = self._encoded(entry.opcode, steps)
            start = starts.setdefault(repr(rows), len(self._rows))
            self._rows += rows if start == len(self._rows) else []
            self._starts[entry.opcode] = start
        self.places = len(self._rows)
        for name, choices in (("a", self.a), ("b", self.b), ("base", self.bases)):
            numbers = choices.sort(grouped=choices is self.bases)
            for row in self._rows:
                row[name] = numbers[row[name]]
            if choices is self.bases:
                self.sum = numbers[self.sum]
        self.operands = data.StructLayout({"a": self.a.bits, "b": self.b.bits, "last": 1})
        self.results = data.StructLayout(
            {
                "base": self.bases.bits,
                "least": 1,
                "limit": ceil_log2(len(self.limits)),
                "into": ceil_log2(len(self.intos)),
            }
        )

    def _encoded(self, opcode: Opcode, steps: tuple[Step, ...]) -> list[dict[str, int]]:
        """The rows of an instruction."""
        rows: list[dict[str, int]] = []
        for number, step in enumerate(steps):
            row = {
                "a": self.a.number(step.a),
                "b": self.b.number(step.b),
                "base": self.sum if step.base is SUM else self.bases.number(step.base),
                "limit": self._limit(step.limit),
                "into": self._into(step.into),
                "last": int(number == len(steps) - 1),
                "least": int(bool(step.least)),
            }
            rows.append(row)
            self.checked |= {(opcode, name) for name in step.least}
        return rows

    def start(self, opcode: Value) -> tuple[Value, Value]:
        """The place of the first row of an instruction and, found beside it, its operands: where
        words come from is late in the cycle."""
        by_code = {int(known): start for known, start in self._starts.items()}
        starts = [by_code.get(code, 0) for code in range(1 << len(opcode))]
        operands = self._all(self.operands)
        return (
            _constant(starts, ceil_log2(self.places + 1), opcode),
            _constant([operands[start] for start in starts], self.operands.size, opcode),
        )

    def behind(self, place: Value) -> Value:
        """The operands of the row behind a place, which is not the last of an instruction."""
        return _constant(self._all(self.operands)[1:], self.operands.size, place)

    def row(self, place: Value) -> Value:
        """The results of the row at a place."""
        return _constant(self._all(self.results), self.results.size, place)

    def fault(self, limit: Value) -> Value:
        """The fault where a limit, given by its number, is exceeded; NONE where that is noted."""
        faults = [Fault.NONE if each is None or each.notes else each.fault for each in self.limits]
        return _constant([int(fault) for fault in faults], len(Const(0, Fault)), limit)

    def overlaps(self, limit: Value, base: Value) -> Value:
        """Whether a limit, given by its number, is where an overlap ends that begins at `base`."""
        found = [
            (limit == number) & (Value.cast(each.value) == base)
            for number, each in enumerate(self.limits)
            if each is not None and each.fault is Fault.OVERLAP and not each.notes
        ]
        return Cat(found).any()

    def _all(self, layout: data.StructLayout) -> list[int]:
        """What the rows have of a layout."""
        names = layout.members
        return [layout.const({name: row[name] for name in names}).as_bits() for row in self._rows]

    def _limit(self, limit: Limit | None) -> int:
        """The number of a limit."""
        names = [repr(each and replace(each, value=Value.cast(each.value))) for each in self.limits]
        name = repr(limit and replace(limit, value=Value.cast(limit.value)))
        if name not in names:
            self.limits.append(limit)
            return len(names)
        return names.index(name)

    def _into(self, registers: tuple[str, ...]) -> int:
        """The number of the registers that a step goes into."""
        if registers not in self.intos:
            self.intos.append(registers)
        return self.intos.index(registers)
