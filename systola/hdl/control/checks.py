# SPDX-License-Identifier: Apache-2.0
"""The steps in which the decoder computes and checks the numbers of an instruction.

A step takes one cycle. Its result is `base` + `a` * `b`: the end of a region, or a number that the
instruction needs. The result goes `into` registers. If it exceeds its `limit` or is negative, the
program ends with the limit's fault at address `base`. `decoder_steps` has the steps of each
instruction.
"""

from dataclasses import dataclass
from enum import Enum

from amaranth.hdl import Mux, Value, ValueLike
from amaranth.lib import data
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    CURVE_TABLES,
    LONG_TABLES,
    Fault,
    Function,
    Opcode,
    Operation,
)
from systola.hdl.commands import InstructionLayout, address_bits, line_bits, row_bits, width_bits
from systola.hdl.control.indexed_operands import indexed
from systola.hdl.parts.in_flight import Region


class _Base(Enum):
    SUM = "sum"


SUM = _Base.SUM
"""A base of a step: the result of the step before. Both steps then belong to one region."""
LEAST_STEPS = 3
"""Smallest number of steps of an instruction.

An instruction stays in the first stage of the scalar unit for at least this number of cycles.
"""
LATE = ("host", "tiles")
"""Registers that only the last step of an instruction may write.

The register `tiles` takes the product of this last step.
"""


@dataclass(frozen=True)
class Limit:
    """A limit that the result of a step must not exceed."""

    fault: Fault
    value: ValueLike
    notes: bool = False
    """True if exceeding the limit is only noted, for the next step.

    Two steps find an overlap of regions. The first one notes if its limit is exceeded. The second
    one raises OVERLAP if both limits are exceeded.
    """


@dataclass(frozen=True)
class Step:
    """A step that computes and checks one number of an instruction."""

    base: ValueLike = 0
    a: ValueLike = 0
    b: ValueLike = 0
    limit: Limit | None = None
    into: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    """Fields that must be at least 1; the step checks that its product is not zero."""


NOTHING = Step()


@dataclass(frozen=True)
class Known:
    """A collection of the values that steps use in addition to the instruction.

    | field          | meaning |
    |---|---|
    | `shape`        | fields of the present window (Set_Config_Window) |
    | `products`     | numbers that follow from the present window |
    | `found`        | results of earlier steps of the same instruction |
    | `host_limit`   | bytes of the host window |
    | `weight_tiles` | tiles of the weight memory |
    """

    shape: data.View
    products: data.View
    found: data.View
    host_limit: Value
    weight_tiles: Value


class Found(data.StructLayout):
    """A layout that holds the results of an instruction's steps.

    The registers of LATE and the products of a window are held elsewhere. The base of a region is
    the base of the first step for this region, which is never SUM.

    | field         | meaning |
    |---|---|
    | `buffer`, `source`, `operand` | regions of buffer lines |
    | `accumulator` | region of accumulator rows |
    | `parameter`   | region of parameter entries |
    | `run`         | product of the step: lines of a copy, or bytes of a load |
    | `dense`       | the stride of a copy equals the product of the step: the bytes of one line of
                      each block |
    | `first_line`  | line where a walk over a feature map begins |
    | `start`       | packed channels: first byte of the first vector, counted from one line before
                      the row |
    | `row_bytes`   | packed channels: bytes of a row |
    | `byte_step`   | packed channels: bytes from one vector to the next |
    """

    def __init__(self, *, config: Config):
        lines = address_bits(config)
        super().__init__(
            {
                "buffer": Region(lines),
                "source": Region(lines),
                "operand": Region(lines),
                "accumulator": Region(row_bits(config)),
                "parameter": Region(bits_for(config.parameter_entries)),
                "run": 24,
                "dense": 1,
                "first_line": line_bits(config),
                "start": range(2 * config.rows),
                "row_bytes": width_bits(config),
                "byte_step": range(config.rows + 1),
            }
        )


def times(value: Value, constant: int) -> Value:
    """Return `value` * `constant`, made of shifts and sums.

    A multiplier block needs registers, for which the callers have no cycle.
    """
    total: Value = value << constant.bit_length() - 1
    for bit in range(constant.bit_length() - 1):
        if constant >> bit & 1:
            total = total + (value << bit)
    return total


class Addresses:
    """A view of the fields of an instruction after index registers were added.

    A field with an index register is taken from `sums`, any other field from the word.
    """

    def __init__(self, opcode: Opcode, word: Value, sums: data.View):
        self._fields = data.View(InstructionLayout(opcode), word)
        self._sums = {name: sums[i] for i, (name, _) in enumerate(indexed(BY_OPCODE[opcode]))}

    def __getattr__(self, name: str) -> Value:
        field = Value.cast(self._fields[name])
        return self._sums[name][: len(field)] if name in self._sums else field


def gathers(fields: data.View | Addresses) -> Value:
    """Return whether Vector takes its sums from a table of int32."""
    copies = (fields.operation == Operation.COPY) | (fields.operation == Operation.ADD)
    return (fields.function == Function.QUOTIENT) & copies


def relative(fields: data.View | Addresses) -> Value:
    """Return whether Vector subtracts one line from all vectors before it looks them up."""
    return (fields.function == Function.QUOTIENT) & (fields.operation == Operation.ADD)


def partitions(fields: data.View | Addresses) -> Value:
    """Return whether Vector is a partition: it adds all vectors up, to make a parameter entry."""
    return relative(fields) & fields.accumulate & ~fields.wide


def tables_used(config: Config, opcode: Opcode, fields: data.View) -> Value:
    """Return the number of tables that Activate or Vector uses."""
    number: Value = fields.function == Function.TABLE
    if config.attention:
        number = Mux(number & fields.wide, CURVE_TABLES, number)
        if opcode is Opcode.VECTOR:
            number = Mux(gathers(fields), LONG_TABLES, number)
    return number
