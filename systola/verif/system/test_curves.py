# SPDX-License-Identifier: Apache-2.0
"""Tests of curves (functions of int16, given by tables) on the RTL: all arguments, and cycles."""

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import (
    CURVE_TABLES,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    Rounding,
    encode,
)
from systola.sim.library import Simulator
from systola.timing.estimate import estimate
from systola.verif.kit.curves import CURVES, curve_bytes, curve_entries
from systola.verif.kit.images import make_image
from systola.verif.kit.seeds import random_seed

pytestmark = pytest.mark.thorough
PRESET = "4x4-training-attention"
CODES = np.arange(-(1 << 15), 1 << 15)
ROWS = 2048
"""Number of int16 vectors of an instruction; with two lines each, they fill half of the buffer."""
_PARAMETERS, _TABLES, _INPUT = 1024, 2048, 4096
"""Offsets in host memory of the parameters, tables and input, which come after the program."""


def codes_as_lines(codes, cols):
    """Return int16 numbers as pairs of buffer lines: low bytes, then high bytes."""
    pairs = codes.astype("<i2").reshape(-1, cols).view(np.uint8).reshape(-1, cols, 2)
    return pairs.swapaxes(1, 2).reshape(-1, cols)


def program(config, entries, table):
    """Return an image that applies a curve to all int16 numbers, and the offset of the results."""
    size = 2 * len(CODES)
    host = np.zeros(_INPUT + 2 * size, np.uint8)
    planes = host[_PARAMETERS:][: PARAMETER_PLANES * config.output_pitch]
    planes = planes.reshape(PARAMETER_PLANES, -1)
    planes[7], planes[8] = 0x40, 1 << 5  # the entry's factor is 1: 2 x 2^30 / 2^31
    host[_TABLES : _TABLES + CURVE_TABLES * TABLE_BYTES] = curve_bytes(entries)
    lines = codes_as_lines(CODES, config.cols)
    host[_INPUT : _INPUT + size] = lines.ravel()
    words = [encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1)]
    words += [
        encode(Opcode.LOAD_TABLE, host=_TABLES + TABLE_BYTES * n, table=table + n)
        for n in range(CURVE_TABLES)
    ]
    pitch = config.input_pitch
    copy = {"stride": pitch, "blocks": 1, "tail": config.cols, "rows": 2 * ROWS}
    for first in range(0, len(lines), 2 * ROWS):
        place = first % (4 * ROWS)
        words += [
            encode(Opcode.READ_HOST_MEMORY, host=_INPUT + first * pitch, buffer=place, **copy),
            encode(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=place,
                destination=place,
                rows=ROWS,
                parameter=0,
                function=Function.TABLE,
                table=table,
                wide=1,
                wide_operands=1,
            ),
            encode(
                Opcode.WRITE_HOST_MEMORY,
                host=_INPUT + size + first * pitch,
                buffer=place,
                **copy,
            ),
        ]
    return make_image([*words, encode(Opcode.HALT)], host=host), _INPUT + size


def test_all_arguments():
    config = preset(PRESET)
    with Simulator(config, seed=random_seed()) as machine:
        for number, (name, (_, *scales)) in enumerate(CURVES.items()):
            curve = curve_entries(name, *scales)
            image, place = program(config, curve, number)
            result = machine.run(image)
            i, f = 256 + (CODES >> 7), CODES & 127
            wide = curve.astype(np.int64)
            expected = wide[i] + (((wide[i + 1] - wide[i]) * f + 64) >> 7)
            found = result.host[place : place + 2 * len(CODES)]
            assert np.array_equal(found, codes_as_lines(expected, config.cols).ravel()), name
            assert result.cycles == pytest.approx(estimate(config, image).cycles, rel=0.01), name


CURVE = {"function": Function.TABLE, "wide": 1, "wide_operands": 1}
GATHERED = {"function": Function.QUOTIENT}
RELATIVE = {"function": Function.QUOTIENT, "operation": Operation.ADD, "operand": 1}


@pytest.mark.parametrize(("how", "each"), [(CURVE, 2), (GATHERED, 1), (RELATIVE, 1)])
def test_cycles_of_a_vector(how, each):
    """Check the cycles of a vector: two with a curve, and one with a table of int32 numbers.

    A curve takes one cycle for each of the vector's two lines. With a table of int32, a vector also
    takes one cycle if a line is subtracted from all vectors.
    """
    config = preset(PRESET)
    cycles = []
    with Simulator(config, seed=random_seed()) as machine:
        for rows in (100, 1100):
            copy = {"operation": Operation.COPY, "buffer": 0, "destination": 4000, "parameter": 0}
            words = [encode(Opcode.VECTOR, **{**copy, **how}, rows=rows), encode(Opcode.HALT)]
            image = make_image(words, host=np.zeros(4096, np.uint8))
            cycles.append(machine.run(image).cycles)
            assert cycles[-1] == pytest.approx(estimate(config, image).cycles, rel=0.01)
    assert cycles[1] - cycles[0] == 1000 * each


