# SPDX-License-Identifier: Apache-2.0
"""A read-only table of the decoder's steps. A row has numbers that select a step's values."""

from collections.abc import Sequence
from dataclasses import replace

from amaranth.hdl import Cat, Const, Mux, Signal, Value, ValueLike
from amaranth.hdl._ast import Operator, Slice  # these classes have no public names
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from systola.arch.isa import Fault, Opcode, instructions_of
from systola.hdl.control.checks import LEAST_STEPS, NOTHING, SUM, Limit, Step
from systola.hdl.parts.ored import one_of


class Choices:
    """A set of values, each with a number that selects it with few levels of logic.

    | field   | meaning |
    |---|---|
    | `group` | group of the value, one-hot; zero for the value zero, which is in no group |
    | `pick`  | index of the value in its group |
    | `half`  | the half that has the value's group, if groups are in two halves; both halves share
                the bits of `group` |

    With two halves, the user calls `selected` for each half, and chooses a result by `half`.
    """

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._indices: dict[str, int] = {}
        self._halves: list[list[list[int]]] = []

    def index(self, value: ValueLike) -> int:
        """Return the index of a value; the same expression always has the same index."""
        name = repr(Value.cast(value))
        if name not in self._indices:
            self._indices[name] = len(self._values)
            self._values.append(Value.cast(value))
        return self._indices[name]

    def arrange(self, *, size: int, halves: int = 1, alone: int | None = None) -> None:
        """Divide the values into groups of up to `size` values, with similar widths together.

        Values computed by logic come late, so their groups have half the size. The value with the
        index `alone` has the first group for itself.
        """
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
        """Return the fields of the number that selects the value with this index."""
        for half, groups in enumerate(self._halves):
            for group, members in enumerate(groups):
                if index in members:
                    place = {"group": 1 << group, "pick": members.index(index)}
                    return place | ({"half": half} if len(self._halves) > 1 else {})
        return dict.fromkeys(self.layout.members, 0)

    def selected(self, number: data.View, half: int = 0, *, constants: bool = True) -> Value:
        """Return the value with this number, chosen among the groups of one half.

        The result has no meaning if the value is in a group of the other half. If `constants` is
        false, each constant counts as 0.
        """
        found: list[Value] = []
        for members in self._halves[half]:
            values = [self._values[index] for index in members]
            if not constants:
                values = [Const(0) if isinstance(value, Const) else value for value in values]
            found.append(selected(values, number.pick))
        return one_of(number.group[: len(found)], found)


def _is_zero(value: Value) -> bool:
    """Return whether a value is the constant 0."""
    return isinstance(value, Const) and value.value == 0


def _is_worked_out(value: Value) -> bool:
    """Return whether a value is the result of logic: no signal, constant or slice."""
    signed = isinstance(value, Operator) and value.operator == "s"  # `as_signed` needs no logic
    return not (signed or isinstance(value, Signal | Const | Slice))


def selected(values: Sequence[Value], number: Value) -> Value:
    """Return the value with this number, by a tree of multiplexers.

    The number must be less than the number of values.
    """
    if len(values) == 1:
        return values[0]
    half = 1 << len(number) - 1
    low, rest = values[:half], number[:-1]
    if len(values) <= half:
        return selected(values, rest)
    return Mux(number[-1], selected(values[half:], rest), selected(low, rest))


def _constant(values: Sequence[int], width: int, number: Value) -> Value:
    """Return the constant with this number, by multiplexers that use as few bits as possible."""
    if all(value == values[0] for value in values):
        return Const(values[0], width)
    half = 1 << len(number) - 1
    low = _constant(values[:half], width, number[:-1])
    if len(values) <= half:
        return low
    return Mux(number[-1], _constant(values[half:], width, number[:-1]), low)


class WalkTable:
    """A read-only table of the rows of all instructions; equal sequences of rows exist once.

    A row describes one step, in two parts with a layout each:

    | layout     | field   | meaning |
    |---|---|---|
    | `operands` | `a`, `b` | numbers of the factors |
    | `operands` | `last`  | the step is the instruction's last |
    | `results`  | `base`  | number of the base, in one of two halves |
    | `results`  | `limit` | number of the limit |
    | `results`  | `into`  | number of the registers that take the result |
    | `results`  | `least` | the product must be at least 1 |

    `checked` has the fields that a step with `least` checks for their minimum.
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
        """Return the rows of an instruction."""
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
        """Return the place of an instruction's first row in the table, and the row's operands.

        The opcode comes late in the cycle. So the operands are found from the opcode itself, not
        from the place.
        """
        by_code = {int(known): start for known, start in self._starts.items()}
        code = opcode[: bits_for(max(by_code))]
        starts = [by_code.get(number, 0) for number in range(1 << len(code))]
        operands = self._all(self.operands)
        return (
            _constant(starts, ceil_log2(self.places + 1), code),
            _constant([operands[start] for start in starts], self.operands.size, code),
        )

    def behind(self, place: Value) -> Value:
        """Return the operands of the row after `place`; an instruction must not end at `place`."""
        return _constant(self._all(self.operands)[1:], self.operands.size, place)

    def row(self, place: Value) -> Value:
        """Return the results of the row at a place."""
        return _constant(self._all(self.results), self.results.size, place)

    def begins(self, base: data.View) -> Value:
        """Return whether the base with this number is independent of the step before."""
        return ~base.group[0] | base.half

    def fault(self, limit: Value) -> Value:
        """Return the fault that exceeding a limit raises; NONE for a limit that is only noted.

        `limit` is the number that selects the limit.
        """
        faults = [Fault.NONE if each is None or each.notes else each.fault for each in self.limits]
        return _constant([int(fault) for fault in faults], len(Const(0, Fault)), limit)

    def overlaps(self, limit: Value, base: Value) -> Value:
        """Return whether a limit raises OVERLAP and has the value `base`.

        `limit` is the number that selects the limit.
        """
        found = [
            (limit == number) & (Value.cast(each.value) == base)
            for number, each in enumerate(self.limits)
            if each is not None and each.fault is Fault.OVERLAP and not each.notes
        ]
        return Cat(found).any()

    def _all(self, layout: data.StructLayout) -> list[int]:
        """Return for each row the part that has this layout, as bits."""
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
        """Return the number that selects a limit; a new limit gets the next number."""
        names = [repr(each and replace(each, value=Value.cast(each.value))) for each in self.limits]
        name = repr(limit and replace(limit, value=Value.cast(limit.value)))
        if name not in names:
            self.limits.append(limit)
            return len(names)
        return names.index(name)

    def _into(self, registers: tuple[str, ...]) -> int:
        """Return the number that selects these registers, which take a step's result."""
        if registers not in self.intos:
            self.intos.append(registers)
        return self.intos.index(registers)
