# SPDX-License-Identifier: Apache-2.0
"""The program with which a delivered machine is tried: a matrix product and its bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.runtime.image_builder import ImageBuilder

_ROWS = 5
_SCALE = 16


def trial_program(config: Config) -> tuple[Image, NDArray[np.uint8]]:
    """Return a program that needs two tiles each way, and the host window after its run.

    The product is int8 [5, rows + 1] x [rows + 1, cols + 1], and the result comes from numpy.
    Weights are multiples of 4 and biases 4 n + 1, so no sum is halfway between two results.
    """
    random = np.random.default_rng(42)
    a = random.integers(-128, 128, (_ROWS, config.rows + 1), dtype=np.int8)
    w = 4 * random.integers(-1, 2, (config.rows + 1, config.cols + 1), dtype=np.int8)
    bias = 4 * random.integers(-100, 100, config.cols + 1) + 1
    builder = ImageBuilder(config)
    operand, weights = builder.matrix(a), builder.weights(w)
    entries = builder.parameters(scale=1 / _SCALE, bias=bias)
    room = builder.room(_ROWS, config.cols + 1)
    image = builder.build(f"""
        read_host_memory {operand.operands}, buffer=0
        read_weights {weights.operands}
        load_parameters {entries.operands}, parameter=0
        matrix_multiply buffer=0, accumulator=0, rows={_ROWS}, {weights.sizes}
        activate accumulator=0, buffer={2 * _ROWS}, rows={_ROWS}, n_tiles=2, parameter=0
        write_host_memory {room.operands}, buffer={2 * _ROWS}
        halt
    """)
    sums = a.astype(int) @ w + bias
    expected = image.host.copy()
    room.store(expected, np.clip(np.rint(sums / _SCALE), -128, 127).astype(np.int8))
    return image, expected
