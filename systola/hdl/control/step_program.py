# SPDX-License-Identifier: Apache-2.0
"""A builder for the ROM rows of an instruction, as far as `arch/isa` describes them.

A term is a product in the formula for the size of a region. A row adds the term to a sum if the
conditions of the term hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from systola.arch.config import Config
from systola.arch.isa import (
    OPCODE_BITS,
    PLACE_BITS,
    Executor,
    Fault,
    Field,
    Function,
    Instruction,
    Memory,
    Opcode,
    Use,
)
from systola.hdl.control.step_extents import Term, terms
from systola.hdl.control.step_row import (
    CELL_BITS,
    HOST_LIMIT,
    INDEXES,
    KEPT_BITS,
    WEIGHT_TILES,
    ZERO,
    Base,
    Bits,
    Loads,
    Note,
    Row,
    Times,
    When,
)

WIDE_FLAGS = ("wide", "wide_operands", "wide_vectors", "wide_weights")
FLAGS = (*WIDE_FLAGS, "sums")
"""One-bit fields with which some terms of an extent count, and without which they do not.

Without 16-bit modes WIDE_FLAGS are zero.
"""
CURVES = frozenset({"function == TABLE", "wide"})
"""Conditions of the terms for curves: tables that give int16 results."""
GATHERS = frozenset({"function == QUOTIENT", "operation != MULTIPLY"})
"""Conditions of the terms for a table of int32 that a QUOTIENT reads."""
RELATIVE = frozenset({"function == QUOTIENT", "operation == ADD"})
"""Conditions of the terms for a line that is subtracted from all vectors."""
SECOND = frozenset({"operation != COPY", "(function == QUOTIENT) * (operation == ADD) == 0"})
"""Conditions of the terms for an operand b that has its own line, or two lines, for each vector."""
WRITES_LINES = frozenset({"accumulate * (wide == 0) == 0"})
"""Conditions of the terms for result lines, which all instructions have but partitions."""
CONDITIONS: Mapping[frozenset[str], When] = {
    frozenset(): When.ALWAYS,
    frozenset({"wide"}): When.FLAG_A,
    frozenset({"wide_vectors"}): When.FLAG_A,
    frozenset({"wide_operands"}): When.FLAG_B,
    frozenset({"wide_weights"}): When.FLAG_B,
    frozenset({"sums"}): When.FLAG_A,
    frozenset({"1 - sums"}): When.NOT_A,
    frozenset({"function == TABLE"}): When.TABLE,
    CURVES: When.CURVE,
    GATHERS: When.GATHERS,
    RELATIVE: When.RELATIVE,
    frozenset({"reduction == AVERAGE"}): When.AVERAGE,
    frozenset({"source == ACCUMULATORS"}): When.FROM_ROWS,
    frozenset({"source == LINES"}): When.FROM_LINES,
    WRITES_LINES: When.WRITES_LINES,
    WRITES_LINES | {"wide"}: When.FLAG_A,
    SECOND: When.SECOND,
    SECOND | {"wide_operands"}: When.SECOND_AND_B,
}
"""The condition of a ROM row that adds a term, by the conditions of the term."""
_WITH_FLAGS = (
    *(Executor.MATRIX_UNIT, Executor.ACTIVATION_UNIT, Executor.LINK_UNIT),
    *(Executor.HOST_READER, Executor.WEIGHT_FETCH),
)
"""Units that get opcode and flags in their commands, in the bits that the instruction has."""
_LOADS: Mapping[Opcode, Loads] = {
    Opcode.ACTIVATE: Loads.ACTIVATE,
    Opcode.VECTOR: Loads.VECTOR,
    Opcode.MATRIX_MULTIPLY: Loads.MATRIX,
    Opcode.DEPTHWISE: Loads.MAP,
    Opcode.POOL: Loads.MAP,
    Opcode.MEASURE: Loads.MEASURE,
    Opcode.SEND: Loads.SEND,
}
"""For instructions with conditions: the flags that the first row loads."""
SIZE_CELLS = ("map_lines", "windows", "kernel_taps")
"""Names in formulas that stand for cells of the scratch memory, not for fields.

