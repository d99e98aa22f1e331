# SPDX-License-Identifier: Apache-2.0
"""Tests of QLinearSoftmax on the host against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from systola.compiler.quantised_softmax import fits_float32, quantised_softmax
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_softmax(dtype: str) -> None:
    rng = np.random.default_rng(random_seed())
    first = np.iinfo(dtype).min
    for _ in range(60):
        shape = (int(rng.integers(1, 5)), int(rng.choice([1, 2, 3, 10, 300])))
        scale = float(np.float32(10 ** rng.uniform(-4, 0.7)))
        # The scale of the results goes down to the smallest for which float32 defines the results.
        # Some rows have one element.
        out_scale = float(np.float32(1 / rng.uniform(20, 148 * shape[1])))
        zero_point = int(rng.choice([-128, rng.integers(-128, 128)]))
        x = np.clip(rng.normal(0, 10 ** rng.uniform(0, 2), shape), -128, 127).astype(np.int8)
        writer = OnnxWriter()
        source = writer.input(shape, dtype)
        given = writer.scale(scale, 0, dtype)
        wanted = writer.scale(out_scale, zero_point + 128 + first, dtype)
        result = writer.node("QLinearSoftmax", source, *given, *wanted, axis=1, opset=17)
        codes = (x.astype(np.int64) + 128 + first).astype(dtype)
        theirs = interpret(writer.content((result, dtype, shape)), codes[np.newaxis])[0]
        assert fits_float32(shape[1], scale, out_scale)
        ours = quantised_softmax(x, scale, out_scale, zero_point).astype(np.int64) + 128 + first
        assert np.array_equal(ours, theirs), (shape, scale, out_scale, zero_point)


@pytest.mark.parametrize("length", [1, 2, 3, 300])
def test_finest_codes(length: int) -> None:
    """Check the smallest scale of a softmax's results: 1 / (n e^5) for rows of n elements.

    Results of a smaller scale are not defined in float32.
    """
    most = int(length * np.exp(5))
    assert fits_float32(length, 0.1, 1 / (most + 0.5))
    assert not fits_float32(length, 0.1, 1 / (most + 1.5))
