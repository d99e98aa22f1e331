# SPDX-License-Identifier: Apache-2.0
"""Tests of curves (functions of int16, given by tables) against loops and LiteRT's operators."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import (
    CURVE_ENTRIES,
    CURVE_TABLES,
    Fault,
    Function,
    Opcode,
    Operation,
    Rounding,
    encode,
)
from systola.golden.curves import curve_of, on_curve
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.golden.rig import HALT, Rig
from systola.verif.kit.curves import CURVES, curve_bytes, curve_entries
from systola.verif.kit.seeds import random_seed

CONFIG = dataclasses.replace(
    preset("4x4-attention"),
    tables=8,
    buffer_lines=64,
    accumulator_rows=32,
    parameter_entries=8,
)
CODES = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
OPERATORS = {
    "exp": ("EXP", {}),
    "gelu": ("GELU", {"approximate": False}),
    "gelu by tanh": ("GELU", {"approximate": True}),
    "1 / sqrt": ("RSQRT", {}),
}
"""Operators of LiteRT that a curve computes, each with its options."""


def exactly(curve: list[int], v: int) -> int:
    """Return a curve's value for argument `v`, computed in integers that cannot overflow."""
    i, f = 256 + v // 128, v % 128
    return curve[i] + ((curve[i + 1] - curve[i]) * f + 64) // 128


@pytest.mark.parametrize("name", CURVES)
def test_all_arguments(name: str) -> None:
    curve = curve_entries(name, *CURVES[name][1:]).tolist()
    assert len(curve) == CURVE_ENTRIES
    expected = [exactly(curve, v) for v in CODES.tolist()]
    assert on_curve(CODES, np.array(curve)).tolist() == expected


@pytest.mark.parametrize("name", OPERATORS)
def test_litert(name: str) -> None:
    """Check a curve for all int16 numbers with several scales against the operator of LiteRT.

    Only RSQRT gets no negative numbers: LiteRT refuses the root of a number below 0.
    """
    rng = np.random.default_rng(random_seed())
    kind, options = OPERATORS[name]
    codes = np.maximum(CODES, 0 if kind == "RSQRT" else CODES.min())
    # LiteRT's numbers are undefined beyond float32. With these scales the largest EXP, of
    # 32767 * 10^-2.65, is 10^31.9, and stays in float32 after division by a scale of 10^-5.
    scales = [CURVES[name][1:], *(10 ** rng.uniform(-5, -2.65, (4, 2))).tolist()]
    for pair in scales:
        writer = ModelWriter()
        source, result = (writer.tensor(codes.shape, "int16", np.float32(s), 0) for s in pair)
        writer.operator(kind, [source], [result], **options)
        expected = interpret(writer.content([source], [result]), codes[np.newaxis])[0]
        curve = curve_entries(name, *pair).astype(np.int64)
        assert np.array_equal(on_curve(codes, curve), expected), pair


def test_activate_and_vector_against_loops() -> None:
    rng = random.Random(random_seed())
    rig = Rig(CONFIG)
    for _ in range(40):
        table, rows = rng.randrange(CONFIG.tables - CURVE_TABLES + 1), rng.randrange(1, 6)
        rounding, accumulate = rng.choice(list(Rounding)), rng.randrange(2)
        rig.randomise(rng)
        lines = rig.lines()
        raw = rig.machine.tables.tobytes()[256 * table :]
        curve = [int.from_bytes(raw[2 * i : 2 * i + 2], "little", signed=True) for i in range(513)]
        for m in range(rows):
            row = rig.machine.accumulators[m].tolist()
            old = lines[2 * m], lines[2 * m + 1]
            low, high = [0] * CONFIG.line_bytes, [0] * CONFIG.line_bytes
            for c in range(CONFIG.cols):
                d = (old[1][c] << 8) + old[0][c] % 256 if accumulate else -5
                v = rig.entry(3, c).requantised(row[c], rounding) + d
                y = exactly(curve, min(max(v, -32768), 32767))
                low[c], high[c] = (y + 128) % 256 - 128, y >> 8
            lines[2 * m], lines[2 * m + 1] = low, high
        activate = encode(
            Opcode.ACTIVATE,
            accumulator=0,
            buffer=0,
            rows=rows,
            n_tiles=1,
            parameter=3,
            function=Function.TABLE,
            rounding=rounding,
            zero_point=-5,
            table=table,
            wide=1,
            accumulate=accumulate,
        )
        rig.complete(activate, HALT)
        assert rig.lines() == lines


