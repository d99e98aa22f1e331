# SPDX-License-Identifier: Apache-2.0
"""Tests of operators that move elements, and of indexes and shapes that a model calculates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, Rearrange, View
from systola.compiler.network import Network
from systola.compiler.operations import Operations
from systola.runtime.execute import HostError
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.random_maps import MOST_ELEMENTS
from systola.verif.compiler.random_moves import ALL_KINDS, MOVES, RandomMoves
from systola.verif.compiler.test_maps import MACHINES, check_random, cut_machine
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("kind", MOVES)
def test_single_operators(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    ran = 0
    for number in range(10):
        config = preset(str(rng.choice(MACHINES))) if number % 2 else cut_machine(rng)
        ran += check_random(RandomMoves(rng, (kind,), 1), config)
    assert ran >= 5


def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    ran = 0
    for number in range(40):
        config = preset(str(rng.choice(MACHINES))) if number % 2 else cut_machine(rng)
        ran += check_random(RandomMoves(rng, ALL_KINDS, int(rng.integers(2, 9))), config)
    assert ran >= 20


def test_the_largest_first_map_can_grow() -> None:
    """Check that MOST_ELEMENTS leaves room for a CONCATENATION after the largest first map."""
    for repeat in (1, 2):
        network = RandomMoves(np.random.default_rng(random_seed()), ("join",), 0)
        first = replace(network.maps[0], shape=(repeat, 13, 13, 19))
        assert np.prod(network.join(first).shape) <= MOST_ELEMENTS


def check(content: bytes, *x: NDArray[Any]) -> Network:
    """Check a model's results against the interpreter; return the compiler's network."""
    network = network_of(content)
    run = run_network(GoldenBackend(preset("small")), network, *x)
    assert np.array_equal(run.y, interpret(content, *x))
    return network


def moved_by_host(network: Network) -> int:
    """Return the number of operations in a network with which the host moves elements."""
    stages = [stage for stage in network.stages if isinstance(stage, HostStage)]
    return sum(isinstance(stage.function, Rearrange) for stage in stages)


def embedding(dtype: str, *, from_the_end: bool = False) -> tuple[ModelWriter, int, int]:
    """Return a writer of a model with an embedding, and the embedding's input and result tensors.

    The embedding has 50 rows of 7 codes. With `from_the_end`, a row number below 0 counts from the
    last row.
    """
    rng = np.random.default_rng(1)
    writer = ModelWriter()
    tokens = numbers = writer.tensor((1, 9), dtype)
    if dtype == "float32":
        numbers = writer.tensor((1, 9), "int32")
        writer.operator("CAST", [tokens], [numbers])
    if from_the_end:
        less, wrapped = writer.tensor((1, 9), "bool"), writer.tensor((1, 9), "int32")
        chosen = writer.tensor((1, 9), "int32")
        constants = [
            writer.tensor((), "int32", data=np.array(value, np.int32)) for value in (0, 50)
        ]
        writer.operator("LESS", [numbers, constants[0]], [less])
        writer.operator("ADD", [numbers, constants[1]], [wrapped])
        writer.operator("SELECT", [less, wrapped, numbers], [chosen])
        numbers = chosen
    data = rng.integers(-128, 128, (50, 7), dtype=np.int8)
    table = writer.tensor((50, 7), "int8", 0.02, 3, data=data)
    result = writer.tensor((1, 9, 7), "int8", 0.02, 3)
    writer.operator("GATHER", [table, numbers], [result], axis=0, batchDims=0)
    return writer, tokens, result


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_embeddings(dtype: str) -> None:
    writer, tokens, rows = embedding(dtype)
    mean = writer.tensor((1, 7), "int8", 0.01, -5)
    axes = writer.tensor((1,), "int32", data=np.array([1], np.int32))
    writer.operator("MEAN", [rows, axes], [mean])
    content = writer.content([tokens], [mean])
    check(content, np.random.default_rng(2).integers(0, 50, (6, 1, 9)).astype(dtype))


def test_numbers_from_the_end() -> None:
    writer, tokens, rows = embedding("int32", from_the_end=True)
    content = writer.content([tokens], [rows])
    check(content, np.random.default_rng(2).integers(-50, 50, (6, 1, 9), dtype=np.int32))


def test_numbers_outside_the_table() -> None:
    writer, tokens, rows = embedding("int32")
    network = network_of(writer.content([tokens], [rows]))
    with pytest.raises(HostError, match=r"operator 0 \(GATHER\): an index is outside 0 to 49"):
        run_network(GoldenBackend(preset("small")), network, np.full((1, 1, 9), 50, np.int32))


@pytest.mark.parametrize("scale", [0.1, 0.07])
def test_bytes_without_sign(scale: float) -> None:
    writer = ModelWriter()
    outer = [writer.tensor((1, 256), "uint8", 0.1, zero_point) for zero_point in (140, 90)]
    inner = [writer.tensor((1, 256), "int8", scale, zero_point) for zero_point in (12, -38)]
    writer.operator("QUANTIZE", outer[:1], inner[:1])
    writer.operator("RELU", inner[:1], inner[1:])
    writer.operator("QUANTIZE", inner[1:], outer[1:])
    check(writer.content(outer[:1], outer[1:]), np.arange(256, dtype=np.uint8).reshape(1, 1, 256))


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("scales", [(0.1, 0.2, 0.1), (0.07, 0.3, 0.11), (0.3, 0.3, 0.3)])
def test_bytes_without_sign_are_joined(scales: tuple[float, float, float], axis: int) -> None:
    """Check that a CONCATENATION of uint8 brings the codes of all inputs to the result's scale."""
    writer = ModelWriter()
    sources = [
        writer.tensor((1, 16, 16), "uint8", scale, zero_point)
        for scale, zero_point in zip(scales, (128, 100, 7), strict=True)
    ]
    shape = (1, 48, 16) if axis == 1 else (1, 16, 48)
    result = writer.tensor(shape, "uint8", scales[1], 128)
    writer.operator("CONCATENATION", sources, [result], axis=axis)
    codes = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    check(writer.content(sources, [result]), codes, codes, codes)


