# SPDX-License-Identifier: Apache-2.0
"""Tests of ONNX models on the golden model, against ONNX Runtime."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.network import make_network
from systola.compiler.onnx.translate import translate_onnx
from systola.runtime import api
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.onnx_writer import OnnxWriter, executed_kinds, interpret
from systola.verif.compiler.random_onnx import KINDS, RandomOnnx
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

STORED = (
    "onnx_cnn_res_dw_qdq_s8s8_pc",
    "onnx_skl_mlp_48relu_qdq_s8s8_pc",
    "onnx_skl_mlp_48relu_qop_u8s8_pc",
)
MACHINES = ("base", "small", "14x14", "6x10", "9x4", "32x32")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", STORED)
def test_stored_outputs(name: str, machine: str) -> None:
    content = (files("systola.models") / f"{name}.onnx").read_bytes()
    with np.load(str(files("systola.models") / f"{name}.npz")) as stored:
        x, fused, unfused = stored["x"], stored["y_fused"], stored["y_unfused"]
    run = run_network(GoldenBackend(preset(machine)), make_network(translate_onnx(content)), x)
    assert np.array_equal(run.y, fused)
    assert np.array_equal(run.y, unfused)
    samples = x[:, np.newaxis]
    assert np.array_equal(interpret(content, samples)[:, 0], fused)
    assert np.array_equal(interpret(content, samples, optimised=False)[:, 0], unfused)


def test_input_in_several_shapes() -> None:
    """Check a model that takes rows of its input as 19 x 4, and columns of the input as 2 x 38."""
    writer = OnnxWriter()
    x = writer.input((1, 19, 4))
    rows = writer.node("Gather", x, writer.constant(np.array([1, 17])), axis=1)
    shaped = writer.node("Reshape", x, writer.constant(np.array([1, 2, 38])))
    # A row of one shape is no whole number of rows of the other shape. So the compiler first puts
    # the elements one after another, in the order of the input.
    ordered = writer.node("Transpose", shaped, perm=[0, 1, 2])
    columns = writer.node("Gather", ordered, writer.constant(np.array([5, 30, 7])), axis=2)
    content = writer.content((rows, "int8", (1, 2, 4)), (columns, "int8", (1, 2, 3)))
    samples = np.random.default_rng(random_seed()).integers(-128, 128, (3, 1, 19, 4), np.int8)
    y = api.compile(content, preset="small", batch=3).run(samples, backend="iss").outputs
    assert np.array_equal(y[0], samples[:, :, [1, 17]])
    assert np.array_equal(y[1], samples.reshape(3, 1, 2, 38)[..., [5, 30, 7]])


@pytest.mark.parametrize("kind", ["QLinearConv", "QLinearConv depthwise", "QLinearMatMul", "QGemm"])
@pytest.mark.parametrize(
    ("dtype", "zero_point"), [("int8", -128), ("int8", 127), ("uint8", 0), ("uint8", 255)]
)
def test_weights_far_from_their_zero_point(kind: str, dtype: str, zero_point: int) -> None:
    """Check weights that differ by up to 255 from their zero point.

    The machine has weights of 8 bits. So a weight of 255 is the sum of three: 127 + 127 + 1.
    """
    rng = np.random.default_rng(random_seed())
    limits = np.iinfo(dtype)
    of_weights = {
        "QLinearConv": (9, 7, 3, 3),
        "QLinearConv depthwise": (7, 1, 3, 3),
        "QLinearMatMul": (7, 9),
        "QGemm": (7, 9),
    }[kind]
    convolution = kind.startswith("QLinearConv")
    shape, out = ((1, 7, 6, 6), (1, of_weights[0], 4, 4)) if convolution else ((5, 7), (5, 9))
    weights = rng.integers(limits.min, limits.max + 1, of_weights)
    weights.flat[:2] = limits.min, limits.max
    terms = weights.size // out[1]
    writer = OnnxWriter()
    of_x = writer.scale(1, limits.max - 127, dtype)
    of_result = writer.scale(200 * np.sqrt(terms), limits.max - 127, dtype)
    constant = writer.constant(weights.astype(dtype))
    inputs = [writer.input(shape, dtype), *of_x, constant, *writer.scale(1, zero_point, dtype)]
    inputs += [writer.constant(np.zeros(9, np.int32))] if kind == "QGemm" else []
    attributes = {"group": 7} if kind.endswith("depthwise") else {}
    y = writer.node(kind.split()[0], *inputs, *of_result, **attributes)
    content = writer.content((y, dtype, out))
    x = rng.integers(limits.min, limits.max + 1, (4, *shape)).astype(dtype)
    expected = interpret(content, x)
    assert len(np.unique(expected)) > 50
    model = api.compile(content, preset="small", batch=4)
    found = model.run(x, backend="iss").outputs[0]
    # If the compiler reports the model as inexact, a sum half-way between two codes may be rounded
    # to either code.
    most = 1 if model.inexact_channels else 0
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= most


FLOAT_SUMS = {f"{how}{kind}" for how in ("", "Fused") for kind in ("Conv", "MatMul", "Gemm")}
"""Kinds of ONNX Runtime's operators that calculate sums in float32."""
MEANS = ("average_pool", "global_average", "reduce_mean")
"""Kinds of operators with results that are often half-way between two codes."""