def test_vector_with_litert_curve() -> None:
    """Check a Vector that applies a curve, loaded by Load_Table, to int16 numbers."""
    rig = Rig(CONFIG)
    curve = curve_entries("exp", *CURVES["exp"][1:])
    rig.host[: 256 * CURVE_TABLES] = curve_bytes(curve)
    loads = [encode(Opcode.LOAD_TABLE, host=256 * n, table=2 + n) for n in range(CURVE_TABLES)]
    rig.complete(*loads, HALT)
    assert np.array_equal(curve_of(rig.machine.tables, 2), curve)
    planes = np.zeros((9, CONFIG.output_pitch), np.uint8)
    planes[7], planes[8] = 0x40, 1 << 5  # the entry's factor is 1: 2 x 2^30 / 2^31
    rig.host[: planes.size] = planes.ravel()
    rig.complete(encode(Opcode.LOAD_PARAMETERS, host=0, parameter=0, count=1), HALT)
    values = np.array([[-32768, -1, 0, 32767], [-129, -128, 127, 128]], np.int16)
    rig.machine.buffer[:4, :4] = values.view(np.int8).reshape(2, 4, 2).swapaxes(1, 2).reshape(4, 4)
    vector = encode(
        Opcode.VECTOR,
        operation=0,
        buffer=0,
        destination=8,
        rows=2,
        parameter=0,
        function=Function.TABLE,
        table=2,
        wide=1,
        wide_operands=1,
    )
    rig.complete(vector, HALT)
    low, high = rig.machine.buffer[8:12:2, :4], rig.machine.buffer[9:12:2, :4]
    found = low.astype(np.uint8) + 256 * high.astype(np.int64)
    expected = [[exactly(curve.tolist(), int(v)) for v in row] for row in values]
    assert found.tolist() == expected


@pytest.mark.parametrize("wide_operands", [0, 1])
def test_table_of_int32_against_loops(wide_operands: int) -> None:
    rng = random.Random(random_seed())
    rig = Rig(CONFIG)
    for _ in range(20):
        table, zero, rounding = rng.randrange(5), rng.randrange(-128, 128), rng.choice((0, 1))
        rig.randomise(rng)
        lines = rig.lines()
        numbers = np.frombuffer(rig.machine.tables.tobytes()[256 * table :][:1024], "<i4").tolist()
        for m in range(4):
            line = [0] * CONFIG.line_bytes
            for c in range(CONFIG.cols):
                a = lines[m << wide_operands][c] % 256
                if not wide_operands:
                    a = (a + 128) % 256 - 128
                y = rig.entry(1, c).requantised(numbers[(a - zero) % 256], Rounding(rounding))
                line[c] = min(max(y + 3, -128), 127)
            lines[16 + m] = line
        vector = encode(
            Opcode.VECTOR,
            operation=Operation.COPY,
            buffer=0,
            destination=16,
            rows=4,
            parameter=1,
            function=Function.QUOTIENT,
            rounding=rounding,
            zero_point=3,
            table=table,
            wide_operands=wide_operands,
        )
        rig.complete(encode(Opcode.SET_CONFIG_SCALE, zero_a=zero), vector, HALT)
        assert rig.lines() == lines