def test_bytes_without_a_scale_are_joined() -> None:
    writer = ModelWriter()
    sources = [writer.tensor((1, 256), "uint8") for _ in range(2)]
    result = writer.tensor((1, 512), "uint8")
    writer.operator("CONCATENATION", sources, [result], axis=1)
    codes = np.arange(256, dtype=np.uint8).reshape(1, 1, 256)
    check(writer.content(sources, [result]), codes, codes)


def test_shapes_are_constants() -> None:
    """Check a RESHAPE to a shape that the model makes from the batch size of its input."""
    writer = ModelWriter()
    source, result = (writer.tensor(shape, "int8", 0.1) for shape in ((1, 4, 6), (1, 3, 8)))
    numbers = [
        writer.tensor(data.shape, "int32", data=data)
        for data in (np.array([value], np.int32) for value in (0, 1, 1))
    ]
    rest = [writer.tensor((), "int32", data=np.array(size, np.int32)) for size in (3, 8)]
    shape, batch, target = (writer.tensor(size, "int32") for size in ((3,), (), (3,)))
    writer.operator("SHAPE", [source], [shape], outType=schema.TensorType.INT32)
    writer.operator("STRIDED_SLICE", [shape, *numbers], [batch], shrinkAxisMask=1)
    writer.operator("PACK", [batch, *rest], [target], axis=0, valuesCount=3)
    relu = writer.tensor((1, 4, 6), "int8", 0.2)
    writer.operator("RELU", [source], [relu])
    writer.operator("RESHAPE", [relu, target], [result])
    x = np.random.default_rng(1).integers(-128, 128, (3, 1, 4, 6), dtype=np.int8)
    check(writer.content([source], [result]), x)


def test_samples_of_a_batch_change_places() -> None:
    """Check that the compiler does not take the first dimension for samples if it is reversed."""
    writer = ModelWriter()
    tensors = [writer.tensor((4, 6), "int8", 0.1) for _ in range(2)]
    axis = writer.tensor((1,), "int32", data=np.array([0], np.int32))
    writer.operator("REVERSE_V2", [tensors[0], axis], tensors[1:])
    x = np.random.default_rng(1).integers(-128, 128, (3, 4, 6), dtype=np.int8)
    network = check(writer.content(tensors[:1], tensors[1:]), x)
    assert network.translation.repeat == 1


def test_padding_goes_into_the_window() -> None:
    rng = np.random.default_rng(1)
    writer = ModelWriter()
    source = writer.tensor((1, 20, 3), "int8", 0.02, 5)
    padded = writer.tensor((1, 24, 3), "int8", 0.02, 5)
    amounts = np.array([[0, 0], [4, 0], [0, 0]], np.int32)
    writer.operator("PAD", [source, writer.tensor((3, 2), "int32", data=amounts)], [padded])
    wide = writer.tensor((1, 1, 24, 3), "int8", 0.02, 5)
    axis = writer.tensor((), "int32", data=np.array(1, np.int32))
    writer.operator("EXPAND_DIMS", [padded, axis], [wide])
    result = writer.tensor((1, 1, 20, 8), "int8", 0.05)
    weights = rng.integers(-127, 128, (8, 1, 3, 3), dtype=np.int8)
    bias = np.zeros(8, np.int32)
    options = {"padding": 1, "strideH": 1, "strideW": 1, "dilationHFactor": 1}
    writer.weighted("CONV_2D", wide, result, weights, bias, 0.001, 0, dilationWFactor=2, **options)
    x = rng.integers(-128, 128, (3, 1, 20, 3), dtype=np.int8)
    network = check(writer.content([source], [result]), x)
    (stage,) = (stage for stage in network.stages if isinstance(stage, Operations))
    assert len([node for node in stage.nodes if "CONV_2D" in node.operator]) == 1
    assert not any("PAD" in node.operator for node in stage.nodes)


