# SPDX-License-Identifier: Apache-2.0
"""What each instruction does, against results worked out by hand or by plain loops."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Function, Opcode, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import BROAD, HALT, SHAPES, TINY, Rig
from systola.verif.kit.seeds import random_seed

# 6 input elements: pitch 8 in host memory; 3 output elements: pitch 4; lines of 6 bytes.
TALL = dataclasses.replace(
    TINY, name="tall", rows=6, cols=3, columns_per_stage=3, columns_per_lane=1
)
# 3 input elements: pitch 4; 5 output elements: pitch 8; lines of 5 bytes.
WIDE = dataclasses.replace(TINY, name="wide", rows=3, cols=5, columns_per_lane=1)


def numbers(count: int) -> NDArray[np.uint8]:
    """1, 2, ... 255, 1, ...: never 0, so that padding shows."""
    return (np.arange(count) % 255 + 1).astype(np.uint8)


def random_bytes(rng: random.Random, count: int) -> NDArray[np.uint8]:
    return np.frombuffer(rng.randbytes(count), np.uint8).copy()


def set_entry(
    rig: Rig, entry: int, bias: list[int], q: list[int], left: list[int], right: list[int]
) -> None:
    """Fills a parameter entry through Load_Parameters; host memory below 1024 is used."""
    pitch = rig.config.output_pitch
    raw = np.zeros((9, pitch), np.uint8)
    for c in range(rig.config.cols):
        raw[0:4, c] = list((bias[c] % 2**32).to_bytes(4, "little"))
        raw[4:8, c] = list((q[c] % 2**32).to_bytes(4, "little"))
        raw[8, c] = left[c] * 32 + right[c]
    rig.host[: 9 * pitch] = raw.ravel()
    rig.complete(encode(Opcode.LOAD_PARAMETERS, host=0, parameter=entry, count=1), HALT)


def test_halt_ends_the_program() -> None:
    rig = Rig(TINY)
    outcome = rig.complete(
        encode(Opcode.NOP),
        encode(Opcode.SYNCHRONIZE),
        encode(Opcode.INTERRUPT_HOST, code=0xFFFF),
        encode(Opcode.INTERRUPT_HOST),
        HALT,
        encode(Opcode.INTERRUPT_HOST, code=1),
    )
    assert outcome.interrupts == (0xFFFF, 0)
    assert outcome.executed == 5


def test_interrupts_are_those_of_the_run() -> None:
    rig = Rig(TINY)
    rig.complete(encode(Opcode.INTERRUPT_HOST, code=3), HALT)
    assert rig.complete(HALT).interrupts == ()


def test_read_host_memory_by_hand() -> None:
    rig = Rig(TALL)
    rig.host[:64] = numbers(64)
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=4, buffer=9, rows=2, stride=20, blocks=2, tail=5),
        HALT,
    )
    assert rig.machine.buffer[8:14].tolist() == [
        [-1] * 6,
        [5, 6, 7, 8, 9, 10],  # block 0, row 0: from byte 4
        [25, 26, 27, 28, 29, 30],  # block 0, row 1: from byte 4 + 20
        [13, 14, 15, 16, 17, 0],  # block 1, row 0: from byte 4 + 8, five bytes
        [33, 34, 35, 36, 37, 0],
        [-1] * 6,
    ]


def test_read_host_memory_clears_bytes_beyond_the_input_vector() -> None:
    rig = Rig(WIDE)
    rig.host[:8] = [200, 2, 3, 4, 5, 6, 7, 8]
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=2, tail=3), HALT
    )
    assert rig.machine.buffer[:3].tolist() == [[-56, 2, 3, 0, 0], [5, 6, 7, 0, 0], [-1] * 5]


def test_read_host_memory_repeats_a_row_with_stride_zero() -> None:
    rig = Rig(TINY)
    rig.host[:4] = [1, 2, 3, 4]
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=3, stride=0, blocks=1, tail=4), HALT
    )
    assert rig.machine.buffer[:4].tolist() == [[1, 2, 3, 4]] * 3 + [[0] * 4]


def test_write_host_memory_by_hand() -> None:
    rig = Rig(WIDE)
    rig.machine.buffer[2:6] = [
        [1, 2, 3, 4, -5],
        [6, 7, 8, 9, 10],
        [11, 12, 13, 14, 15],
        [16, 17, 18, 19, 20],
    ]
    rig.host[:60] = 99
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=4, buffer=2, rows=2, stride=24, blocks=2, tail=2),
        HALT,
    )
    assert rig.host[:60].tolist() == (
        [99] * 4
        + [1, 2, 3, 4, 251, 99, 99, 99, 11, 12]
        + [99] * 14
        + [6, 7, 8, 9, 10, 99, 99, 99, 16, 17]
        + [99] * 22
    )


def test_write_host_memory_takes_the_first_bytes_of_longer_lines() -> None:
    rig = Rig(TALL)
    rig.machine.buffer[0] = [1, 2, 3, 4, 5, 6]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=1, tail=3), HALT
    )
    assert rig.host[:6].tolist() == [1, 2, 3, 0, 0, 0]


def test_write_host_memory_overlapping_rows_go_block_by_block() -> None:
    rig = Rig(TINY)
    rig.machine.buffer[:6] = [[m * 10 + i for i in range(4)] for m in range(6)]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=3, stride=4, blocks=2, tail=3), HALT
    )
    # Block 0: lines 0, 1, 2 to bytes 0, 4, 8. Block 1: lines 3, 4, 5 to 4, 8, 12, three bytes.
    assert rig.host[:16].tolist() == [0, 1, 2, 3, 30, 31, 32, 13, 40, 41, 42, 23, 50, 51, 52, 0]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=3, stride=0, blocks=1, tail=4), HALT
    )
    assert rig.host[:4].tolist() == [20, 21, 22, 23]


def test_write_host_memory_overlap_within_one_block() -> None:
    rig = Rig(WIDE)  # 5 bytes a row, one row every 4 bytes: the last byte is overwritten
    rig.machine.buffer[:2] = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=2, stride=4, blocks=1, tail=5), HALT
    )
    assert rig.host[:10].tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 0]


@pytest.mark.parametrize("config", [TINY, TALL, WIDE], ids=lambda config: config.name)
def test_copies_against_loops(config: Config) -> None:
    """Random matrices, overlapping rows included, in both orders of lines."""
    rng = random.Random(random_seed())
    for _ in range(120):
        reads, by_rows = rng.random() < 0.5, rng.random() < 0.5
        width = config.rows if reads else config.cols
        pitch = config.input_pitch if reads else config.output_pitch
        rows, blocks = rng.randrange(1, 9), rng.randrange(1, 5)
        at = {
            "host": 4 * rng.randrange(64),
            "buffer": rng.randrange(config.buffer_lines - rows * blocks + 1),
            "rows": rows,
            "stride": 4 * rng.randrange(0, blocks * pitch // 2),
            "blocks": blocks,
            "tail": rng.randrange(1, width + 1),
        }
        rig = Rig(config)
        rig.host[:4096] = random_bytes(rng, 4096)
        rig.machine.buffer[:] = (
            random_bytes(rng, rig.machine.buffer.size)
            .view(np.int8)
            .reshape(rig.machine.buffer.shape)
        )
        if reads:
            opcode = Opcode.READ_HOST_MEMORY_ALTERNATE if by_rows else Opcode.READ_HOST_MEMORY
        else:
            opcode = Opcode.WRITE_HOST_MEMORY_ALTERNATE if by_rows else Opcode.WRITE_HOST_MEMORY
        host: list[int] = rig.host[:4096].tolist()
        lines: list[list[int]] = rig.machine.buffer.tolist()
        if by_rows:
            order = [(m, b) for m in range(rows) for b in range(blocks)]
        else:
            order = [(m, b) for b in range(blocks) for m in range(rows)]
        for number, (m, b) in enumerate(order):
            count = at["tail"] if b == blocks - 1 else width
            start = at["host"] + m * at["stride"] + b * pitch
            line = lines[at["buffer"] + number]
            for i in range(config.line_bytes):
                if reads:
                    line[i] = scalar.signed8(host[start + i]) if i < count else 0
                elif i < count:
                    host[start + i] = line[i] % 256
        rig.complete(encode(opcode, **at), HALT)
        assert rig.host[:4096].tolist() == host, (opcode, at)
        assert rig.machine.buffer.tolist() == lines, (opcode, at)


def test_alternate_copies_by_hand() -> None:
    """Three pixels of six channels: two lines each, one behind the other."""
    rig = Rig(TINY)
    rig.host[:24] = numbers(24)
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(
            Opcode.READ_HOST_MEMORY_ALTERNATE, host=0, buffer=7, rows=3, stride=8, blocks=2, tail=2
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY_ALTERNATE,
            host=64,
            buffer=8,
            rows=2,
            stride=12,
            blocks=3,
            tail=1,
        ),
        HALT,
    )
    assert rig.machine.buffer[6:14].tolist() == [
        [-1] * 4,
        [1, 2, 3, 4],
        [5, 6, 0, 0],
        [9, 10, 11, 12],
        [13, 14, 0, 0],
        [17, 18, 19, 20],
        [21, 22, 0, 0],
        [-1] * 4,
    ]
    assert rig.host[64:88].tolist() == [
        *(5, 6, 0, 0, 9, 10, 11, 12, 13, 0, 0, 0),
        *(17, 18, 19, 20, 21, 22, 0, 0, 255, 0, 0, 0),
    ]


def test_host_memory_is_read_after_earlier_writes() -> None:
    rig = Rig(TINY)
    rig.machine.buffer[0] = [1, 2, 3, 4]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=8, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.READ_HOST_MEMORY, host=8, buffer=5, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.READ_HOST_MEMORY, host=12, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.WRITE_HOST_MEMORY, host=16, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        HALT,
    )
    assert rig.machine.buffer[5].tolist() == [1, 2, 3, 4]
    assert rig.host[8:20].tolist() == [1, 2, 3, 4] + [0] * 8


def test_load_parameters_and_activate_by_hand() -> None:
    rig = Rig(WIDE)  # five channels, planes of eight bytes
    for c, value in enumerate((0, 1, -1, 256, -(2**31))):
        for byte, part in enumerate((value % 2**32).to_bytes(4, "little")):
            rig.host[72 + byte * 8 + c] = part  # second entry of the two loaded
    for c in range(5):
        rig.host[72 + 7 * 8 + c] = 0xC0  # multiplier 2^30, with bit 31 set to be ignored
        rig.host[72 + 8 * 8 + c] = (c % 3) << 5 | c // 3
    rig.complete(encode(Opcode.LOAD_PARAMETERS, host=0, parameter=7, count=2), HALT)
    rig.machine.accumulators[20] = [10, 10, 10, 10, -(2**31)]
    rig.machine.buffer[:] = 77
    rig.complete(
        encode(Opcode.ACTIVATE, accumulator=20, buffer=3, rows=1, n_tiles=1, parameter=8), HALT
    )
    # 10/2; 11*2/2; 9*4/2; 266/2/2 = 66.5 away from zero; -2^31 - 2^31 wraps to 0.
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
    # Entry i holds the bit pattern 255 - i, that is -1 - v for the int8 input v; v = y + 1.
    assert rig.machine.buffer[:2].tolist() == [[-2, -3, -128, -128], [-1, 0, 125, 127]]
    assert rig.machine.tables[0].tolist() == [0] * 256


def test_matrix_multiply_by_hand() -> None:
    rig = Rig(TALL, tiles=1)  # rows of weights are three bytes, padded to four
    rig.weights[:] = 99
    rig.tile(0)[:, :3] = [[1, 0, 255], [0, 1, 255], [2, 0, 0], [0, 2, 0], [0, 0, 128], [3, 3, 127]]
    rig.machine.buffer[4:6] = [[1, 2, 3, 4, 5, 6], [-1, 0, 0, 0, -128, 127]]
    rig.machine.accumulators[:] = 7
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=4, accumulator=10, rows=2, k_tiles=1, n_tiles=1),
        HALT,
    )
    assert rig.machine.accumulators[9:13].tolist() == [
        [7, 7, 7],
        [1 + 6 + 18, 2 + 8 + 18, -1 - 2 - 640 + 762],
        [-1 + 381, 381, 1 + 128 * 128 + 127 * 127],
        [7, 7, 7],
    ]


def test_matrix_multiply_takes_only_the_first_bytes_of_longer_lines() -> None:
    rig = Rig(WIDE, tiles=1)
    rig.tile(0)[:, :5] = 1
    rig.machine.buffer[0] = [1, 2, 3, 100, 100]
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1),
        HALT,
    )
    assert rig.machine.accumulators[0].tolist() == [6] * 5


def test_matrix_multiply_order_of_tiles_lines_and_rows() -> None:
    """Two by three tiles, each a multiple of the identity, from two Read_Weights."""
    rig = Rig(TINY, tiles=8)
    for number in range(8):
        rig.tile(number)[:] = np.eye(4, dtype=np.uint8) * number
    rig.machine.buffer[:4] = [[1] * 4, [2] * 4, [10] * 4, [20] * 4]
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=2, count=5),
        encode(Opcode.READ_WEIGHTS, tile=1, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=2, k_tiles=2, n_tiles=3),
        HALT,
    )
    # Queue 2 3 | 4 5 | 6 1, the pair of each n for k = 0 and 1.
    assert rig.machine.accumulators[:7, 0].tolist() == [32, 64, 54, 108, 16, 32, 0]


def test_matrix_multiply_accumulates_only_when_told() -> None:
    rig = Rig(TINY, tiles=1)
    rig.tile(0)[:] = np.eye(4, dtype=np.uint8)
    rig.machine.buffer[0] = [1, 2, 3, -4]
    rig.machine.accumulators[5] = [100, 2**31 - 1, -(2**31), -(2**31)]
    multiply = {"buffer": 0, "accumulator": 5, "rows": 1, "k_tiles": 1, "n_tiles": 1}
    load = encode(Opcode.READ_WEIGHTS, tile=0, count=1)
    rig.complete(load, encode(Opcode.MATRIX_MULTIPLY, **multiply, accumulate=1), HALT)
    assert rig.machine.accumulators[5].tolist() == [101, -(2**31) + 1, -(2**31) + 3, 2**31 - 4]
    rig.complete(load, encode(Opcode.MATRIX_MULTIPLY, **multiply), HALT)
    assert rig.machine.accumulators[5].tolist() == [1, 2, 3, -4]


def test_sums_wrap_over_a_chain_of_instructions() -> None:
    rig = Rig(TINY, tiles=1000)
    rig.weights[:] = 128
    rig.machine.buffer[:1000] = -128
    load = encode(Opcode.READ_WEIGHTS, tile=0, count=1000)
    multiply = {"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1000, "n_tiles": 1}
    chain = [load, encode(Opcode.MATRIX_MULTIPLY, **multiply)]
    chain += 39 * [load, encode(Opcode.MATRIX_MULTIPLY, **multiply, accumulate=1)]
    rig.complete(*chain, HALT)
    total = 40 * 4000 * 128 * 128
    assert total > 2**31
    assert rig.machine.accumulators[0].tolist() == [scalar.wrap32(total)] * 4


def test_sums_wrap_within_one_instruction() -> None:
    """800 full-size tiles: sums of 3.4e9 in one go, of random data so that every bit shows."""
    rng = np.random.default_rng(random_seed())
    rig = Rig(preset("v1"), tiles=100)
    rig.weights[:] = rng.choice(np.array([127, 128, 129], np.uint8), rig.weights.size)
    rig.weights.reshape(100, 256, 256)[:, :, 0] = 128
    vectors = rng.integers(-128, -125, (800, 256)).astype(np.int8)
    vectors[:, ::7] = -128
    rig.machine.buffer[:800] = vectors
    loads = 8 * [encode(Opcode.READ_WEIGHTS, tile=0, count=100)]
    rig.complete(
        *loads,
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=800, n_tiles=1),
        HALT,
    )
    tiles = rig.weights.view(np.int8).reshape(100, 256, 256)
    sums = np.zeros(256, np.int64)
    for k in range(800):
        sums += vectors[k].astype(np.int64) @ tiles[k % 100].astype(np.int64)
    assert sums[0] > 2**31
    assert rig.machine.accumulators[0].tolist() == [scalar.wrap32(int(s)) for s in sums]


def test_weight_queue_spans_instructions_and_ends_with_the_program() -> None:
    rig = Rig(TINY, tiles=4)
    for number in range(4):
        rig.tile(number)[:] = np.eye(4, dtype=np.uint8) * (number + 1)
    rig.machine.buffer[0] = [1] * 4
    one = {"buffer": 0, "rows": 1, "k_tiles": 1}
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=4),
        encode(Opcode.MATRIX_MULTIPLY, **one, accumulator=0, n_tiles=1),
        encode(Opcode.MATRIX_MULTIPLY, **one, accumulator=1, n_tiles=2),
        HALT,
    )
    assert rig.machine.accumulators[:3, 0].tolist() == [1, 2, 3]
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=1, count=1),
        encode(Opcode.MATRIX_MULTIPLY, **one, accumulator=0, n_tiles=1),
        HALT,
    )
    assert rig.machine.accumulators[0, 0] == 2


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
    rig = Rig(BROAD)  # five columns, lines of five bytes
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
    # The zero point does not count where the lines do.
    rig.complete(encode(Opcode.ACTIVATE, **at, zero_point=-1, accumulate=1), HALT)
    assert rig.machine.buffer[4:6].view(np.uint8).tolist() == [
        [0x01, 0xFD, 0x67, 0xFF, 0x00],
        [0x00, 0xFF, 0x24, 0x7F, 0x80],
    ]


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_matrix_multiply_against_loops(config: Config) -> None:
    """int8 and int16 vectors and weights in all combinations."""
    rng = random.Random(random_seed())
    rig = Rig(config, tiles=24)
    for _ in range(60):
        rows, k_tiles, n_tiles = rng.randrange(1, 5), rng.randrange(1, 4), rng.randrange(1, 4)
        wide_vectors, wide_weights = rng.randrange(2), rng.randrange(2)
        lines_read = (1 + wide_vectors) * rows * k_tiles
        at = {
            "buffer": rng.randrange(config.buffer_lines - lines_read + 1),
            "accumulator": rng.randrange(config.accumulator_rows - rows * n_tiles + 1),
            "rows": rows,
            "k_tiles": k_tiles,
            "n_tiles": n_tiles,
            "accumulate": rng.randrange(2),
            "wide_vectors": wide_vectors,
            "wide_weights": wide_weights,
        }
        rig.randomise(rng)
        lines = rig.lines()
        sums: list[list[int]] = rig.machine.accumulators.tolist()
        tile = 0
        for n in range(n_tiles):
            for k in range(k_tiles):
                for m in range(rows):
                    first = at["buffer"] + (1 + wide_vectors) * (k * rows + m)
                    row = sums[at["accumulator"] + n * rows + m]
                    for c in range(config.cols):
                        total = row[c] if k or at["accumulate"] else 0
                        for i in range(config.rows):
                            x, w = lines[first][i], rig.weight(tile, i, c)
                            if wide_vectors:
                                x = scalar.int16(x, lines[first + 1][i])
                            if wide_weights:
                                w = scalar.int16(w, rig.weight(tile + 1, i, c))
                            total += x * w
                        row[c] = scalar.wrap32(total)
                tile += 1 + wide_weights
        rig.complete(
            encode(Opcode.READ_WEIGHTS, tile=0, count=24),
            encode(Opcode.MATRIX_MULTIPLY, **at),
            HALT,
        )
        assert rig.machine.accumulators.tolist() == sums, at
        # As many tiles as the text says are left.
        left = 24 - tile
        program = [
            encode(Opcode.READ_WEIGHTS, tile=0, count=24),
            encode(Opcode.MATRIX_MULTIPLY, **at),
            encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=25, n_tiles=1),
        ]
        assert rig.fault(*program) == (Fault.WEIGHT_UNDERFLOW, 2, left)


def test_memories_persist_between_runs() -> None:
    rig = Rig(TINY, tiles=1)
    rig.tile(0)[:] = np.eye(4, dtype=np.uint8)
    rig.host[:4] = [1, 2, 3, 4]
    rig.host[2048 + 7 * 4 : 2048 + 8 * 4] = 0x40  # multiplier 2^30
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.LOAD_PARAMETERS, host=2048, parameter=0, count=1),
        HALT,
    )
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1),
        HALT,
    )
    rig.complete(
        encode(Opcode.ACTIVATE, accumulator=0, buffer=1, rows=1, n_tiles=1, parameter=0),
        encode(Opcode.WRITE_HOST_MEMORY, host=64, buffer=1, rows=1, stride=0, blocks=1, tail=4),
        HALT,
    )
    assert rig.host[64:68].tolist() == [1, 1, 2, 2]  # halves, rounded up


def test_only_sensible_memories_are_taken() -> None:
    rig = Rig(TINY, tiles=1)
    run = rig.machine.run
    with pytest.raises(ValueError, match="host window"):
        run(rig.host[:-4], rig.weights, 0)
    with pytest.raises(ValueError, match="host window"):
        run(np.zeros(8192, np.uint8)[::2], rig.weights, 0)
    with pytest.raises(ValueError, match="host window"):
        run(rig.host.reshape(2, -1), rig.weights, 0)
    with pytest.raises(ValueError, match="weight window"):
        run(rig.host, rig.weights[:-1], 0)
    for offset in (-128, 64):
        with pytest.raises(ValueError, match="program_offset"):
            run(rig.host, rig.weights, offset)
