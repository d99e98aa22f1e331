# SPDX-License-Identifier: Apache-2.0
"""Tests of ONNX's GlobalMaxPool, ReduceMax, ReduceMin and Resize on quantised maps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.runtime import api
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed

SHAPE = (1, 5, 4, 6)


def check(writer: OnnxWriter, numbers: str, rank: int, dtype: str) -> None:
    """Quantise the result of an operator, and compare the golden model with ONNX Runtime."""
    zero = 0 if dtype == "int8" else 128
    y = writer.quantise(numbers, 0.0291, 3 + zero, dtype)
    content = writer.content((y, dtype, tuple("abcd"[:rank])))
    x: NDArray[np.int64] = np.random.default_rng(random_seed()).integers(-128, 128, (5, *SHAPE))
    samples = (x + zero).astype(dtype)
    run = api.compile(content, preset="small", batch=3).run(samples, backend="iss")
    expected = interpret(content, samples)
    assert run.y.shape == expected.shape
    assert np.array_equal(run.y, expected)


def numbers_of(writer: OnnxWriter, dtype: str) -> str:
    zero = 0 if dtype == "int8" else 128
    return writer.dequantise(writer.input(SHAPE, dtype), 0.0313, zero - 9, dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_global_max_pool(dtype: str) -> None:
    writer = OnnxWriter()
    check(writer, writer.node("GlobalMaxPool", numbers_of(writer, dtype)), 4, dtype)


@pytest.mark.parametrize("axes", [[1], [2, 3], [1, 3], [-1], [1, 2, 3], [0, 2]])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_extremes(kind: str, axes: list[int], keep: int) -> None:
    writer = OnnxWriter()
    made = writer.node(kind, numbers_of(writer, "int8"), axes=axes, keepdims=keep)
    check(writer, made, 4 if keep else 4 - len(axes), "int8")


@pytest.mark.parametrize(
    "mode", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"]
)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_to_nearest(mode: str, rounding: str) -> None:
    """Check a Resize to the nearest pixel: to twice the size, to given sizes, and by fractions."""
    options = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
    for scales, sizes in (([1, 1, 2, 2], None), (None, [1, 5, 7, 4]), ([1, 1, 1.5, 0.5], None)):
        writer = OnnxWriter()
        numbers = numbers_of(writer, "int8")
        inputs = [numbers, "", writer.constant(np.array(scales or [], np.float32))]
        if sizes:
            inputs.append(writer.constant(np.array(sizes)))
        check(writer, writer.node("Resize", *inputs, mode="nearest", **options), 4, "int8")