def test_time_first_moves_nothing() -> None:
    writer = ModelWriter()
    tensors = [writer.tensor(shape, "int8", 0.1) for shape in ((1, 5, 6), (1, 5, 6), (5, 1, 6))]
    order = writer.tensor((3,), "int32", data=np.array([1, 0, 2], np.int32))
    writer.operator("RELU", tensors[:1], tensors[1:2])
    writer.operator("TRANSPOSE", [tensors[1], order], tensors[2:])
    x = np.random.default_rng(1).integers(-128, 128, (3, 1, 5, 6), dtype=np.int8)
    network = check(writer.content(tensors[:1], tensors[2:]), x)
    hosts = [stage for stage in network.stages if isinstance(stage, HostStage)]
    assert all(isinstance(stage.function, View) for stage in hosts)


@pytest.mark.parametrize(("size", "host"), [(4, 0), (30, 1)])
def test_channels_become_pixels(size: int, host: int) -> None:
    """Check that the machine transposes a small map, and the host a large map."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, size, size), "int8", 0.1) for _ in range(3)]
    order = writer.tensor((3,), "int32", data=np.array([0, 2, 1], np.int32))
    writer.operator("RELU", tensors[:1], tensors[1:2])
    writer.operator("TRANSPOSE", [tensors[1], order], tensors[2:])
    x = np.random.default_rng(1).integers(-128, 128, (3, 1, size, size), dtype=np.int8)
    assert moved_by_host(check(writer.content(tensors[:1], tensors[2:]), x)) == host


def test_several_outputs() -> None:
    """Check a network of three outputs: a RELU's result, the result in float32, and a slice."""
    writer = ModelWriter()
    source, relu = (writer.tensor((1, 3, 8), "int8", scale) for scale in (0.1, 0.05))
    floats, half = writer.tensor((1, 3, 8), "float32"), writer.tensor((1, 3, 4), "int8", 0.05)
    writer.operator("RELU", [source], [relu])
    writer.operator("DEQUANTIZE", [relu], [floats])
    bounds = [
        writer.tensor((3,), "int32", data=np.array(values, np.int32))
        for values in ((0, 0, 7), (1, 3, -9), (1, 1, -2))
    ]
    writer.operator("STRIDED_SLICE", [relu, *bounds], [half], beginMask=0, endMask=4)
    x = np.random.default_rng(1).integers(-128, 128, (5, 1, 3, 8), dtype=np.int8)
    run = run_network(
        GoldenBackend(preset("small")),
        network_of(writer.content([source], [half, floats, relu])),
        x,
    )
    for y, result in zip(run.outputs, (half, floats, relu), strict=True):
        assert np.array_equal(y, interpret(writer.content([source], [result]), x))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([[0, 0], [1, 1]], "its pairs of numbers have shape"),
        ([[0, 0], [0, 0], [-1, 0]], "its padding does not fit"),
        ([[0, 0], [1, 0], [0, 0]], "its result should have the shape"),
    ],
)
def test_refusals(numbers: list[list[int]], message: str) -> None:
    writer = ModelWriter()
    tensors = [writer.tensor((1, 3, 8), "int8", 0.1) for _ in range(2)]
    data = np.array(numbers, np.int32)
    amounts = writer.tensor(data.shape, "int32", data=data)
    writer.operator("PAD", [tensors[0], amounts], tensors[1:])
    with pytest.raises(ModelError, match=rf"operator 0 \(PAD\): {message}"):
        network_of(writer.content(tensors[:1], tensors[1:]))


@pytest.mark.parametrize(
    ("dtype", "scale"), [("int16", (0.01, 0)), ("float32", ()), ("float32", (0.1, -32))]
)
def test_padding_of_other_types(dtype: str, scale: tuple[float, ...]) -> None:
    """Check that the host pads int16 and float32 tensors, with zeros.

    A float32 tensor may have a scale and a zero point, which mean nothing.
    """
    writer = ModelWriter()
    source, result = (writer.tensor(shape, dtype, *scale) for shape in ((1, 3, 4), (1, 6, 5)))
    sizes = writer.tensor((3, 2), "int32", data=np.array([[0, 0], [1, 2], [0, 1]], np.int32))
    writer.operator("PAD", [source, sizes], [result])
    content = writer.content([source], [result])
    x = np.random.default_rng(random_seed()).integers(-9999, 9999, (2, 1, 3, 4)).astype(dtype)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