Set_Config_Window writes these cells.
"""


def constant(value: int) -> str:
    """Return the name of the cell that always holds the constant `value`."""
    return f"={value}" if value else ZERO


class Program:
    """A builder that has methods to append the ROM rows of one instruction, in their order.

    Rows that check for ILLEGAL_FIELD or WINDOW may stand anywhere: these faults win over all other
    faults of the instruction.
    """

    def __init__(self, entry: Instruction, config: Config):
        self.entry = entry
        self.config = config
        self.rows: list[Row] = []
        self._kept: Bits | str | None = None
        self._waiting: dict[str, Row] = {}
        self.products: dict[tuple[str, ...], str] = {}
        """Names of cells that already hold a product, by the factors of the product."""

    def emit(self, **parts: Any) -> None:
        """Append a row to the program."""
        row = Row(**parts)
        self.rows.append(row)
        if row.keep:
            self._kept = row.x

    def bits(self, first: str, last: str | None = None) -> Bits:
        """Return the bits of a field, or of all fields from `first` to `last`."""
        field, offset = self.entry.field(first), self.entry.offset(first)
        end = self.entry.offset(last or first) + self.entry.field(last or first).width
        return Bits(offset, end - offset, field.signed and last is None)

    def move(self, name: str, **parts: Any) -> None:
        """Prepare a row that reads the field `name`, and set `parts` of this row.

        A later `flush` or `take` appends the row.
        """
        row = self._waiting.get(name, Row(x=self.bits(name)))
        self._waiting[name] = replace(row, **parts)

    def flush(self, keep: str | None = None, later: Sequence[str] = ()) -> None:
        """Append the rows that `move` has prepared, except the rows of the fields in `later`.

        The field `keep` becomes the kept factor, and its row comes last. The other rows may stand
        in any order.
        """
        last = self._waiting.pop(keep, None) if keep else None
        self.rows += (row for name, row in self._waiting.items() if name not in later)
        self._waiting = {name: self._waiting[name] for name in later}
        if last is not None:
            self.rows.append(replace(last, keep=True))
            self._kept = last.x
        elif keep:
            self.keep(self.bits(keep))

    def take(self, name: str) -> None:
        """Append the prepared row of a field, which also makes the field the kept factor."""
        self.emit(**{**vars(self._waiting.pop(name)), "keep": True})

    def keep(self, x: Bits | str) -> None:
        """Make x the kept factor; append a row for this unless it already is."""
        if self._kept != x:
            self.emit(x=x, keep=True, when=When.NEVER)

    def index(self, name: str) -> Base | str:
        """Return the index register that is added to the operand `name`, or ZERO without one."""
        operands = [field.indexes for field in self.entry.fields if field.indexes]
        return INDEXES[operands.index(name)] if name in operands else ZERO

    def begin(self) -> None:
        """Append the first row, which takes the lowest bits of the word.

        These bits are the opcode, the numbers of index registers, and the flags. Also prepare
        the rows that check the minima of other fields.
        """
        entry = self.entry
        head = [field for field in entry.fields if entry.offset(field.name) < self._head_end()]
        if head:
            flags = entry.executor in _WITH_FLAGS
            self.emit(
                x=Bits(0, self._head_end()),
                loads=_LOADS.get(entry.opcode, Loads.SELECT),
                word="flags" if flags else None,
                names=True,
                **self._check_last(head[-1]),
            )
        for field in entry.fields[len(head) :]:
            self._check_values(field)

    def _head_end(self) -> int:
        """Return the number of bits in the opcode and the fields that follow it without a gap."""
        end = OPCODE_BITS
        for field in self.entry.fields:
            if not field.beside or self.entry.offset(field.name) != end:
                break
            if field.name != "stochastic" or self.config.training:
                end += field.width
        return end

    def _check_last(self, field: Field) -> dict[str, Any]:
        """Return the parts of the first row that check `field`, the last field in this row."""
        place = self.entry.offset(field.name)
        most = (1 << field.width) - 1
        if field.values is not None:
            most = min(most, max(field.values))
        if self.entry.opcode is Opcode.DEPTHWISE:
            most = Function.RELU6
        least = field.minimum or 0
        if not least and most == (1 << field.width) - 1:
            return {}
        return {
            "base": constant(-least << place),
            "limit": constant((most + 1 - least << place) - 1),
            "fault": Fault.ILLEGAL_FIELD,
        }

    def check_reserved(self) -> None:
        """Check that reserved bits are zero, if possible in the row for the bits just below."""
        ranges = list(self.entry.reserved)
        places = [self.entry.offset(field.name) for field in self.entry.fields]
        if self.entry.opcode is Opcode.ACTIVATE and not self.config.training:
            # Without training the bit `stochastic` is reserved, too. It lies just below the first
            # reserved range.
            ranges[0] = (self.entry.offset("stochastic"), ranges[0][1])
        for start, end in ranges:
            checked = self._widened(start, end)
            while checked < end:
                # The bits that a row reads begin at a multiple of PLACE_BITS. So they may include
                # upper bits of an earlier field.
                offset = max(
                    place
                    for place in (checked, *places)
                    if place <= checked and place % PLACE_BITS == 0
                )
                row = {
                    "x": Bits(offset, min(CELL_BITS, end - offset)),
                    "fault": Fault.ILLEGAL_FIELD,
                }
                self.emit(**row, limit=constant((1 << checked - offset) - 1))
                checked = offset + CELL_BITS

    def _widened(self, start: int, end: int) -> int:
        """Extend a row that reads up to bit `start`, to check the bits from `start` on as well.

        Returns the end of the checked bits, or `start` if no row can be extended.
        """
        for place, row in enumerate(self.rows):
            x = row.x
            if not isinstance(x, Bits) or x.offset + x.width != start or x.signed:
                continue
            checks = row.fault is Fault.ILLEGAL_FIELD
            unlimited = row.limit is None and row.base == ZERO
            if row.times is Times.ONE and row.when is When.ALWAYS and (checks or unlimited):
                wider = replace(x, width=min(CELL_BITS, end - x.offset))
                limit = row.limit if checks else constant((1 << x.width) - 1)
                fault = Fault.ILLEGAL_FIELD
                self.rows[place] = replace(row, x=wider, limit=limit, fault=fault)
                return wider.offset + wider.width
        return start

    def _check_values(self, field: Field) -> None:
        if field.minimum is not None:
            assert field.minimum == 1, f"{self.entry.mnemonic}: {field.name}"
            self.move(field.name, least=True)
        assert field.values is None or len(field.values) >= 1 << field.width

    def limit(self, name: str, most: int, fault: Fault = Fault.ILLEGAL_FIELD) -> None:
        """Add to the row of a field the check that its value is at most `most`."""
        self.move(name, limit=constant(most), fault=fault)

    def fail(self, fault: Fault, when: When = When.ALWAYS) -> None:
        """Append a row that raises `fault` if the condition `when` holds."""
        self.emit(base=constant(1), limit=ZERO, fault=fault, when=when)

    def base(self, name: str, **parts: Any) -> None:
        """Append a row for an address: field plus index register, modulo 2^(width of the field)."""
        base = self.index(name)
        wraps = None if base == ZERO else self.entry.field(name).width
        row = {"names": True, "aligned": name == "host", **parts}
        self.emit(x=self.bits(name), base=base, wraps=wraps, **row)

    def region(
        self, use: Use, cell: str, *, word: str | None = None, end: str | None = None
    ) -> None:
        """Append rows that compute base and end of a region, and check the end.

        Base and end go into the cells `cell`.base and `cell`.end of the scratch memory. If `word`
        and `end` are given, base and end also go into the command words of these names.
        """
        fault, limit = self.limit_of(use.memory)
        found = [
            term if self.config.attention else term.without(WRITES_LINES)
            for term in terms(use.extent, FLAGS)
            if (self.config.wide or not term.conditions & set(WIDE_FLAGS))
            and (self.config.attention or term.conditions not in (CURVES, GATHERS, RELATIVE))
        ]
        self.base(use.base, into=f"{cell}.base", word=word)
        if not found or found[0].conditions:
            self.emit(base=Base.SUM, into=f"{cell}.end", word=end)
        for conditions, group in groupby(found, key=lambda term: term.conditions):
            members = list(group)
            ends = {"into": f"{cell}.end", "word": end, "limit": limit, "fault": fault}
            for term in members:
                last = term is members[-1]
                self.add(term, when=CONDITIONS[conditions], **(ends if last else {}))

    def overlap(self, name: str, when: When) -> None:
        """Append rows that check that the results share no line with an operand.

        An overlap is a fault only if the condition `when` holds. The condition must be false where
        results may replace an operand that has exactly the same lines.
        """
        self.emit(base="result.base", limit=f"{name}.base", note=Note.EQUAL_A, names=True)
        self.emit(base=f"{name}.end", limit="result.base", note=Note.BEYOND)
        self.emit(base="result.end", limit=f"{name}.base", fault=Fault.OVERLAP, when=when)

    def add(self, term: Term, **parts: Any) -> None:
        """Append a row that adds a term to the result of the row before."""
        names = term.factors
        if names in self.products:
            times = Times.MINUS_ONE if term.negative else Times.ONE
            self.emit(**{"base": Base.SUM, "x": self.products[names], "times": times, **parts})
            return
        factors = [factor for factor in map(self._factor, names) if factor != 1]
        number = 1
        for factor in factors:
            number *= factor if isinstance(factor, int) else 1
        found: list[Bits | str] = [factor for factor in factors if not isinstance(factor, int)]
        if number != 1 or not found:
            found.append(constant(number))
        if len(found) == 1:
            times = Times.MINUS_ONE if term.negative else Times.ONE
            self.emit(**{"base": Base.SUM, "x": found[0], "times": times, **parts})
            return
        assert len(found) == 2 and not term.negative, f"{self.entry.mnemonic}: {term}"
        kept = self._kept if self._kept in found else next(f for f in found if isinstance(f, Bits))
        assert kept is not None
        if isinstance(kept, Bits):
            assert kept.width <= KEPT_BITS and not kept.signed
        found.remove(kept)
        self.keep(kept)
        self.emit(**{"base": Base.SUM, "x": found[0], "times": Times.KEPT, **parts})

    def _factor(self, name: str) -> Bits | str | int:
        config = self.config
        sizes = {
            "R": config.rows,
            "C": config.cols,
            "P_in": config.input_pitch,
            "P_out": config.output_pitch,
        }
        if name.isdecimal():
            return int(name)
        return sizes[name] if name in sizes else name if name in SIZE_CELLS else self.bits(name)

    def limit_of(self, memory: Memory) -> tuple[Fault, str]:
        """Return the fault for addresses beyond the end of `memory`, and the cell with its size."""
        config = self.config
        return {
            Memory.BUFFER: (Fault.BUFFER_RANGE, constant(config.buffer_lines)),
            Memory.ACCUMULATORS: (Fault.ACCUMULATOR_RANGE, constant(config.accumulator_rows)),
            Memory.PARAMETERS: (Fault.PARAMETER_RANGE, constant(config.parameter_entries)),
            Memory.TABLES: (Fault.TABLE_RANGE, constant(config.tables)),
            Memory.HOST: (Fault.HOST_WINDOW, HOST_LIMIT),
            Memory.WEIGHTS: (Fault.WEIGHT_WINDOW, WEIGHT_TILES),
        }[memory]
