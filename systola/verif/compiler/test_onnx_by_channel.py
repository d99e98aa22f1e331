# SPDX-License-Identifier: Apache-2.0
"""Tests of ONNX's BatchNormalization and PRelu on the machine, with numbers for each channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systola.compiler.cut.placement import Place
from systola.compiler.onnx.line_fit import WantedLine, fit_line
from systola.compiler.onnx.numbers import CODES
from systola.runtime import api
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed

SHAPES = [(1, 5, 6, 4), (1, 6, 9), (1, 20)]
CASES = [
    pytest.param(kind, shape, dtype, marks=[] if (shape, dtype) == first else pytest.mark.thorough)
    for first in [(SHAPES[0], "int8")]
    for kind in ("BatchNormalization", "PRelu")
    for shape in SHAPES
    for dtype in ("int8", "uint8")
]


def model(kind: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> bytes:
    """Return a model of one operator with random numbers for each channel, at times with a Relu."""
    writer = OnnxWriter()
    zeros = rng.integers(-128, 128, 2) + (0 if dtype == "int8" else 128)
    scales = rng.uniform(0.02, 0.1, 2)
    x = writer.dequantise(writer.input(shape, dtype), scales[0], zeros[0], dtype)
    channels = shape[1]
    if kind == "PRelu":
        slopes = rng.normal(0, 0.5, (channels, *(1,) * (len(shape) - 2))).astype(np.float32)
        made = writer.node(kind, x, writer.constant(slopes))
    else:
        scale, bias, mean, variance = (
            writer.constant(each.astype(np.float32))
            for each in (
                rng.normal(0, 1, channels),
                rng.normal(0, 1, channels),
                rng.normal(0, 1, channels),
                rng.uniform(0.05, 2, channels),
            )
        )
        made = writer.node(kind, x, scale, bias, mean, variance)
    if rng.integers(3) == 0:
        made = writer.node("Relu", made)
    return writer.content((writer.quantise(made, scales[1], zeros[1], dtype), dtype, shape))


def all_codes(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    """Return samples in which each channel has all 256 codes."""
    elements = int(np.prod(shape[2:], dtype=int))
    samples = -(-256 // elements)
    columns = [rng.permutation(np.resize(CODES, samples * elements)) for _ in range(shape[1])]
    x = np.array(columns).reshape(shape[1], samples, *shape[2:]).swapaxes(0, 1)[:, np.newaxis]
    return (x + (0 if dtype == "int8" else 128)).astype(dtype)


@pytest.mark.parametrize(("kind", "shape", "dtype"), CASES)
def test_all_codes(kind: str, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(3):
        content = model(kind, shape, dtype, rng)
        x = all_codes(shape, dtype, rng)
        compiled = api.compile(content, preset="small", batch=4)
        assert all(each.place is Place.MACHINE for each in compiled.placement)
        y = compiled.run(x, backend="iss").y
        assert np.array_equal(y, interpret(content, x))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["BatchNormalization", "PRelu"])
def test_rtl(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    shape = (1, 20)
    content = model(kind, shape, "int8", rng)
    x = all_codes(shape, "int8", rng)[:64]
    y = api.compile(content, preset="small", batch=16).run(x, backend="rtl").y
    assert np.array_equal(y, interpret(content, x))


@pytest.mark.thorough
def test_even_codes() -> None:
    """Check a PRelu with slopes of 1/4, which is left to the host.

    Some products lie half-way between two codes. ONNX Runtime rounds such a product to the even
    code.
    """
    writer = OnnxWriter()
    shape = (1, 3, 4, 4)
    x = writer.dequantise(writer.input(shape), 0.05, 3, "int8")
    x = writer.quantise(writer.node("MaxPool", x, kernel_shape=[1, 1]), 0.05, 3, "int8")
    x = writer.dequantise(x, 0.05, 3, "int8")
    slopes = np.array([0.25, 0.25, 0.3], np.float32).reshape(3, 1, 1)
    y = writer.quantise(writer.node("PRelu", x, writer.constant(slopes)), 0.05, 3, "int8")
    content = writer.content((y, "int8", shape))
    samples = np.random.default_rng(random_seed()).integers(-128, 128, (6, *shape)).astype(np.int8)
    y = api.compile(content, preset="small").run(samples, backend="iss").y
    assert np.array_equal(y, interpret(content, samples))


def test_line() -> None:
    """Check that `fit_line` finds requantiser numbers that give a rounded straight line.

    The lines rise, fall or are level. If halves are rounded to the even code, `fit_line` finds no
    such numbers.
    """
    every = np.ones(256, np.bool_)
    for slope, offset in ((0.37, 12.3), (-1.7, 3.1), (1e-3, 0.5), (0.0, -7.0), (40.0, 0.25)):
        results = np.clip(np.floor(slope * CODES + offset + 0.5), -128, 127).astype(np.int64)
        line = fit_line(WantedLine(results, every, -128, 127, slope, offset))
        assert line is not None
        exact = (line.weight * CODES + line.bias) * line.multiplier / 2.0 ** (31 - line.shift)
        assert np.array_equal(np.clip(np.floor(exact + 0.5), -128, 127), results)
    even = np.rint(0.5 * CODES).astype(np.int64)
    assert fit_line(WantedLine(even, every, -128, 127, 0.5, 0.0)) is None
