# SPDX-License-Identifier: Apache-2.0
"""Tests of where matrices, tiles and parameters lie in memory, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.layout import HostMatrix, pack_parameters, pack_tiles
from systola.verif.compiler.products import random_layer
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("columns", [1, 4, 5, 7, 10, 11])
def test_matrix_in_host_memory(columns: int) -> None:
    rng = np.random.default_rng(random_seed())
    where = HostMatrix(offset=24, rows=3, columns=columns, block=5, pitch=8)
    matrix = rng.integers(-128, 128, (3, columns), dtype=np.int8)
    host = np.full(24 + where.size + 8, 0xA5, np.uint8)
    where.store(host, matrix)
    expected = np.full_like(host, 0xA5)
    for row in range(3):
        for column in range(columns):
            block, element = divmod(column, 5)
            at = 24 + row * where.stride + block * 8 + element
            expected[at] = int(matrix[row, column]) & 0xFF
            assert where.at(row, block) + element == at
    assert np.array_equal(host, expected)
    assert np.array_equal(where.load(host), matrix)


def test_tail_of_blocks() -> None:
    where = HostMatrix(offset=0, rows=1, columns=12, block=5, pitch=8)
    assert [where.tail(first, count) for first, count in ((0, 3), (0, 2), (2, 1), (1, 1))] == [
        2,
        5,
        2,
        5,
    ]


@pytest.mark.parametrize("name", ["5x3", "3x5", "tiny"])
def test_weight_tiles(name: str) -> None:
    config = preset(name)
    rng = np.random.default_rng(random_seed())
    k_block, n_block = config.rows - 1, config.cols
    weights = rng.integers(-128, 128, (2 * k_block + 1, 2 * n_block - 1), dtype=np.int8)
    packed = pack_tiles(config, weights, k_block, n_block).view(np.int8)
    assert packed.shape == (2, 3, config.tile_bytes)
    expected = np.zeros((2, 3, config.rows, config.weight_row_pitch), np.int8)
    for (k, n), value in np.ndenumerate(weights):
        expected[n // n_block, k // k_block, k % k_block, n % n_block] = value
    assert np.array_equal(packed.reshape(expected.shape), expected)


def test_parameter_entries() -> None:
    config = preset("5x3")
    layer = random_layer(np.random.default_rng(random_seed()), 2, 7)
    packed = pack_parameters(config, layer, 3).reshape(3, 9, config.output_pitch)
    for channel in range(7):
        planes = packed[channel // 3, :, channel % 3]
        assert int.from_bytes(planes[0:4].tobytes(), "little", signed=True) == layer.bias[channel]
        assert int.from_bytes(planes[4:8].tobytes(), "little") == layer.multiplier[channel]
        shift = layer.shift[channel]
        assert planes[8] == (shift << 5 if shift > 0 else -shift)
    assert not packed[2, :, 1:].any()
