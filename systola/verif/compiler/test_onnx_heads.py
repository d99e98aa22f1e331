# SPDX-License-Identifier: Apache-2.0
"""Tests of the operators at the end of PyTorch classifiers that ONNX Runtime has quantised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.runtime import api
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed

VIEWS = {"Reshape": 2, "Flatten": 2, "Squeeze": 2, "Unsqueeze": 5, "Transpose": 4, "Identity": 4}
"""Operators that change only a tensor's shape, each with the number of dimensions of its result."""


def viewed(writer: OnnxWriter, view: str, numbers: str) -> str:
    """Add an operator that changes the shape of 1 x 7 x 1 x 1 numbers; return its result's name."""
    match view:
        case "Reshape":
            return writer.node(view, numbers, writer.constant(np.array([1, 7])))
        case "Squeeze":
            return writer.node(view, numbers, writer.constant(np.array([2, 3])))
        case "Unsqueeze":
            return writer.node(view, numbers, writer.constant(np.array([0])))
        case "Transpose":
            return writer.node(view, numbers, perm=[0, 2, 3, 1])
        case _:
            return writer.node(view, numbers)


def check(content: bytes, x: NDArray[Any]) -> None:
    """Run a model on the golden model and in ONNX Runtime, and compare the results byte by byte."""
    run = api.compile(content, preset="small", batch=2).run(x, backend="iss")
    expected = interpret(content, x)
    assert run.y.shape == expected.shape
    assert np.array_equal(run.y, expected)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["ReduceMean", "GlobalAveragePool", "Conv", "Relu"])
def test_view_before_quantisation(kind: str, view: str) -> None:
    """Check an operator with a change of shape between the operator and its QuantizeLinear.

    ONNX Runtime requantises in float32, and may round a number half-way between two codes up or
    down. No number is half-way here: from code to code there are 3,001 or 6.3 units of the
    operator's sums.
    """
    rng = np.random.default_rng(random_seed())
    writer = OnnxWriter()
    numbers = writer.dequantise(writer.input((1, 7, 3, 3)), 0.1, 3, "int8")
    match kind:
        case "ReduceMean":
            numbers = writer.node(kind, numbers, axes=[2, 3])
        case "GlobalAveragePool":
            numbers = writer.node(kind, numbers)
        case _:
            weights = writer.constant(rng.integers(-127, 128, (7, 7, 3, 3), np.int8))
            of_weights = writer.dequantise(weights, 0.01, 0, "int8")
            numbers = writer.node("Conv", numbers, of_weights)
            numbers = writer.node(kind, numbers) if kind == "Relu" else numbers
    scale = 0.07 if kind.endswith(("Mean", "Pool")) else 3.001
    y = writer.quantise(viewed(writer, view, numbers), scale, -5, "int8")
    check(
        writer.content((y, "int8", tuple("abcde"[: VIEWS[view]]))),
        rng.integers(-128, 128, (6, 1, 7, 3, 3), np.int8),
    )


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 5, 8, 8), [2, 3]),
        ((1, 7, 7, 7), [-1, -2]),
        ((1, 3, 5, 3), [2, 3]),
        ((1, 4, 1, 3), [2, 3]),
        ((1, 3, 10, 2), [3]),
        ((1, 6, 9), [1]),
        ((1, 6, 4, 5), [1, 2]),
        ((1, 6, 4, 5), [2]),
        ((1, 23), [1]),
    ],
)
def test_mean_at_the_end(shape: tuple[int, ...], axes: list[int], keep: int) -> None:
    """Check every bit of the float32 result of a ReduceMean at the end of a model.

    The quantiser leaves this result in float32. The bits of the result depend on the order of the
    additions.
    """
    rng = np.random.default_rng(random_seed())
    writer = OnnxWriter()
    numbers = writer.dequantise(writer.input(shape), 0.037, 3, "int8")
    y = writer.node("ReduceMean", numbers, axes=axes, keepdims=keep)
    rank = len(shape) if keep else len(shape) - len(axes)
    content = writer.content((y, "float32", tuple("abcd"[:rank])))
    check(content, rng.integers(-128, 128, (5, *shape), np.int8))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 5, 8, 8), [2, 3]),
        ((1, 3, 5, 3), [1]),
        pytest.param((1, 6, 9), [2], marks=pytest.mark.thorough),
        pytest.param((1, 23), [1], marks=pytest.mark.thorough),
    ],
)
def test_sum(shape: tuple[int, ...], axes: list[int], dtype: str) -> None:
    """Check a ReduceSum over pixels and over channels, from the lowest to the highest code."""
    rng = np.random.default_rng(random_seed())
    least = int(np.iinfo(dtype).min)
    writer = OnnxWriter()
    numbers = writer.dequantise(writer.input(shape, dtype), 0.037, least + 131, dtype)
    made = writer.node("ReduceSum", numbers, writer.constant(np.array(axes)), keepdims=0)
    y = writer.quantise(made, 0.0917, least + 120, dtype)
    content = writer.content((y, dtype, tuple("abcd"[: len(shape) - len(axes)])))
    check(content, rng.integers(least, least + 256, (6, *shape)).astype(dtype))