def test_a_table_before_a_table_of_int32():
    """Check the pause between a Vector with TABLE and a Vector that looks up int32 numbers.

    Both Vectors read the table memory, and TABLE looks up results, which come late. So the pause is
    20 cycles. If the first Vector has no table, the pause is as short as after any sum of lines.
    """
    config = preset(PRESET)
    copy = {"operation": Operation.COPY, "buffer": 0, "parameter": 0, "rows": 8}
    cycles, estimates = [], []
    with Simulator(config, seed=random_seed()) as machine:
        for function in (Function.NONE, Function.TABLE):
            words = [
                encode(Opcode.VECTOR, **copy, function=function, destination=4000),
                encode(Opcode.VECTOR, **copy, **GATHERED, destination=4100),
                encode(Opcode.HALT),
            ]
            image = make_image(words, host=np.zeros(4096, np.uint8))
            cycles.append(machine.run(image).cycles)
            estimates.append(estimate(config, image).cycles)
    # Without a table, the pause between the instructions is DRAIN_SPACING, which is 5 cycles.
    assert cycles[1] - cycles[0] == 20 - 5
    assert estimates[1] - estimates[0] == 20 - 5


def test_a_block_of_softmax():
    """Check that a line subtracted from 128 vectors makes the instruction one cycle longer."""
    config = preset(PRESET)
    cycles = []
    with Simulator(config, seed=random_seed()) as machine:
        for how in (GATHERED, RELATIVE):
            at = {"operation": Operation.COPY, "buffer": 2, "destination": 2, "parameter": 0}
            words = [encode(Opcode.VECTOR, **{**at, **how}, rows=128), encode(Opcode.HALT)]
            image = make_image(words, host=np.zeros(4096, np.uint8))
            cycles.append(machine.run(image).cycles)
            assert cycles[-1] == pytest.approx(estimate(config, image).cycles, abs=1)
    assert cycles[1] == cycles[0] + 1, cycles


@pytest.mark.parametrize("operation", [Operation.COPY, Operation.ADD])
def test_all_codes_by_a_table_of_int32(operation):
    """Check a table of int32, with exp for an int8 softmax, for all int8 inputs minus a zero point.

    With ADD, a further line is subtracted from all inputs, with one byte for each lane.
    """
    config = preset(PRESET)
    numbers = np.rint((1 << 31) * np.exp(-np.arange(256) / 20)).clip(max=(1 << 31) - 1)[::-1]
    zero, table, right = 37, 9, 22
    host = np.zeros(8192, np.uint8)
    planes = host[_PARAMETERS:][: PARAMETER_PLANES * config.output_pitch]
    planes = planes.reshape(PARAMETER_PLANES, -1)
    planes[7], planes[8] = 0x40, right
    size = LONG_TABLES * TABLE_BYTES
    host[_TABLES : _TABLES + size] = np.roll(numbers, 1).astype("<i4").view(np.uint8)
    codes = np.arange(-128, 128)
    host[_INPUT : _INPUT + 256] = codes.astype(np.int8).view(np.uint8)
    rows, cols = 256 // config.cols, config.cols
    less = np.array([-128, 3, 100, -77])
    further = _INPUT + 512
    host[further : further + cols] = less.astype(np.int8).view(np.uint8)
    copy = {"rows": rows, "stride": config.input_pitch, "blocks": 1, "tail": config.cols}
    words = [
        encode(Opcode.SET_CONFIG_SCALE, zero_a=zero),
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1),
        *(
            encode(Opcode.LOAD_TABLE, host=_TABLES + TABLE_BYTES * n, table=table + n)
            for n in range(LONG_TABLES)
        ),
        encode(Opcode.READ_HOST_MEMORY, host=_INPUT, buffer=0, **copy),
        encode(Opcode.READ_HOST_MEMORY, host=further, buffer=90, **{**copy, "rows": 1}),
        encode(
            Opcode.VECTOR,
            operation=operation,
            buffer=0,
            operand=90,
            destination=100,
            rows=rows,
            parameter=0,
            function=Function.QUOTIENT,
            table=table,
            zero_point=-128,
            rounding=Rounding.SINGLE,
        ),
        encode(Opcode.WRITE_HOST_MEMORY, host=_INPUT + 256, buffer=100, **copy),
        encode(Opcode.HALT),
    ]
    with Simulator(config, seed=random_seed()) as machine:
        result = machine.run(make_image(words, host=host)).host[_INPUT + 256 :][:256]
    less = np.tile(less, rows) * (operation == Operation.ADD)
    sums = np.roll(numbers, 1).astype(np.int64)[(codes - zero - less) % 256]
    shift = 31 + right
    expected = ((sums * (1 << 30) + (1 << (shift - 1))) >> shift) - 128
    assert np.array_equal(result.view(np.int8), expected.clip(-128, 127))
    assert len(set(expected.tolist())) > 40
