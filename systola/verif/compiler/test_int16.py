# SPDX-License-Identifier: Apache-2.0
"""Tests of operators with int16 activations and int8 weights, against LiteRT."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.compiler.cut.placement import Place
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.operations import Operations, is_wide
from systola.runtime import api
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SAME, VALID = 0, 1
SCALE, RESULT_SCALE = 0.0004, 0.003
WEIGHTS = 1
"""Number of the weights in an operator's list of inputs, counted from 0."""


def activation(name: str) -> int:
    """Return the schema's number of the fused activation with this name."""
    return int(getattr(schema.ActivationFunctionType, name))


def samples(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int16]:
    """Return random int16 codes of the whole range, with its two ends more often than others."""
    values = rng.integers(-(1 << 15), 1 << 15, shape)
    return np.where(rng.random(shape) < 0.1, rng.choice([-32768, 32767], shape), values).astype(
        np.int16
    )


def check(content: bytes, *x: NDArray[np.int16], machine: str = "base") -> None:
    """Check that a network runs on the machine in 16-bit modes, with the interpreter's results."""
    network = network_of(content)
    stages = [stage for stage in network.stages if isinstance(stage, Operations)]
    assert any(is_wide(node) for stage in stages for node in stage.nodes)
    run = run_network(GoldenBackend(preset(machine)), network, *x, batch=4)
    assert run.y.dtype == np.int16
    assert np.array_equal(run.y, interpret(content, *x))


def weighted(
    kind: str,
    rng: np.random.Generator,
    source: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    *,
    axis: int = 0,
    bias: str | None = "int64",
    channels: bool = True,
    largest: int = 127,
    scale: float = RESULT_SCALE,
    **options: int,
) -> bytes:
    """Return a model of a single operator of int16 with random weights."""
    writer = ModelWriter()
    n = weights[axis]
    scales = rng.uniform(0.001, 0.02, n if channels else 1).astype(np.float32)
    given = writer.tensor(source, "int16", SCALE)
    made = writer.tensor(result, "int16", scale)
    values = rng.integers(-largest, largest + 1, weights, np.int8)
    inputs = [given, writer.tensor(weights, "int8", scales, data=values, axis=axis)]
    if kind == "TRANSPOSE_CONV":
        shape = writer.tensor((4,), "int32", data=np.array(result, np.int32))
        inputs = [shape, inputs[WEIGHTS], given]
    if bias is not None:
        biases = rng.integers(-(1 << 24), 1 << 24, n).astype(bias)
        inputs.append(writer.tensor((n,), bias, np.float32(SCALE) * scales, data=biases))
        if bias == "int32":
            options["quantizedBiasType"] = schema.TensorType.INT32
    writer.operator(kind, inputs, [made], **options)
    return writer.content([given], [made])


@pytest.mark.parametrize("bias", [None, "int32", "int64"])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 40, 5), (3, 17, 33), (5, 64, 16)])
def test_fully_connected(rows: int, k: int, n: int, channels: bool, bias: str | None) -> None:
    rng = np.random.default_rng(random_seed())
    made = weighted(
        "FULLY_CONNECTED",
        rng,
        (rows, k),
        (n, k),
        (rows, n),
        bias=bias,
        channels=channels,
        keepNumDims=True,
    )
    check(made, samples(rng, (3, rows, k)))


