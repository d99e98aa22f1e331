# SPDX-License-Identifier: Apache-2.0
"""Tests of MatrixMultiply and the weight queue, by hand and against plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Opcode, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, PLAIN_TALL, PLAIN_WIDE, SHAPES, TINY, Rig
from systola.verif.kit.seeds import random_seed


def test_matrix_multiply_by_hand() -> None:
    rig = Rig(PLAIN_TALL, tiles=1)  # a machine with weight rows of three bytes, padded to four
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
    rig = Rig(PLAIN_WIDE, tiles=1)
    rig.tile(0)[:, :5] = 1
    rig.machine.buffer[0] = [1, 2, 3, 100, 100]
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1),
        HALT,
    )
    assert rig.machine.accumulators[0].tolist() == [6] * 5


def test_matrix_multiply_order_of_tiles_lines_and_rows() -> None:
    """Check the order of two by three weight tiles, each a multiple of the identity matrix."""
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
    # The weight queue holds tiles 2 3 | 4 5 | 6 1: a pair for each column block n, with k = 0
    # and k = 1.
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
    """Check that sums beyond 2^31 wrap, in a product with 800 tiles of full size.

    The sums are up to 3.4e9, from random data so that every bit matters.
    """
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
def test_matrix_multiply_against_loops(config: Config) -> None:
    """Check products of int8 and int16 vectors and weights, in all combinations."""
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
        # `left` is the number of tiles left in the queue according to the instruction set's text.
        left = 24 - tile
        program = [
            encode(Opcode.READ_WEIGHTS, tile=0, count=24),
            encode(Opcode.MATRIX_MULTIPLY, **at),
            encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=25, n_tiles=1),
        ]
        assert rig.fault(*program) == (Fault.WEIGHT_UNDERFLOW, 2, left)
