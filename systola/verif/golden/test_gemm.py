# SPDX-License-Identifier: Apache-2.0
"""Tests of whole matrix products through host memory, written instruction by instruction."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import Function, Opcode, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import PAGE, Rig
from systola.verif.kit.seeds import random_seed

TINY = preset("tiny")
ARRAYS = (
    TINY,
    preset("small"),
    preset("base"),
    preset("14x14"),
    preset("32x32"),
    preset("6x10"),
    dataclasses.replace(TINY, name="tall", rows=7, cols=3, columns_per_stage=3, columns_per_lane=1),
    dataclasses.replace(TINY, name="wide", rows=2, cols=9, columns_per_lane=1, weight_bus_bytes=16),
)


class Gemm:
    """A matrix product that has random operands in memories, a program and the expected result."""

    def __init__(self, config: Config, rng: np.random.Generator, m: int, k: int, n: int) -> None:
        self.m = m
        self.n = n
        self.k_tiles = -(-k // config.rows)
        self.n_tiles = -(-n // config.cols)
        self.x = rng.integers(-128, 128, (m, k))
        self.w = rng.integers(-128, 128, (k, n))
        self.bias = rng.integers(-(2**20), 2**20, n)
        self.q = rng.integers(2**30, 2**31, n)
        self.right = rng.integers(4, 14, n)
        self.x_pitch = self.k_tiles * config.input_pitch
        self.y_pitch = self.n_tiles * config.output_pitch
        self.entry_bytes = 9 * config.output_pitch
        self.x_at = 0
        self.parameters_at = m * self.x_pitch
        self.y_at = self.parameters_at + self.n_tiles * self.entry_bytes
        end = self.y_at + m * self.y_pitch
        self.rig = Rig(config, pages=end // PAGE + 2, tiles=self.k_tiles * self.n_tiles)
        self._fill(config)

    def _fill(self, config: Config) -> None:
        host, (depth, n) = self.rig.host, self.w.shape
        host[: self.y_at] = 0xA5  # not 0, so that the results are wrong if padding is used as data
        for number in range(self.k_tiles * self.n_tiles):
            self.rig.tile(number)[:] = 0xA5
        for row in range(self.m):
            for k in range(depth):
                block, i = divmod(k, config.rows)
                host[row * self.x_pitch + block * config.input_pitch + i] = self.x[row, k] % 256
        for column in range(n):
            tile, c = divmod(column, config.cols)
            for block in range(self.k_tiles):
                rows = self.rig.tile(tile * self.k_tiles + block)
                part = self.w[block * config.rows : (block + 1) * config.rows, column]
                rows[: len(part), c] = part % 256
            planes = [*int(self.bias[column]).to_bytes(4, "little", signed=True)]
            planes += [*int(self.q[column]).to_bytes(4, "little"), int(self.right[column])]
            for plane, byte in enumerate(planes):
                at = self.parameters_at + tile * self.entry_bytes + plane * config.output_pitch
                host[at + c] = byte

    def program(self, config: Config, rounding: Rounding, zero_point: int) -> list[bytes]:
        vectors = self.m * self.k_tiles
        return [
            encode(Opcode.READ_WEIGHTS, tile=0, count=self.k_tiles * self.n_tiles),
            encode(
                Opcode.READ_HOST_MEMORY,
                host=self.x_at,
                buffer=0,
                rows=self.m,
                stride=self.x_pitch,
                blocks=self.k_tiles,
                tail=self.x.shape[1] - (self.k_tiles - 1) * config.rows,
            ),
            encode(
                Opcode.LOAD_PARAMETERS, host=self.parameters_at, parameter=0, count=self.n_tiles
            ),
            encode(
                Opcode.MATRIX_MULTIPLY,
                buffer=0,
                accumulator=0,
                rows=self.m,
                k_tiles=self.k_tiles,
                n_tiles=self.n_tiles,
            ),
            encode(
                Opcode.ACTIVATE,
                accumulator=0,
                buffer=vectors,
                rows=self.m,
                n_tiles=self.n_tiles,
                parameter=0,
                function=Function.RELU,
                rounding=rounding,
                zero_point=zero_point,
            ),
            encode(
                Opcode.WRITE_HOST_MEMORY,
                host=self.y_at,
                buffer=vectors,
                rows=self.m,
                stride=self.y_pitch,
                blocks=self.n_tiles,
                tail=self.n - (self.n_tiles - 1) * config.cols,
            ),
            encode(Opcode.HALT),
        ]

    def result(self, config: Config) -> NDArray[np.int8]:
        raw = self.rig.host[self.y_at : self.y_at + self.m * self.y_pitch].view(np.int8)
        blocks = raw.reshape(self.m, self.n_tiles, config.output_pitch)[:, :, : config.cols]
        return blocks.reshape(self.m, -1)[:, : self.n]

    def expected(self, rounding: Rounding, zero_point: int) -> list[list[int]]:
        formula = scalar.single if rounding == Rounding.SINGLE else scalar.double
        sums = (self.x @ self.w + self.bias).tolist()  # these sums are far below 2^31
        return [
            [
                scalar.clamped(formula(total, int(q), -int(right)) + zero_point, zero_point, 127)
                for total, q, right in zip(row, self.q, self.right, strict=True)
            ]
            for row in sums
        ]


@pytest.mark.parametrize("config", ARRAYS, ids=lambda config: config.name)
def test_gemm(config: Config) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(12):
        m = int(rng.integers(1, 18))
        k, n = (int(size) for size in rng.integers(1, 4 * max(config.rows, config.cols) + 2, 2))
        rounding, zero_point = Rounding(int(rng.integers(2))), int(rng.integers(-128, 20))
        gemm = Gemm(config, rng, m, k, n)
        gemm.rig.complete(*gemm.program(config, rounding, zero_point))
        got = gemm.result(config).tolist()
        assert got == gemm.expected(rounding, zero_point), (m, k, n, rounding, zero_point)


def test_a_large_gemm_is_quick() -> None:
    """Check that the golden model multiplies 512 x 512 x 512 on `base` in a few seconds.

    The program multiplies eight tiles of columns at a time.
    """
    config = preset("base")
    rng = np.random.default_rng(random_seed())
    x = rng.integers(-128, 128, (512, 512)).astype(np.int8)
    w = rng.integers(-128, 128, (512, 512)).astype(np.int8)
    rig = Rig(config, pages=64 + 64 + 64 + 1, tiles=32 * 32)
    rig.host[: 512 * 512] = x.view(np.uint8).ravel()
    tiles = w.view(np.uint8).reshape(32, 16, 32, 16).transpose(2, 0, 1, 3)
    rig.weights[:] = tiles.ravel()
    rig.host[2**19 + 7 * 16 : 2**19 + 8 * 16] = 0x40  # top byte of the multiplier 2^30
    rig.host[2**19 + 8 * 16 : 2**19 + 9 * 16] = 13  # a right shift of 13, so the factor is 2^-14
    # The buffer holds half of the operand x at a time, followed by the results.
    program = [
        encode(Opcode.LOAD_PARAMETERS, host=2**19, parameter=entry, count=1) for entry in range(8)
    ]
    lines = {"rows": 256, "stride": 512}
    for half in range(2):
        start = half * 256 * 512
        program += [
            encode(Opcode.READ_HOST_MEMORY, **lines, host=start, buffer=0, blocks=32, tail=16),
            encode(Opcode.READ_WEIGHTS, tile=0, count=1024),
        ]
        for group in range(4):
            work = {"accumulator": 0, "rows": 256, "n_tiles": 8}
            out = {"host": 2**18 + start + group * 128, "buffer": 8192}
            program += [
                encode(Opcode.MATRIX_MULTIPLY, **work, buffer=0, k_tiles=32),
                encode(Opcode.ACTIVATE, **work, buffer=8192, parameter=0),
                encode(Opcode.WRITE_HOST_MEMORY, **lines, **out, blocks=8, tail=16),
            ]
    begin = time.process_time()
    rig.complete(*program, encode(Opcode.HALT))
    assert time.process_time() - begin < 3  # the run takes about 0.1 s on an idle computer
    sums = x.astype(np.int64) @ w.astype(np.int64)
    assert np.abs(sums).max() < 2**31
    halved = (sums + 1) >> 1  # the factor is 2^30 / 2^31, and halves are rounded up
    away = np.sign(halved) * ((np.abs(halved) + 2**12) >> 13)
    expected = np.clip(away, -128, 127)
    got = rig.host[2**18 : 2**19].view(np.int8).reshape(512, 512)
    assert np.array_equal(got, expected)
