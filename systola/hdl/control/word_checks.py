# SPDX-License-Identifier: Apache-2.0
"""Checks of an instruction's word, and of the presence of a window."""

from collections.abc import Container
from itertools import pairwise

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.arch.built_for import machine_operands
from systola.arch.config import Config
from systola.arch.features import has
from systola.arch.isa import (
    INVERSE_ROOT,
    TANH_INTEGER_BITS,
    Field,
    Function,
    Instruction,
    Opcode,
    Operation,
    instructions_of,
)
from systola.hdl.control.checks import relative
from systola.hdl.control.hazards import LOADS, READS, STORES
from systola.hdl.control.scalar_unit import fields_of, is_one_of


def word_checks(
    config: Config,
    given: data.View,
    walked: Container[tuple[Opcode, str]],
    shape: data.View,
    windowed: Value,
) -> list[Value]:
    """Return the failures of the instruction `given`, a bit each.

    The order of the bits: undefined opcode, four kinds of illegal fields, another machine named,
    missing hardware, no window. The logic of each bit is about as deep as one cycle allows. The
    steps of the decoder check the minima of the fields `walked`. `shape` is the present window,
    valid if `windowed`.
    """
    return [
        ~given.kind.any(),
        _has_more(config, given),
        *_are_illegal(config, given, walked),
        _is_misfit(config, given),
        _names_another(config, given),
        _is_unavailable(config, given),
        _has_no_window(given, shape, windowed),
    ]


def _has_no_window(given: data.View, shape: data.View, windowed: Value) -> Value:
    """Return whether fault WINDOW is raised for a reason that no step checks."""
    kind, convolve = given.kind, fields_of(given.word)[Opcode.CONVOLVE]
    unpackable = (convolve.k_tiles != 1) | (shape.dilation_x != 1)
    uses = is_one_of(kind, Opcode.CONVOLVE, Opcode.DEPTHWISE, Opcode.POOL)
    packs = is_one_of(kind, Opcode.CONVOLVE) & (convolve.channels != 0)
    return (uses & ~windowed) | (packs & unpackable)


def _has_more(config: Config, given: data.View) -> Value:
    """Return whether bits outside all fields of the instruction `given` are set."""
    word, kind = given.word, given.kind
    reserved = {
        entry.opcode: _reserved(config, entry) for entry in instructions_of(links=config.links)
    }
    wrong: list[Value] = []
    places = {place for ranges in reserved.values() for part in ranges for place in part}
    for start, end in pairwise(sorted(places)):
        opcodes = [
            opcode
            for opcode, ranges in reserved.items()
            if any(first <= start and end <= last for first, last in ranges)
        ]
        if opcodes:
            wrong.append(is_one_of(kind, *opcodes) & word[start:end].any())
    return Cat(wrong).any()


def _are_illegal(
    config: Config, given: data.View, walked: Container[tuple[Opcode, str]]
) -> tuple[Value, Value]:
    """Return whether a field of the instruction `given` has an unnamed value or is too small.

    The first bit is for one half of the opcodes, the second for the other half. The steps of the
    decoder check the minima of the fields `walked`.
    """
    fields = fields_of(given.word)
    wrong: list[Value] = []
    for entry in instructions_of(links=config.links):
        bad = [
            _out_of_range(field, fields[entry.opcode][field.name])
            for field in entry.fields
            if (entry.opcode, field.name) not in walked
        ]
        wrong.append(is_one_of(given.kind, entry.opcode) & Cat(bad).any())
    return Cat(wrong[::2]).any(), Cat(wrong[1::2]).any()


def _is_misfit(config: Config, given: data.View) -> Value:
    """Return whether fields of the instruction `given` contradict each other or the machine."""
    fields = fields_of(given.word)
    align = exact_log2(config.host_bus_bytes)
    wrong = [is_one_of(given.kind, *READS, *LOADS, *STORES) & given.sums[0][:align].any()]
    wrong += [
        is_one_of(given.kind, entry.opcode) & _misfits(config, entry.opcode, fields[entry.opcode])
        for entry in instructions_of(links=config.links)
    ]
    return Cat(wrong).any()


