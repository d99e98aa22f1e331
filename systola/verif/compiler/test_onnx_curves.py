# SPDX-License-Identifier: Apache-2.0
"""Tests of ONNX's element-wise operators between a DequantizeLinear and a QuantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest

from systola.runtime import api
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed

OPSET = 20
"""The first version of ONNX's operator set that has Gelu."""
CURVES: dict[str, dict[str, float | str]] = {
    "Acos": {},
    "Acosh": {},
    "Asin": {},
    "Asinh": {},
    "Atan": {},
    "Atanh": {},
    "Ceil": {},
    "Celu": {"alpha": 0.7},
    "Cos": {},
    "Cosh": {},
    "Floor": {},
    "Gelu": {},
    "Gelu tanh": {"approximate": "tanh"},
    "Log": {},
    "Mish": {},
    "Reciprocal": {},
    "Round": {},
    "Selu": {},
    "Sign": {},
    "Sin": {},
    "Sinh": {},
    "Softsign": {},
    "Tan": {},
    "ThresholdedRelu": {"alpha": 0.4},
}
CODES = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)


@pytest.mark.parametrize("kind", CURVES)
def test_all_codes(kind: str) -> None:
    writer = OnnxWriter(OPSET)
    numbers = writer.dequantise(writer.input((1, 256)), 0.0313, -40, "int8")
    made = writer.node(kind.split()[0], numbers, **CURVES[kind])
    content = writer.content((writer.quantise(made, 0.0217, 3, "int8"), "int8", (1, 256)))
    run = api.compile(content, preset="small").run(CODES, backend="iss")
    assert np.array_equal(run.y, interpret(content, CODES))


@pytest.mark.parametrize("end", [-7.5, -14.5])
def test_sigmoid_far_below_zero(end: float) -> None:
    """Check a Sigmoid far below 0, where its results equal ONNX Runtime's inexact ones.

    The scale of the results is so small that the error of ONNX Runtime's Sigmoid shows.
    """
    writer = OnnxWriter()
    made = writer.node("Sigmoid", writer.dequantise(writer.input((1, 256)), 0.12, 127, "int8"))
    last = 1 / (1 + np.exp(-end)) / 40
    content = writer.content((writer.quantise(made, last, -128, "int8"), "int8", (1, 256)))
    run = api.compile(content, preset="small").run(CODES, backend="iss")
    assert np.array_equal(run.y, interpret(content, CODES))


@pytest.mark.parametrize("number", [2.0, 0.5, -1.0, 3.0])
@pytest.mark.parametrize("kind", ["Pow", "Max", "Min", "PRelu"])
def test_function_with_a_number(kind: str, number: float) -> None:
    writer = OnnxWriter()
    numbers = writer.dequantise(writer.input((1, 256)), 0.0313, -128, "int8")
    made = writer.node(kind, numbers, writer.constant(np.array([number], np.float32)))
    content = writer.content((writer.quantise(made, 0.0417, 3, "int8"), "int8", (1, 256)))
    run = api.compile(content, preset="small").run(CODES, backend="iss")
    assert np.array_equal(run.y, interpret(content, CODES))


@pytest.mark.parametrize("kind", ["ArgMax", pytest.param("ArgMin", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("shape", "axis", "keep"), [((1, 10), 1, 0), ((1, 5, 3, 4), 1, 1), ((1, 3, 4, 300), -1, 0)]
)
def test_first_place(kind: str, shape: tuple[int, ...], axis: int, keep: int) -> None:
    """Check that ArgMax and ArgMin of a calculated tensor give the first of equal elements.

    The host executes the case with an axis of 300 elements.
    """
    writer = OnnxWriter()
    a = writer.dequantise(writer.input(shape), 0.0313, 7, "int8")
    a = writer.quantise(writer.node("Tanh", a), 0.005, 0, "int8")
    a = writer.dequantise(a, 0.005, 0, "int8")
    y = writer.node(kind, a, axis=axis, keepdims=keep)
    made = [1 if number == axis % len(shape) else size for number, size in enumerate(shape)]
    made = made if keep else np.delete(shape, axis).tolist()
    content = writer.content((y, "int64", tuple(made)))
    x = np.random.default_rng(random_seed()).integers(-20, 20, (6, *shape)).astype(np.int8)
    run = api.compile(content, preset="small", batch=3).run(x, backend="iss")
    expected = interpret(content, x)
    assert run.y.dtype == expected.dtype and run.y.shape == expected.shape
    assert np.array_equal(run.y, expected)


@pytest.mark.parametrize("kind", ["Max", "Min"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_larger_and_smaller(kind: str, dtype: str) -> None:
    """Check Max and Min of two tensors with different scales, an input and a calculated map."""
    rng = np.random.default_rng(random_seed())
    writer = OnnxWriter()
    shape, zero = (1, 5, 3, 4), 0 if dtype == "int8" else 128
    a = writer.dequantise(writer.input(shape, dtype), 0.0313, 7 + zero, dtype)
    b = writer.dequantise(writer.input(shape, dtype), 0.0217, zero - 20, dtype)
    a = writer.quantise(writer.node("MaxPool", a, kernel_shape=[1, 1]), 0.0313, 7 + zero, dtype)
    a = writer.dequantise(a, 0.0313, 7 + zero, dtype)
    y = writer.quantise(writer.node(kind, a, b), 0.0291, 3 + zero, dtype)
    content = writer.content((y, dtype, shape))
    x = [(rng.integers(-128, 128, (6, *shape)) + zero).astype(dtype) for _ in range(2)]
    run = api.compile(content, preset="small", batch=3).run(*x, backend="iss")
    assert np.array_equal(run.y, interpret(content, *x))
