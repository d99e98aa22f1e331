# SPDX-License-Identifier: Apache-2.0
"""Tests of Load_Parameters, Load_Table and Activate, by hand and against plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import BROAD, HALT, PLAIN_WIDE, SHAPES, TINY, Rig
from systola.verif.kit.seeds import random_seed


def set_entry(
    rig: Rig, entry: int, bias: list[int], q: list[int], left: list[int], right: list[int]
) -> None:
    """Fill a parameter entry with Load_Parameters, by way of host memory below byte 1024."""
    pitch = rig.config.output_pitch
    raw = np.zeros((9, pitch), np.uint8)
    for c in range(rig.config.cols):
        raw[0:4, c] = list((bias[c] % 2**32).to_bytes(4, "little"))
        raw[4:8, c] = list((q[c] % 2**32).to_bytes(4, "little"))
        raw[8, c] = left[c] * 32 + right[c]
    rig.host[: 9 * pitch] = raw.ravel()
    rig.complete(encode(Opcode.LOAD_PARAMETERS, host=0, parameter=entry, count=1), HALT)


def test_load_parameters_and_activate_by_hand() -> None:
    rig = Rig(PLAIN_WIDE)  # a machine with five channels, in planes of eight bytes
    for c, value in enumerate((0, 1, -1, 256, -(2**31))):
        for byte, part in enumerate((value % 2**32).to_bytes(4, "little")):
            rig.host[72 + byte * 8 + c] = part  # this byte is in the second of two loaded entries
    for c in range(5):
        rig.host[72 + 7 * 8 + c] = 0xC0  # multiplier 2^30; its bit 31 must be ignored
        rig.host[72 + 8 * 8 + c] = (c % 3) << 5 | c // 3
    rig.complete(encode(Opcode.LOAD_PARAMETERS, host=0, parameter=7, count=2), HALT)
    rig.machine.accumulators[20] = [10, 10, 10, 10, -(2**31)]
    rig.machine.buffer[:] = 77
    rig.complete(
        encode(Opcode.ACTIVATE, accumulator=20, buffer=3, rows=1, n_tiles=1, parameter=8), HALT
    )
    # The results are 10/2, 11*2/2, 9*4/2, 266/2/2 = 66.5 rounded away from zero, and 0: the sum
    # of -2^31 and -2^31 wraps to 0.
    assert rig.machine.buffer[3].tolist() == [5, 11, 18, 67, 0]
    assert (rig.machine.buffer[[2, 4]] == 77).all()


def test_load_parameters_leaves_other_entries_alone() -> None:
    rig = Rig(TINY)
    rig.machine.accumulators[:3] = 100
    set_entry(rig, 1, [1] * 4, [2**30] * 4, [0] * 4, [0] * 4)
    rig.host[: 9 * 4] = 0
    rig.complete(
        encode(Opcode.LOAD_PARAMETERS, host=0, parameter=0, count=1),
        encode(Opcode.LOAD_PARAMETERS, host=0, parameter=2, count=1),
        encode(Opcode.ACTIVATE, accumulator=0, buffer=0, rows=1, n_tiles=3, parameter=0),
        HALT,
    )
    assert rig.machine.buffer[:3].tolist() == [[0] * 4, [51] * 4, [0] * 4]


def test_load_table() -> None:
    rig = Rig(TINY)
    rig.host[512:768] = np.arange(255, -1, -1, dtype=np.uint8)
    set_entry(rig, 0, [0] * 4, [2**30] * 4, [1] * 4, [0] * 4)
    rig.machine.accumulators[:2] = [[0, 1, 126, 500], [-1, -2, -127, -500]]
    rig.complete(
        encode(Opcode.LOAD_TABLE, host=512, table=1),
        encode(
            Opcode.ACTIVATE,
            accumulator=0,
            buffer=0,
            rows=2,
            n_tiles=1,
            parameter=0,
            function=Function.TABLE,
            zero_point=1,
            ceiling=0,
            table=1,
        ),
        HALT,
    )
    # Table entry i is 255 - i, so the result for the int8 index v is -1 - v. Here v is the
    # scaled sum plus 1, the zero point.
    assert rig.machine.buffer[:2].tolist() == [[-2, -3, -128, -128], [-1, 0, 125, 127]]
    assert rig.machine.tables[0].tolist() == [0] * 256


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_activate_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    narrow = (Function.NONE, Function.RELU, Function.RELU6, Function.TABLE)
    rig = Rig(config)
    for _ in range(80):
        rows, n_tiles = rng.randrange(1, 6), rng.randrange(1, 4)
        function, rounding = rng.choice(narrow), rng.choice(list(Rounding))
        at = {
            "accumulator": rng.randrange(config.accumulator_rows - rows * n_tiles + 1),
            "buffer": rng.randrange(config.buffer_lines - rows * n_tiles + 1),
            "rows": rows,
            "n_tiles": n_tiles,
            "parameter": rng.randrange(config.parameter_entries - n_tiles + 1),
            "zero_point": rng.randrange(-128, 128),
            "ceiling": rng.randrange(-128, 128),
            "table": rng.randrange(2) if function == Function.TABLE else rng.randrange(16),
        }
        rig.randomise(rng)
        lines = rig.lines()
        table: list[int] = rig.machine.tables[at["table"] % 2].tolist()
        for n in range(n_tiles):
            for m in range(rows):
                row: list[int] = rig.machine.accumulators[at["accumulator"] + n * rows + m].tolist()
                line = [0] * config.line_bytes
                for c in range(config.cols):
                    y = rig.entry(at["parameter"] + n, c).requantised(row[c], rounding)
                    line[c] = scalar.activated(y, function, at["zero_point"], at["ceiling"], table)
                lines[at["buffer"] + n * rows + m] = line
        rig.complete(encode(Opcode.ACTIVATE, **at, function=function, rounding=rounding), HALT)
        assert rig.lines() == lines, (at, function, rounding)


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_wide_activate_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    rig = Rig(config)
    for _ in range(80):
        rows, n_tiles = rng.randrange(1, 6), rng.randrange(1, 4)
        function = rng.choice((Function.NONE, Function.SIGMOID, Function.TANH))
        rounding = rng.choice(list(Rounding))
        at = {
            "accumulator": rng.randrange(config.accumulator_rows - rows * n_tiles + 1),
            "buffer": rng.randrange(config.buffer_lines - 2 * rows * n_tiles + 1),
            "rows": rows,
            "n_tiles": n_tiles,
            "parameter": rng.randrange(config.parameter_entries - n_tiles + 1),
            "zero_point": rng.randrange(-128, 128),
            "ceiling": rng.randrange(-128, 128),
            "table": rng.randrange(5) if function == Function.TANH else rng.randrange(16),
            "accumulate": rng.randrange(2),
        }
        rig.randomise(rng)
        lines = rig.lines()
        for n in range(n_tiles):
            for m in range(rows):
                row: list[int] = rig.machine.accumulators[at["accumulator"] + n * rows + m].tolist()
                first = at["buffer"] + 2 * (n * rows + m)
                old = lines[first], lines[first + 1]
                low, high = [0] * config.line_bytes, [0] * config.line_bytes
                for c in range(config.cols):
                    y = rig.entry(at["parameter"] + n, c).requantised(row[c], rounding)
                    held = scalar.int16(old[0][c], old[1][c])
                    addend = held if at["accumulate"] else at["zero_point"]
                    v = scalar.activated_wide(y, function, addend, at["table"])
                    low[c], high[c] = scalar.low_byte(v), scalar.high_byte(v)
                lines[first], lines[first + 1] = low, high
        word = encode(Opcode.ACTIVATE, **at, function=function, rounding=rounding, wide=1)
        rig.complete(word, HALT)
        assert rig.lines() == lines, (at, function, rounding)


def test_wide_activate_by_hand() -> None:
    rig = Rig(BROAD)  # a machine with five columns and buffer lines of five bytes
    for c in range(5):
        rig.set_entry(0, c, scalar.Entry(bias=0, multiplier=2**30, left=1, right=0))
    rig.machine.accumulators[0] = [1, -1, 0x1234, 70000, -70000]
    rig.machine.buffer[:] = 77
    at = {"accumulator": 0, "buffer": 4, "rows": 1, "n_tiles": 1, "parameter": 0, "wide": 1}
    rig.complete(encode(Opcode.ACTIVATE, **at, zero_point=-1), HALT)
    assert rig.machine.buffer[3:7].view(np.uint8).tolist() == [
        [77] * 5,
        [0x00, 0xFE, 0x33, 0xFF, 0x00],
        [0x00, 0xFF, 0x12, 0x7F, 0x80],
        [77] * 5,
    ]
    # The zero point has no effect if the old content of the lines is added (accumulate=1).
    rig.complete(encode(Opcode.ACTIVATE, **at, zero_point=-1, accumulate=1), HALT)
    assert rig.machine.buffer[4:6].view(np.uint8).tolist() == [
        [0x01, 0xFD, 0x67, 0xFF, 0x00],
        [0x00, 0xFF, 0x24, 0x7F, 0x80],
    ]