def _reserved(config: Config, entry: Instruction) -> list[tuple[int, int]]:
    """Return the bits outside all fields of an instruction, as ranges."""
    ranges = list(entry.reserved)
    if entry.opcode is Opcode.ACTIVATE and not config.training:
        place = entry.offset("stochastic")
        ranges.append((place, place + 1))
    return ranges


def _out_of_range(field: Field, value: Value) -> Value:
    """Return whether the value of a field is below its minimum or has no name."""
    if field.values is not None:
        return ~Cat(value == int(member) for member in field.values).any()
    return value < field.minimum if field.minimum is not None else Const(0, 1)


def _misfits(config: Config, opcode: Opcode, fields: data.View) -> Value:
    """Return whether an instruction's fields have a wrong alignment, length or combination."""
    align = exact_log2(config.host_bus_bytes)
    wrong: Value = Const(0)
    if opcode in (*READS, *STORES):
        longest = config.cols if opcode in STORES else config.rows
        wrong |= fields.stride[:align].any() | (fields.tail >= longest)
    if opcode is Opcode.DEPTHWISE:
        wrong |= fields.function == Function.TABLE
    if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        function = fields.function
        has_bits = (function == Function.TANH) | (function == Function.EXP)
        gate = (function == Function.SIGMOID) | has_bits
        narrow = (
            (function == Function.RELU)
            | (function == Function.RELU6)
            | (function == Function.TABLE if not config.attention else 0)
        )
        adds_up: Value = fields.accumulate
        if opcode is Opcode.VECTOR and config.attention:
            adds_up &= ~relative(fields)
        wrong |= Mux(fields.wide, narrow, gate | adds_up)
        most: Value | int = TANH_INTEGER_BITS
        if config.training:
            most = Mux(function == Function.EXP, INVERSE_ROOT, TANH_INTEGER_BITS)
        wrong |= has_bits & (fields.table > most)
        divides: Value = function == Function.QUOTIENT
        if opcode is Opcode.VECTOR and config.training:
            divides &= fields.operation != Operation.MULTIPLY
        if opcode is Opcode.VECTOR and config.attention:
            added = (fields.operation == Operation.ADD) & ~fields.wide_operands
            divides &= (fields.operation != Operation.COPY) & ~added
        wrong |= divides
    return wrong


def _names_another(config: Config, given: data.View) -> Value:
    """Return whether the instruction `given` requires a machine of another kind."""
    fields = fields_of(given.word)[Opcode.REQUIRE_MACHINE]
    other = Cat(fields[name] != value for name, value in machine_operands(config).items()).any()
    return is_one_of(given.kind, Opcode.REQUIRE_MACHINE) & other


def _is_unavailable(config: Config, given: data.View) -> Value:
    """Return whether the instruction `given` needs hardware that this machine lacks."""
    fields = fields_of(given.word)
    matrix, activate = fields[Opcode.MATRIX_MULTIPLY], fields[Opcode.ACTIVATE]
    vector = fields[Opcode.VECTOR]
    lacks: list[tuple[Value | int, tuple[Opcode, ...]]] = [
        (1, (entry.opcode,))
        for entry in instructions_of(links=config.links)
        if entry.needs and not has(config, entry.needs)
    ]
    if not config.wide:
        lacks += [
            (activate.wide, (Opcode.ACTIVATE,)),
            (vector.wide | vector.wide_operands, (Opcode.VECTOR,)),
            (matrix.wide_vectors | matrix.wide_weights, (Opcode.MATRIX_MULTIPLY,)),
        ]
    if not config.tables:
        lacks += [
            (activate.function == Function.TABLE, (Opcode.ACTIVATE,)),
            (vector.function == Function.TABLE, (Opcode.VECTOR,)),
        ]
    if not config.training:
        lacks.append((matrix.from_buffer, (Opcode.MATRIX_MULTIPLY,)))
        lacks += [
            ((each.function == Function.EXP) | (each.exponent != 0), (opcode,))
            for opcode, each in ((Opcode.ACTIVATE, activate), (Opcode.VECTOR, vector))
        ]
    return Cat(is_one_of(given.kind, *opcodes) & lack for lack, opcodes in lacks).any()
