# SPDX-License-Identifier: Apache-2.0
"""A program of steps for one instruction: the parts that follow from `arch/isa` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import OPCODE_BITS, Fault, Field, Instruction, Memory, Opcode, Use
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
    Row,
    Times,
    When,
)

FLAGS = ("wide", "wide_operands", "wide_vectors", "wide_weights")
"""Fields of one bit that decide whether a term counts."""
CURVES = frozenset({"function == TABLE", "wide"})
"""The condition of a term for curves."""
GATHERS = frozenset({"function == QUOTIENT", "operation == COPY"})
"""The condition of a term for tables of int32."""
CONDITIONS: Mapping[frozenset[str], When] = {
    frozenset(): When.ALWAYS,
    frozenset({"wide"}): When.FLAG_A,
    frozenset({"wide_vectors"}): When.FLAG_A,
    frozenset({"wide_operands"}): When.FLAG_B,
    frozenset({"wide_weights"}): When.FLAG_B,
    frozenset({"function == TABLE"}): When.TABLE,
    CURVES: When.CURVE,
    GATHERS: When.GATHERS,
    frozenset({"reduction == AVERAGE"}): When.AVERAGE,
    frozenset({"operation != COPY"}): When.SECOND,
    frozenset({"operation != COPY", "wide_operands"}): When.SECOND_AND_B,
}
"""The condition of a step for the conditions of a term."""
SIZE_CELLS = ("map_lines", "windows", "kernel_taps")
"""Names in extents that are cells, which Set_Config_Window writes."""


def constant(value: int) -> str:
    """Return the name of a cell that has a constant from the start."""
    return f"={value}" if value else ZERO


class Program:
    """A list of the rows of one instruction, which methods extend from the first row to the last.

    Rows that check for ILLEGAL_FIELD or WINDOW may stand anywhere: these faults win over all other
    faults of the instruction.
    """

    def __init__(self, entry: Instruction, config: Config):
        self.entry = entry
        self.config = config
        self.rows: list[Row] = []
        self._kept: Bits | str | None = None
        self._waiting: dict[str, Row] = {}

    def emit(self, **parts: Any) -> None:
        """Append a row."""
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
        """Set parts of the row that reads a field; `flush` or `take` appends this row."""
        row = self._waiting.get(name, Row(x=self.bits(name)))
        self._waiting[name] = replace(row, **parts)

    def flush(self, keep: str | None = None) -> None:
        """Append the rows that `move` has prepared, in any order.

        `keep`: the field to become the kept factor; its row comes last.
        """
        last = self._waiting.pop(keep, None) if keep else None
        self.rows += self._waiting.values()
        self._waiting.clear()
        if last is not None:
            self.rows.append(replace(last, keep=True))
            self._kept = last.x
        elif keep:
            self.keep(self.bits(keep))

    def take(self, name: str) -> None:
        """Append the row prepared by `move` for a field; the field becomes the kept factor."""
        self.emit(**{**vars(self._waiting.pop(name)), "keep": True})

    def keep(self, x: Bits | str) -> None:
        """Make x the kept factor, by a row without any other effect."""
        if self._kept != x:
            self.emit(x=x, keep=True, when=When.NEVER)

    def index(self, name: str) -> Base | str:
        """Return the index register that is added to an operand, ZERO if it has none."""
        operands = [field.indexes for field in self.entry.fields if field.indexes]
        return INDEXES[operands.index(name)] if name in operands else ZERO

    def begin(self) -> None:
        """Append the rows with which all instructions begin, and prepare the checks of fields.

        The rows select index registers, and check the bits that must be zero and alignment. The
        minimum and the largest value of a field are checked by the row that reads the field.
        """
        selectors = [field.name for field in self.entry.fields if field.indexes]
        if selectors:
            self.emit(x=self.bits(selectors[0], selectors[len(selectors) - 1]), loads=Loads.SELECT)
        last = 8 * 16
        for offset in range(self._width(), last, CELL_BITS):
            width = min(CELL_BITS, last - offset)
            self.emit(x=Bits(offset, width), limit=ZERO, fault=Fault.ILLEGAL_FIELD)
        for field in self.entry.fields:
            if self.entry.offset(field.name) < self._width():
                self._check_values(field)
        if any(field.name == "host" for field in self.entry.fields):
            self._check_alignment()

    def _width(self) -> int:
        if self.entry.opcode is Opcode.ACTIVATE and not self.config.training:
            return self.entry.offset("stochastic")
        return self.entry.width

    def _check_values(self, field: Field) -> None:
        if field.minimum is not None:
            assert field.minimum == 1, f"{self.entry.mnemonic}: {field.name}"
            self.move(field.name, least=True)
        if field.values is not None and len(field.values) < 1 << field.width:
            self.limit(field.name, max(field.values))

    def limit(self, name: str, most: int, fault: Fault = Fault.ILLEGAL_FIELD) -> None:
        """Let the row that reads a field check that its value is `most` at most."""
        self.move(name, limit=constant(most), fault=fault)

    def _check_alignment(self) -> None:
        align = exact_log2(self.config.host_bus_bytes)
        for name in ("host", "stride"):
            if any(field.name == name for field in self.entry.fields):
                base = self.index(name)
                self.emit(
                    x=Bits(self.entry.offset(name), align),
                    base=base,
                    wraps=None if base == ZERO else align,
                    limit=ZERO,
                    fault=Fault.ILLEGAL_FIELD,
                )

    def fail(self, fault: Fault, when: When = When.ALWAYS) -> None:
        """Append a row that always fails, with `fault`, if its condition holds."""
        self.emit(base=constant(1), limit=ZERO, fault=fault, when=when)

    def name_opcode(self) -> None:
        """Make the opcode the FAULT_ADDRESS of the faults that follow."""
        self.emit(x=Bits(0, OPCODE_BITS), names=True)

    def base(self, name: str, **parts: Any) -> None:
        """Append the row of an address, modulo 2^width of its field."""
        base = self.index(name)
        wraps = None if base == ZERO else self.entry.field(name).width
        self.emit(x=self.bits(name), base=base, wraps=wraps, names=True, **parts)

    def region(
        self, use: Use, cell: str, *, word: str | None = None, end: str | None = None
    ) -> None:
        """Append the rows that compute base and end of a region.

        Both go into cells of the scratch memory: `cell`.base and `cell`.end. `word` and `end` are
        the command words that take them, too.
        """
        fault, limit = self._limit(use.memory)
        found = [
            term
            for term in terms(use.extent, FLAGS)
            if (self.config.wide or not term.conditions & set(FLAGS))
            and (self.config.attention or term.conditions not in (CURVES, GATHERS))
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

    def add(self, term: Term, **parts: Any) -> None:
        """Append a row that adds a term to the result of the row before."""
        factors = [factor for factor in map(self._factor, term.factors) if factor != 1]
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

    def _limit(self, memory: Memory) -> tuple[Fault, str]:
        config = self.config
        return {
            Memory.BUFFER: (Fault.BUFFER_RANGE, constant(config.buffer_lines)),
            Memory.ACCUMULATORS: (Fault.ACCUMULATOR_RANGE, constant(config.accumulator_rows)),
            Memory.PARAMETERS: (Fault.PARAMETER_RANGE, constant(config.parameter_entries)),
            Memory.TABLES: (Fault.TABLE_RANGE, constant(config.tables)),
            Memory.HOST: (Fault.HOST_WINDOW, HOST_LIMIT),
            Memory.WEIGHTS: (Fault.WEIGHT_WINDOW, WEIGHT_TILES),
        }[memory]