@pytest.mark.parametrize("bias", ["int32", "int64"])
@pytest.mark.parametrize("function", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize(
    ("padding", "stride", "dilation"),
    [(SAME, (1, 1), (1, 1)), (SAME, (2, 1), (1, 1)), (VALID, (1, 2), (2, 1))],
)
def test_convolution(
    padding: int,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    function: str,
    bias: str,
) -> None:
    rng = np.random.default_rng(random_seed())
    size, kernel = (6, 7), (3, 2)
    out = [
        -(-n // s) if padding == SAME else (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(size, kernel, stride, dilation, strict=True)
    ]
    made = weighted(
        "CONV_2D",
        rng,
        (1, *size, 5),
        (18, *kernel, 5),
        (1, *out, 18),
        bias=bias,
        padding=padding,
        strideH=stride[0],
        strideW=stride[1],
        dilationHFactor=dilation[0],
        dilationWFactor=dilation[1],
        fusedActivationFunction=activation(function),
    )
    check(made, samples(rng, (2, 1, *size, 5)))


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("bias", [None, "int64"])
def test_depthwise(channels: int, multiplier: int, bias: str | None) -> None:
    rng = np.random.default_rng(random_seed())
    n = channels * multiplier
    made = weighted(
        "DEPTHWISE_CONV_2D",
        rng,
        (1, 5, 6, channels),
        (1, 3, 3, n),
        (1, 5, 6, n),
        axis=3,
        bias=bias,
        padding=SAME,
        strideH=1,
        strideW=1,
        depthMultiplier=multiplier,
    )
    check(made, samples(rng, (2, 1, 5, 6, channels)))


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize("bias", [None, "int32", "int64"])
def test_transpose_convolution(padding: int, bias: str | None) -> None:
    rng = np.random.default_rng(random_seed())
    out = (8, 9) if padding == SAME else (9, 9)
    made = weighted(
        "TRANSPOSE_CONV",
        rng,
        (1, 4, 3, 6),
        (5, 3, 3, 6),
        (1, *out, 5),
        bias=bias,
        padding=padding,
        strideH=2,
        strideW=3,
    )
    check(made, samples(rng, (2, 1, 4, 3, 6)))


@pytest.mark.parametrize("function", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("channels", [pytest.param(1, marks=pytest.mark.thorough), 19])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        ((6, 7), (2, 3), (2, 1), VALID),
        ((6, 4), (2, 2), (2, 2), SAME),
        ((8, 8), (8, 8), (1, 1), VALID),
        ((5, 3), (1, 1), (2, 1), VALID),
        ((7, 15), (7, 15), (1, 1), VALID),
    ],
)
def test_average(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    channels: int,
    function: str,
) -> None:
    rng = np.random.default_rng(random_seed())
    made = pooling("AVERAGE_POOL_2D", size, kernel, stride, padding, channels, function)
    x = samples(rng, (4, 1, *size, channels))
    # In samples 1 and 2 the sums are near 0, so many means end in a half. In the last sample all
    # codes are the lowest code.
    x[1] >>= 13
    x[2] >>= 12
    x[3] = -32768
    check(made, x)


def pooling(
    kind: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    channels: int,
    function: str,
) -> bytes:
    """Return a model of a single pooling of int16."""
    pairs = zip(size, kernel, stride, strict=True)
    out = [-(-n // s) if padding == SAME else (n - k) // s + 1 for n, k, s in pairs]
    writer = ModelWriter()
    source, result = (writer.tensor((1, *each, channels), "int16", SCALE) for each in (size, out))
    writer.operator(
        kind,
        [source],
        [result],
        filterHeight=kernel[0],
        filterWidth=kernel[1],
        strideH=stride[0],
        strideW=stride[1],
        padding=padding,
        fusedActivationFunction=activation(function),
    )
    return writer.content([source], [result])


def test_after_a_move() -> None:
    """Check a layer on the machine after a TRANSPOSE on the host."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    source, turned = (writer.tensor(shape, "int16", SCALE) for shape in ((4, 6), (6, 4)))
    order = writer.tensor((2,), "int32", data=np.array((1, 0), np.int32))
    writer.operator("TRANSPOSE", [source, order], [turned])
    weights = writer.tensor((5, 4), "int8", 0.01, data=rng.integers(-127, 128, (5, 4), np.int8))
    result = writer.tensor((6, 5), "int16", RESULT_SCALE)
    writer.operator("FULLY_CONNECTED", [turned, weights], [result], keepNumDims=True)
    check(writer.content([source], [result]), samples(rng, (3, 4, 6)))


@pytest.mark.parametrize(
    ("kind", "why"),
    [("AVERAGE_POOL_2D", "of fewer at the edge"), ("MAX_POOL_2D", "the largest of int8")],
)
def test_pools_of_the_host(kind: str, why: str) -> None:
    content = pooling(kind, (5, 5), (3, 3), (2, 2), SAME, 3, "NONE")
    with pytest.raises(ModelError, match=why):
        network_of(content)


@pytest.mark.parametrize("function", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("scale", [0.0003, 2.0**-12])
def test_two_operands(kind: str, constant: bool, function: str, scale: float) -> None:
    rng = np.random.default_rng(random_seed())
    shape = (1, 3, 4, 21)
    writer = ModelWriter()
    a = writer.tensor(shape, "int16", scale)
    if constant:
        other = samples(rng, (21,))
        b = writer.tensor((21,), "int16", 0.0007, data=other)
    else:
        b = writer.tensor(shape, "int16", 0.0007)
    result = writer.tensor(shape, "int16", 0.002 if kind == "MUL" else 0.0009)
    writer.operator(kind, [a, b], [result], fusedActivationFunction=activation(function))
    inputs = [a] if constant else [a, b]
    check(writer.content(inputs, [result]), *(samples(rng, (3, *shape)) for _ in inputs))


def test_a_network_on_the_machine_and_on_the_host() -> None:
    """Check several samples of an int16 network that runs on the machine and on the host.

    The layers and an ADD run on the machine. The TANH between them runs on the host.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    tensors = [
        writer.tensor((1, 24), "int16", scale) for scale in (SCALE, 0.0006, 1 / 32768, 0.0008)
    ]
    result = writer.tensor((1, 7), "int16", RESULT_SCALE)

    def layer(source: int, made: int, n: int) -> None:
        weights = writer.tensor(
            (n, 24), "int8", 0.004, data=rng.integers(-127, 128, (n, 24), np.int8)
        )
        bias = writer.tensor((n,), "int64", 0.004 * SCALE, data=np.zeros(n, np.int64))
        writer.operator("FULLY_CONNECTED", [source, weights, bias], [made], keepNumDims=True)

    layer(tensors[0], tensors[1], 24)
    writer.operator("TANH", [tensors[1]], [tensors[2]])
    writer.operator("ADD", [tensors[1], tensors[2]], [tensors[3]], potScaleInt16=False)
    layer(tensors[3], result, 7)
    content = writer.content([tensors[0]], [result])
    model = api.compile(content, preset="base")
    places = {each.kind: each.place for each in model.placement}
    assert places["FULLY_CONNECTED"] is places["ADD"] is Place.MACHINE
    assert places["TANH"] is Place.HOST
    x = samples(rng, (3, 1, 24))
    assert np.array_equal(model.run(x, backend="iss").y, interpret(content, x))


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
def test_a_network_of_the_host(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    source = writer.tensor((1, 30), "int16", 0.0003)
    result = writer.tensor((1, 30), "int16", 1 / 32768)
    writer.operator(kind, [source], [result])
    content = writer.content([source], [result])
    model = api.compile(content, preset="base")
    (place,) = model.placement
    assert place.place is Place.HOST
    assert "128 places" in place.reason
    x = samples(rng, (2, 1, 30))
    assert np.array_equal(model.run(x, backend="iss").y, interpret(content, x))


def test_sums_of_more_than_32_bits_are_the_hosts() -> None:
    rng = np.random.default_rng(random_seed())
    content = weighted("FULLY_CONNECTED", rng, (1, 2000), (3, 2000), (1, 3), scale=0.1)
    with pytest.raises(ModelError, match="more than 32 bits"):
        network_of(content)
    x = samples(rng, (2, 1, 2000))
    run = api.compile(content, preset="base").run(x, backend="iss")
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D"])
def test_many_rows(kind: str) -> None:
    """Check int16 layers with more rows than accumulators; the convolution is run in bands.

    Each row has more inputs than one block of the buffer has columns.
    """
    rng = np.random.default_rng(random_seed())
    config = preset("8x8")
    k, n = 2 * config.rows + 1, config.cols + 1
    if kind == "CONV_2D":
        rows = config.buffer_lines // 6
        shape = (1, 1, rows, k)
        content = weighted(kind, rng, shape, (n, 1, 1, k), (1, 1, rows, n), strideH=1, strideW=1)
    else:
        rows = config.accumulator_rows + 9
        shape = (1, rows, k)
        content = weighted(kind, rng, shape, (n, k), (1, rows, n), keepNumDims=True)
    check(content, samples(rng, (1, *shape)), machine="8x8")


@pytest.mark.parametrize(
    ("part", "k", "n"),
    [
        pytest.param(32, 9, 140, id="wide result"),
        pytest.param(6, 17, 3, id="large source"),
        pytest.param(8, 17, 25, id="both"),
        pytest.param(3, 9, 9, id="a block of all rows is too large"),
    ],
)
def test_sums_in_groups(part: int, k: int, n: int) -> None:
    """Check a FULLY_CONNECTED of int16 with too many vectors and sums for the buffer.

    It has a row for each `part` lines of the buffer. A vector of 8 channels takes two lines, and
    its sums take four.
    """
    rng = np.random.default_rng(random_seed())
    rows = preset("8x8").buffer_lines // part
    shape, result = (1, rows, k), (1, rows, n)
    content = weighted("FULLY_CONNECTED", rng, shape, (n, k), result, keepNumDims=True)
    check(content, samples(rng, (1, *shape)), machine="8x8")


@pytest.mark.parametrize("constant", [False, True])
def test_operands_in_bands(constant: bool) -> None:
    """Check an int16 ADD of values that are too large for the unified buffer."""
    rng = np.random.default_rng(random_seed())
    shape = (1, preset("8x8").buffer_lines // 4, 9)
    writer = ModelWriter()
    other = samples(rng, shape) if constant else None
    a, b, result = (
        writer.tensor(shape, "int16", scale, data=data)
        for scale, data in ((0.0003, None), (0.0005, other), (0.001, None))
    )
    writer.operator("ADD", [a, b], [result])
    inputs = [a] if constant else [a, b]
    x = (samples(rng, (1, *shape)) for _ in inputs)
    check(writer.content(inputs, [result]), *x, machine="8x8")


def test_a_machine_without_16_bit_modes() -> None:
    rng = np.random.default_rng(random_seed())
    content = weighted("FULLY_CONNECTED", rng, (1, 8), (4, 8), (1, 4))
    x = samples(rng, (1, 1, 8))
    with pytest.raises(CompileError, match="no 16-bit modes"):
        run_network(GoldenBackend(preset("tiny")), network_of(content), x)
    run = api.compile(content, preset="tiny").run(x, backend="iss")
    assert np.array_equal(run.y, interpret(content, x))


def powers_of_two() -> bytes:
    """Return an int16 ADD with scales that are powers of two, for which LiteRT shifts."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, 6), "int16", 2.0**-12) for _ in range(3)]
    writer.operator("ADD", tensors[:2], tensors[2:], potScaleInt16=True)
    return writer.content(tensors[:2], tensors[2:])


def broadcast() -> bytes:
    """Return an int16 MUL of a value and a smaller value, which is repeated to the larger shape."""
    writer = ModelWriter()
    tensors = [writer.tensor(shape, "int16", 0.001) for shape in ((1, 4, 6), (1, 1, 6), (1, 4, 6))]
    writer.operator("MUL", tensors[:2], tensors[2:])
    return writer.content(tensors[:2], tensors[2:])


@pytest.mark.parametrize(
    ("make", "reason"),
    [(powers_of_two, "powers of two"), (broadcast, "other shapes")],
)
def test_operators_of_the_host(make: Callable[[], bytes], reason: str) -> None:
    rng = np.random.default_rng(random_seed())
    content = make()
    with pytest.raises(ModelError, match=reason):
        network_of(content)
    model = api.compile(content, preset="base")
    x = [samples(rng, (2, *value.shape)) for value in model.inputs]
    assert np.array_equal(model.run(*x, backend="iss").y, interpret(content, *x))


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_powers_of_two_that_are_multiplied(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    tensors = [writer.tensor((1, 40), "int16", scale) for scale in (2.0**-12, 2.0**-13, 2.0**-11)]
    writer.operator(kind, tensors[:2], tensors[2:], potScaleInt16=False)
    x = (samples(rng, (3, 1, 40)) for _ in range(2))
    check(writer.content(tensors[:2], tensors[2:]), *x)
