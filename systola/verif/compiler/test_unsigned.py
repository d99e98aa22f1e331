# SPDX-License-Identifier: Apache-2.0
"""Tests of networks of uint8 with asymmetric weights, as converters wrote them until 2021."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SAME = 0
INT64 = 4
"""Number of the type int64 in TensorFlow Lite's schema."""


class UnsignedNetwork:
    """A writer of a network of uint8, to which one layer at a time is added."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(random_seed())
        self.writer = ModelWriter()
        self.shape = shape
        self.input = self.last = self.tensor(shape)

    def tensor(self, shape: tuple[int, ...], scale: float = 0.05, zero: int | None = None) -> int:
        self.shape = shape
        zero = int(self.rng.integers(256)) if zero is None else zero
        return self.writer.tensor(shape, "uint8", scale, zero)

    def weighted(self, kind: str, shape: tuple[int, ...], out: tuple[int, ...], n: int) -> None:
        """Add a layer with `n` channels of results; its weights have a random zero point."""
        source, result = self.last, self.tensor(out, 0.4)
        values = self.rng.integers(0, 256, shape, np.uint8)
        values.flat[:2] = 0, 255
        zero = int(self.rng.integers(256))
        weights = self.writer.tensor(shape, "uint8", 0.004, zero, values)
        bias = self.rng.integers(-900, 900, n, np.int32)
        scale = np.float32(self.writer.quantization(source)[0]) * np.float32(0.004)
        options: dict[str, Any] = {"fusedActivationFunction": int(self.rng.choice([0, 1, 3]))}
        if kind != "FULLY_CONNECTED":
            options |= {"strideH": 1, "strideW": 1, "padding": SAME}
        if kind.startswith("DEPTHWISE"):
            options["depthMultiplier"] = 1
        inputs = [source, weights, self.writer.tensor((n,), "int32", scale, data=bias)]
        self.writer.operator(kind, inputs, [result], **options)
        self.last = result

    def pool(self, kind: str, kernel: int, out: tuple[int, ...], padding: int) -> None:
        result = self.writer.tensor(out, "uint8", *self.writer.quantization(self.last))
        sizes = {"filterHeight": kernel, "filterWidth": kernel, "strideH": 1, "strideW": 1}
        self.writer.operator(kind, [self.last], [result], padding=padding, **sizes)
        self.last, self.shape = result, out

    def check(self, machine: str = "small") -> None:
        content = self.writer.content([self.input], [self.last])
        shape = network_of(content).inputs[0].shape
        x = self.rng.integers(0, 256, (5, *shape), np.uint8)
        run = run_network(GoldenBackend(preset(machine)), network_of(content), x, batch=3)
        expected = interpret(content, x)
        assert run.y.dtype == np.uint8
        assert np.array_equal(run.y, expected)


@pytest.mark.parametrize("round_", range(4))
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_layers(kind: str, round_: int) -> None:
    network = UnsignedNetwork((1, 20) if kind == "FULLY_CONNECTED" else (1, 6, 7, 35))
    network.rng = np.random.default_rng([random_seed(), round_])
    if kind == "FULLY_CONNECTED":
        network.weighted(kind, (9, 20), (1, 9), 9)
    elif kind == "CONV_2D":
        network.weighted(kind, (9, 3, 3, 35), (1, 6, 7, 9), 9)
    else:
        network.weighted(kind, (1, 3, 3, 35), (1, 6, 7, 35), 35)
    network.check()


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_few_wide_weights(kind: str) -> None:
    """Check uint8 weights that fit in int8 less their zero point, with two exceptions.

    The two exceptions lie in two channels, and need a ninth bit.
    """
    network = UnsignedNetwork((1, 5, 4, 100))
    rng, writer = network.rng, network.writer
    shape = (1, 3, 3, 100) if kind.startswith("DEPTHWISE") else (7, 3, 3, 100)
    values = rng.integers(30, 256, shape, np.uint8)
    values[0, 1, 1, 40], values[0, 2, 0, 99] = 0, 11
    count = 100 if kind.startswith("DEPTHWISE") else 7
    weights = writer.tensor(shape, "uint8", 0.004, 140, values)
    result = network.tensor((1, 5, 4, count), 0.4)
    options = {"depthMultiplier": 1} if kind.startswith("DEPTHWISE") else {}
    bias = writer.tensor((count,), "int32", 0.0002, data=rng.integers(-900, 900, count, np.int32))
    inputs = [network.input, weights, bias]
    writer.operator(kind, inputs, [result], strideH=1, strideW=1, padding=SAME, **options)
    network.last = result
    network.check()


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools(kind: str, kernel: int, padding: int) -> None:
    """Check poolings of uint8, with means that are rounded half up because none is below 0."""
    network = UnsignedNetwork((1, 6, 7, 5))
    out = (1, 6, 7, 5) if padding == SAME else (1, 7 - kernel, 8 - kernel, 5)
    network.pool(kind, kernel, out, padding)
    network.check()


def test_classifier() -> None:
    """Check a small MobileNet of uint8, from its convolutions to a dense layer and a softmax."""
    network = UnsignedNetwork((1, 8, 8, 3))
    writer = network.writer
    network.weighted("CONV_2D", (12, 3, 3, 3), (1, 8, 8, 12), 12)
    before = network.last
    network.weighted("DEPTHWISE_CONV_2D", (1, 3, 3, 12), (1, 8, 8, 12), 12)
    network.weighted("CONV_2D", (12, 1, 1, 12), (1, 8, 8, 12), 12)
    total = network.tensor((1, 8, 8, 12), 0.5)
    writer.operator("ADD", [before, network.last], [total])
    network.last = total
    network.pool("AVERAGE_POOL_2D", 8, (1, 1, 1, 12), 1)
    flat = writer.tensor((1, 12), "uint8", *writer.quantization(network.last))
    shape = writer.tensor((2,), "int32", data=np.array([1, 12], np.int32))
    writer.operator("RESHAPE", [network.last, shape], [flat])
    network.last = flat
    network.weighted("FULLY_CONNECTED", (10, 12), (1, 10), 10)
    result = network.tensor((1, 10), 1 / 256, 0)
    writer.operator("SOFTMAX", [network.last], [result], beta=1.0)
    network.last = result
    network.check("base")


def test_place_of_the_largest() -> None:
    """Check ARG_MAX as the last operator of a network of uint8.

    The machine takes int8 codes in place of the uint8 codes, in the same order.
    """
    network = UnsignedNetwork((1, 20))
    network.weighted("FULLY_CONNECTED", (9, 20), (1, 9), 9)
    axes = network.writer.tensor((1,), "int32", data=np.array([1], np.int32))
    result = network.writer.tensor((1,), "int64")
    network.writer.operator("ARG_MAX", [network.last, axes], [result], outputType=INT64)
    content = network.writer.content([network.input], [result])
    x = network.rng.integers(0, 256, (9, 1, 20), np.uint8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))


def test_other_operators() -> None:
    """Check that a LOGISTIC of uint8 is refused: LiteRT computes it differently from int8."""
    network = UnsignedNetwork((1, 8))
    result = network.tensor((1, 8), 1 / 256, 0)
    network.writer.operator("LOGISTIC", [network.input], [result])
    with pytest.raises(ModelError, match=r"operator 0 \(LOGISTIC\): its input is uint8"):
        network_of(network.writer.content([network.input], [result]))


def test_a_layer_from_int8_to_uint8() -> None:
    """Check that a layer from int8 to uint8 is refused.

    LiteRT clamps the results of such a layer to a range that is wrong for int8 and for uint8.
    """
    writer = ModelWriter()
    x, y = writer.tensor((1, 8), "int8", 0.1), writer.tensor((1, 4), "uint8", 0.1, 111)
    weights, bias = np.ones((4, 8), np.int8), np.zeros(4, np.int32)
    writer.fully_connected(x, y, weights, bias, 0.01)
    with pytest.raises(ModelError, match=r"FULLY_CONNECTED\): its result is uint8"):
        network_of(writer.content([x], [y]))


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_product_of_scales(kind: str) -> None:
    """Check that the product of a layer's input and weight scales is rounded to float32.

    The rounding shows in a sum of 7,386, which is near to 50.5 steps of the result.
    """
    writer = ModelWriter()
    scale, weight_scale = 0.023528477177023888, 0.00683765672147274
    shapes = {
        "CONV_2D": ((1, 4, 4, 2), (1, 1, 1, 2), (1, 4, 4, 1)),
        "DEPTHWISE_CONV_2D": ((1, 2, 16, 2), (1, 2, 1, 2), (1, 1, 16, 2)),
        "FULLY_CONNECTED": ((16, 2), (1, 2), (16, 1)),
    }
    shape, weights_shape, out = shapes[kind]
    source = writer.tensor(shape, "uint8", scale, 0)
    values = np.array([100, 100, 1, 1] if kind.startswith("DEPTHWISE") else [100, 1], np.uint8)
    weights = writer.tensor(
        weights_shape, "uint8", weight_scale, 139, (values + 139).reshape(weights_shape)
    )
    count = out[-1]
    product = np.float32(scale) * np.float32(weight_scale)
    bias = writer.tensor((count,), "int32", product, data=np.zeros(count, np.int32))
    result = writer.tensor(out, "uint8", scale, 0)
    options: dict[str, Any] = {}
    if kind != "FULLY_CONNECTED":
        options = {"strideH": 1, "strideW": 1, "padding": 1}
    if kind.startswith("DEPTHWISE"):
        options["depthMultiplier"] = 1
    writer.operator(kind, [source, weights, bias], [result], **options)
    content = writer.content([source], [result])
    ones = np.arange(78, 94, dtype=np.uint8)
    pairs = np.stack([np.full(16, 73, np.uint8), ones], axis=1)
    if kind.startswith("DEPTHWISE"):
        pairs = np.repeat(pairs.T[:, :, np.newaxis], 2, axis=2)
    x = pairs.reshape(1, *shape)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y.reshape(-1), interpret(content, x).reshape(-1))