def check_random(model: RandomOnnx, machine: str, share: float = 0.01, most: int = 1) -> None:
    """Check that a random model's results equal ONNX Runtime's, if they are reported as exact.

    If not, at most the fraction `share` of the results may differ, each by at most `most` codes.
    """
    translation = translate_onnx(model.content)
    run = run_network(GoldenBackend(preset(machine)), make_network(translation), model.samples)
    expected = interpret(model.content, model.samples)
    if translation.inexact_channels == 0 and not np.array_equal(run.y, expected):
        # Not every operator becomes a QLinear operator, for example before a Clip or Relu that
        # stays. In float32 a sum half-way between two codes may be rounded to either code.
        plain = interpret(model.content, model.samples, optimised=False)
        if not np.array_equal(run.y, plain):
            assert executed_kinds(model.content) & FLOAT_SUMS
            share = 0.001
    difference = np.abs(run.y.astype(np.int64) - expected.astype(np.int64))
    assert difference.max() <= most
    assert np.count_nonzero(difference) <= 1 + share * difference.size


@pytest.mark.parametrize("kind", KINDS)
def test_single_operators(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(24):
        # In float32 a mean half-way between two codes may be rounded to either code. With windows
        # of two elements, half of the means may lie half-way.
        share, most = (1.0, 1) if kind in MEANS else (0.01, 1)
        check_random(RandomOnnx(rng, (kind,), 1), str(rng.choice(MACHINES)), share, most)


def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    # Two `requantise` in succession are left out: ONNX Runtime merges their scales, which changes
    # the results.
    kinds = tuple(kind for kind in KINDS if kind not in (*MEANS, "softmax", "requantise"))
    for _ in range(40):
        model = RandomOnnx(rng, kinds, int(rng.integers(2, 7)))
        check_random(model, str(rng.choice(MACHINES)), 0.02, 8)


@pytest.mark.parametrize("alpha", [0.5, 2.0, 0.3])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_with_alpha(alpha: float, transposed: int) -> None:
    """Check a Gemm with an alpha, and a bias as the quantiser writes it.

    The scale of the bias is the scale of the sums without alpha. Alpha does not multiply the bias.
    """
    rng = np.random.default_rng(random_seed())
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, 20)), 0.0273, 15, "int8")
    of_weights = rng.uniform(0.003, 0.006, 7).astype(np.float32)
    weights = writer.constant(rng.integers(-127, 128, (7, 20) if transposed else (20, 7), np.int8))
    w = writer.dequantise(weights, of_weights, 0, "int8", axis=0 if transposed else 1)
    codes = writer.constant(rng.integers(-9000, 9000, 7, np.int32))
    bias = writer.dequantise(codes, np.float32(0.0273) * of_weights, 0, "int32", axis=0)
    numbers = writer.node("Gemm", x, w, bias, alpha=alpha, transB=transposed)
    y = writer.quantise(numbers, 0.0213, -3, "int8")
    content = writer.content((y, "int8", (1, 7)))
    samples = rng.integers(-128, 128, (50, 1, 20), np.int8)
    model = api.compile(content, preset="small", batch=10)
    found = model.run(samples, backend="iss").outputs[0]
    expected = interpret(content, samples)
    differing = np.count_nonzero(found != expected)
    # The bias divided by alpha is rounded, and so off by at most half a unit of the sums. A code
    # changes with a probability of half a unit divided by a step of the results. The number of
    # changed codes may be five standard deviations above the mean.
    likely = found.size * alpha * 0.0273 * of_weights.max() / 0.0213 / 2
    assert differing <= (likely + 5 * np.sqrt(likely) if model.inexact_channels else 0)
