# SPDX-License-Identifier: Apache-2.0
"""Tests of tensors without scales, and of scales that converters write for empty channels.

All weights of an empty channel are zero.
"""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.runtime import api
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.compiler.onnx_writer import interpret as interpret_onnx
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SCALES = np.array([0.0, 0.011, 1e-38, 0.004, 1e-45], np.float32)
"""Scales of the weights of five channels, of which three have only zeros as weights."""


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_channels_without_weights(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    product, axis = kind == "FULLY_CONNECTED", 3 if kind.startswith("DEPTHWISE") else 0
    shape = (1, 5) if product else (1, 6, 6, 5)
    source = writer.tensor(shape, "int8", 0.1, 38)
    result = writer.tensor((1, 5) if product else (1, 4, 4, 5), "int8", 0.5, -7)
    sizes = {"CONV_2D": (5, 3, 3, 5), "DEPTHWISE_CONV_2D": (1, 3, 3, 5)}.get(kind, (5, 5))
    weights = rng.integers(-127, 128, sizes, np.int8)
    np.moveaxis(weights, axis, -1)[..., SCALES < 1e-30] = 0
    bias = rng.integers(-900, 900, 5, np.int32)
    options = {} if product else {"padding": 1, "strideH": 1, "strideW": 1}
    writer.weighted(kind, source, result, weights, bias, SCALES, axis, **options)
    content = writer.content([source], [result])
    x = rng.integers(-128, 128, (3, *shape), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("kind", ["Conv", "QLinearConv", "MatMul", "Gemm"])
def test_channels_without_weights_in_onnx(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    writer = OnnxWriter()
    convolution = kind.endswith("Conv")
    shape, axis = ((1, 5, 6, 6), 0) if convolution else ((1, 5), 1)
    weights = rng.integers(-127, 128, (5, 5, 3, 3) if convolution else (5, 5), np.int8)
    np.moveaxis(weights, axis, -1)[..., SCALES < 1e-30] = 0
    codes, of_x, of_y = writer.input(shape), (0.0371, 38), (0.0537, -7)
    constant = writer.constant(weights)
    if kind == "QLinearConv":
        scales = [writer.scale(*each, "int8") for each in (of_x, (SCALES, 0), of_y)]
        y = writer.node(kind, codes, *scales[0], constant, *scales[1], *scales[2])
    else:
        x = writer.dequantise(codes, *of_x, "int8")
        numbers = writer.node(kind, x, writer.dequantise(constant, SCALES, 0, "int8", axis=axis))
        y = writer.quantise(numbers, *of_y, "int8")
    content = writer.content((y, "int8", tuple("abcd"[: len(shape)])))
    samples = rng.integers(-128, 128, (3, *shape), np.int8)
    run = api.compile(content, preset="small", batch=3).run(samples, backend="iss")
    assert np.array_equal(run.y, interpret_onnx(content, samples))


def test_scales_of_activations() -> None:
    writer = ModelWriter()
    tensors = [writer.tensor((1, 8), "int8", scale) for scale in (0.0, 0.1)]
    writer.operator("RELU", tensors[:1], tensors[1:])
    with pytest.raises(ModelError, match="has a scale that is not positive"):
        network_of(writer.content(tensors[:1], tensors[1:]))
    onnx = OnnxWriter()
    y = onnx.quantise(onnx.dequantise(onnx.input((1, 8)), 0.0, 0, "int8"), 0.1, 0, "int8")
    with pytest.raises(ModelError, match="it has a scale that is not between"):
        api.compile(onnx.content((y, "int8", ("a", "b"))))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_concatenation_without_scales(dtype: str) -> None:
    """Check that a CONCATENATION joins the bytes of tensors without scales, and changes no byte."""
    writer = ModelWriter()
    inputs = [writer.tensor((1, 4, size), dtype) for size in (3, 5)]
    result = writer.tensor((1, 4, 8), dtype)
    writer.operator("CONCATENATION", inputs, [result], axis=2)
    content = writer.content(inputs, [result])
    rng = np.random.default_rng(random_seed())
    x = [rng.integers(0, 128, (3, 1, 4, size)).astype(dtype) for size in (3, 5)]
    run = run_network(GoldenBackend(preset("small")), network_of(content), *x)
    assert np.array_equal(run.y, interpret(content, *x))
