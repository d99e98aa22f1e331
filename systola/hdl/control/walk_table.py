# SPDX-License-Identifier: Apache-2.0
"""The steps of all instructions as rows of a read-only table, with numbers for what they name."""

from collections.abc import Sequence
from dataclasses import replace

from amaranth.hdl import Cat, Const, Mux, Signal, Value, ValueLike
from amaranth.hdl._ast import Operator, Slice  # they have no public names
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from systola.arch.isa import Fault, Opcode, instructions_of
from systola.hdl.control.checks import LEAST_STEPS, NOTHING, SUM, Limit, Step
from systola.hdl.parts.ored import one_of


class Choices:
    """Different values, and for each a number that selects it in few steps of logic: which `group`
    it is in, a one, and its place there (`pick`). Where there are two halves, groups of both share
    their ones, and who selects takes the half that the number says. Zero is in no group.
    """

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._indices: dict[str, int] = {}
        self._halves: list[list[list[int]]] = []

    def index(self, value: ValueLike) -> int:
        """The index of a value; a new one where none was made of the same bits in this way."""
        name = repr(Value.cast(value))
        if name not in self._indices:
            self._indices[name] = len(self._values)
            self._values.append(Value.cast(value))
        return self._indices[name]

    def arrange(self, *, size: int, halves: int = 1, alone: int | None = None) -> None:
        """Makes groups of up to `size` values, long ones together; of half as many that are worked
        out, as they come late. The first one has nothing but the value `alone`."""
        groups = [] if alone is None else [[alone]]
        indices = [i for i, value in enumerate(self._values) if i != alone and not _is_zero(value)]
        indices.sort(key=lambda index: -len(self._values[index]))
        for late, most in ((False, size), (True, size // 2)):
            chosen = [index for index in indices if _is_worked_out(self._values[index]) == late]
            groups += [chosen[i : i + most] for i in range(0, len(chosen), most)]
        self._halves = [groups[half::halves] for half in range(halves)]
        self.layout = data.StructLayout(
            {
                "group": len(self._halves[0]),
                "pick": ceil_log2(size),
                **({"half": 1} if halves > 1 else {}),
            }
        )

    def number(self, index: int) -> dict[str, int]:
        """The number of the value with an index, a constant of the `layout`."""
        for half, groups in enumerate(self._halves):
            for group, members in enumerate(groups):
                if index in members:
                    place = {"group": 1 << group, "pick": members.index(index)}
                    return place | ({"half": half} if len(self._halves) > 1 else {})
        return dict.fromkeys(self.layout.members, 0)

    def selected(self, number: data.View, half: int = 0, *, constants: bool = True) -> Value:
        """The value with a number, if it is in this half; without `constants` 0 for them."""
        found: list[Value] = []
        for members in self._halves[half]:
            values = [self._values[index] for index in members]
            if not constants:
                values = [Const(0) if isinstance(value, Const) else value for value in values]
            found.append(selected(values, number.pick))
        return one_of(number.group[: len(found)], found)


def _is_zero(value: Value) -> bool:
    """Whether it is the constant."""
    return isinstance(value, Const) and value.value == 0


def _is_worked_out(value: Value) -> bool:
    """Whether it takes logic."""
    signed = isinstance(value, Operator) and value.operator == "s"  # it only counts as such
    return not (signed or isinstance(value, Signal | Const | Slice))


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
    the `last`; `results` that of the base, in one of two halves, the limit, where the step goes
    into, and whether its product must be at `least` 1. `checked`: the fields whose minimum is
    checked so.
    """

    def __init__(self, walks: dict[Opcode, tuple[Step, ...]], total: Value, *, links: bool = False):
        self.a, self.b, self.bases = Choices(), Choices(), Choices()
        self.limits: list[Limit | None] = [None]
        self.intos: list[tuple[str, ...]] = [()]
        self.checked: set[tuple[Opcode, str]] = set()
        self._sum = self.bases.index(total)
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
        self.a.arrange(size=4)
        self.b.arrange(size=4)
        self.bases.arrange(size=2, halves=2, alone=self._sum)
        self.operands = data.StructLayout({"a": self.a.layout, "b": self.b.layout, "last": 1})
        self.results = data.StructLayout(
            {
                "base": self.bases.layout,
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
                "a": self.a.index(step.a),
                "b": self.b.index(step.b),
                "base": self._sum if step.base is SUM else self.bases.index(step.base),
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
        code = opcode[: bits_for(max(by_code))]
        starts = [by_code.get(number, 0) for number in range(1 << len(code))]
        operands = self._all(self.operands)
        return (
            _constant(starts, ceil_log2(self.places + 1), code),
            _constant([operands[start] for start in starts], self.operands.size, code),
        )

    def behind(self, place: Value) -> Value:
        """The operands of the row behind a place, which is not the last of an instruction."""
        return _constant(self._all(self.operands)[1:], self.operands.size, place)

    def row(self, place: Value) -> Value:
        """The results of the row at a place."""
        return _constant(self._all(self.results), self.results.size, place)

    def begins(self, base: data.View) -> Value:
        """Whether the base with this number is not the `total` before."""
        return ~base.group[0] | base.half

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
        choices = {"a": self.a, "b": self.b, "base": self.bases}
        return [
            layout.const(
                {
                    name: choices[name].number(row[name]) if name in choices else row[name]
                    for name in layout.members
                }
            ).as_bits()
            for row in self._rows
        ]

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
