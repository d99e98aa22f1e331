# SPDX-License-Identifier: Apache-2.0
"""Tests of TRANSPOSE_CONV with several strides, kernels and paddings, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SAME, VALID = 0, 1


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(
    ("size", "kernel", "stride"),
    [
        ((4, 5), (3, 3), (2, 2)),
        ((4, 5), (2, 2), (2, 2)),
        ((3, 4), (4, 5), (2, 3)),
        ((5, 3), (3, 3), (1, 1)),
        ((3, 3), (1, 2), (2, 2)),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_single_operators(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    bias: bool,
) -> None:
    rng = np.random.default_rng(random_seed())
    out = [
        n * s if padding == SAME else n * s + max(k - s, 0)
        for n, s, k in zip(size, stride, kernel, strict=True)
    ]
    writer = ModelWriter()
    shapes = (1, *size, 6), (1, *out, 5)
    source = writer.tensor(shapes[0], "int8", 0.05, 7)
    result = writer.tensor(shapes[1], "int8", 0.3, -4)
    scales = rng.uniform(0.003, 0.006, 5).astype(np.float32)
    weights = rng.integers(-127, 128, (5, *kernel, 6), np.int8)
    inputs = [
        writer.tensor((4,), "int32", data=np.array(shapes[1], np.int32)),
        writer.tensor(weights.shape, "int8", scales, data=weights, axis=0),
        source,
    ]
    if bias:
        values = rng.integers(-900, 900, 5, np.int32)
        inputs.append(writer.tensor((5,), "int32", np.float32(0.05) * scales, data=values))
    strides = {"strideH": stride[0], "strideW": stride[1]}
    writer.operator("TRANSPOSE_CONV", inputs, [result], padding=padding, **strides)
    content = writer.content([source], [result])
    x = rng.integers(-128, 128, (3, *shapes[0]), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