@pytest.mark.parametrize("operand", [40, 9, 0])
def test_one_line_subtracted_from_all_vectors(operand: int) -> None:
    """Check a Vector that subtracts the line `operand` from all vectors, by plain loops.

    So each lane has a zero point of its own. The line may also be one of the vectors, or one of
    the lines that the results overwrite.
    """
    rng = random.Random(random_seed())
    rig = Rig(CONFIG)
    for _ in range(20):
        table, zero, rows = rng.randrange(5), rng.randrange(-128, 128), rng.randrange(1, 6)
        destination = rng.choice((0, 8))
        rig.randomise(rng)
        lines = rig.lines()
        numbers = np.frombuffer(rig.machine.tables.tobytes()[256 * table :][:1024], "<i4").tolist()
        less = list(lines[operand])
        for m in range(rows):
            line = [0] * CONFIG.line_bytes
            for c in range(CONFIG.cols):
                k = (lines[m][c] - zero - less[c]) % 256
                y = rig.entry(1, c).requantised(numbers[k], Rounding.SINGLE)
                line[c] = min(max(y + 3, -128), 127)
            lines[destination + m] = line
        vector = encode(
            Opcode.VECTOR,
            operation=Operation.ADD,
            buffer=0,
            operand=operand,
            destination=destination,
            rows=rows,
            parameter=1,
            function=Function.QUOTIENT,
            rounding=Rounding.SINGLE,
            zero_point=3,
            table=table,
        )
        rig.complete(encode(Opcode.SET_CONFIG_SCALE, zero_a=zero, zero_b=77), vector, HALT)
        assert rig.lines() == lines


def test_faults_of_a_table_of_int32() -> None:
    """Check the faults of a Vector with a table of int32, which takes the place of four tables.

    The Vector must be a COPY, or an ADD of int8, on a machine with attention. The ADD reads only
    the first line of operand b. This line may be one of the lines that the results overwrite.
    """
    how = {"buffer": 0, "destination": 8, "rows": 4, "parameter": 0, "function": Function.QUOTIENT}

    def cause(config: Config, operation: Operation, table: int, **more: int) -> Fault | None:
        at = {**how, "operation": operation, "table": table, **more}
        outcome = Rig(config).run(encode(Opcode.VECTOR, **at), HALT)
        return outcome.fault.cause if outcome.fault else None

    for operation in (Operation.COPY, Operation.ADD):
        assert cause(CONFIG, operation, 4) is None
        assert cause(CONFIG, operation, 5) == Fault.TABLE_RANGE
        assert cause(preset("4x4-training"), operation, 0) == Fault.ILLEGAL_FIELD
    for operation in (Operation.SUBTRACT, Operation.MULTIPLY):
        assert cause(CONFIG, operation, 0) == Fault.ILLEGAL_FIELD
    assert cause(CONFIG, Operation.COPY, 0, wide_operands=1) is None
    assert cause(CONFIG, Operation.ADD, 0, wide_operands=1) == Fault.ILLEGAL_FIELD
    assert cause(CONFIG, Operation.COPY, 0, accumulate=1) == Fault.ILLEGAL_FIELD
    last = CONFIG.buffer_lines - 1
    assert cause(CONFIG, Operation.ADD, 0, operand=last) is None
    assert cause(CONFIG, Operation.ADD, 0, operand=last + 1) == Fault.BUFFER_RANGE
    for operand in (7, 8, 9, 11):
        assert cause(CONFIG, Operation.ADD, 0, operand=operand) is None
    assert cause(CONFIG, Operation.ADD, 0, buffer=9) == Fault.OVERLAP


def test_faults() -> None:
    """Check that a curve needs all of its tables, and a machine with curves."""
    how = {"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": 1, "parameter": 0, "wide": 1}
    last = CONFIG.tables - CURVE_TABLES
    for table, cause in ((last, None), (last + 1, Fault.TABLE_RANGE), (15, Fault.TABLE_RANGE)):
        word = encode(Opcode.ACTIVATE, **how, function=Function.TABLE, table=table)
        outcome = Rig(CONFIG).run(word, HALT)
        assert (outcome.fault and (outcome.fault.cause, outcome.fault.address)) == (
            cause and (cause, table)
        )
    word = encode(Opcode.ACTIVATE, **how, function=Function.TABLE, table=0)
    outcome = Rig(preset("4x4")).run(word, HALT)
    assert outcome.fault and outcome.fault.cause == Fault.ILLEGAL_FIELD
