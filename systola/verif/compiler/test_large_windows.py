# SPDX-License-Identifier: Apache-2.0
"""Tests of windows that are larger than one instruction allows, or have many taps."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import CompileError
from systola.compiler.host_stage import HostStage
from systola.compiler.network import compile_network
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SAME, VALID = 0, 1


def check(content: bytes, shape: tuple[int, ...], machine: str = "base", batch: int = 2) -> None:
    """Run a model on random samples; compare golden model and interpreter byte by byte."""
    x = np.random.default_rng(random_seed()).integers(-128, 128, (3, *shape), np.int8)
    run = run_network(GoldenBackend(preset(machine)), network_of(content), x, batch=batch)
    assert np.array_equal(run.y, interpret(content, x))


def pool(
    kind: str,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    activation: int = 0,
) -> bytes:
    out = [
        -(-size // step) if padding == SAME else (size - taps) // step + 1
        for size, taps, step in zip(shape[1:3], kernel, stride, strict=True)
    ]
    writer = ModelWriter()
    tensors = [writer.tensor(each, "int8", 0.05, 3) for each in (shape, (1, *out, shape[3]))]
    writer.operator(
        kind,
        tensors[:1],
        tensors[1:],
        padding=padding,
        strideH=stride[0],
        strideW=stride[1],
        filterHeight=kernel[0],
        filterWidth=kernel[1],
        fusedActivationFunction=activation,
    )
    return writer.content(tensors[:1], tensors[1:])


@pytest.mark.parametrize(
    ("kind", "shape", "kernel", "stride", "padding"),
    [
        ("AVERAGE_POOL_2D", (1, 1, 300, 3), (1, 300), (1, 300), VALID),
        ("MAX_POOL_2D", (1, 300, 1, 3), (300, 1), (300, 1), VALID),
        # A window of 257 pixels, a prime number, cannot become a rectangle with shorter sides.
        ("AVERAGE_POOL_2D", (1, 1, 257, 3), (1, 257), (1, 1), VALID),
        ("AVERAGE_POOL_2D", (1, 1, 600, 3), (1, 300), (1, 100), VALID),
        ("AVERAGE_POOL_2D", (1, 12, 12, 3), (9, 9), (1, 1), SAME),
        ("AVERAGE_POOL_2D", (1, 12, 13, 3), (9, 10), (2, 3), SAME),
        ("AVERAGE_POOL_2D", (1, 65, 65, 4), (65, 65), (1, 1), SAME),
        ("AVERAGE_POOL_2D", (1, 5, 300, 2), (3, 290), (2, 7), SAME),
    ],
)
@pytest.mark.parametrize("activation", [0, 1])
def test_pools(
    kind: str,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    activation: int,
) -> None:
    check(pool(kind, shape, kernel, stride, padding, activation), shape)


@pytest.mark.parametrize(("size", "host"), [(12, False), (65, True)])
def test_place_of_averages_over_the_edge(size: int, host: bool) -> None:
    """Check that average poolings over the edge of a map run on the host if the map is large.

    On a large map they would take too many instructions, on a small map few suffice.
    """
    shape = (1, size, size, 4)
    network = network_of(pool("AVERAGE_POOL_2D", shape, (9, 9), (1, 1), SAME))
    stages = compile_network(preset("base"), network, 1).stages
    assert [isinstance(stage, HostStage) for stage in stages] == [host]


@pytest.mark.parametrize(("kind", "size"), [("MEAN", 257), ("MEAN", 300), ("REDUCE_MAX", 300)])
def test_reductions(kind: str, size: int) -> None:
    writer = ModelWriter()
    shapes = (1, size, 5), (1, 5)
    tensors = [writer.tensor(shape, "int8", 0.05, 3) for shape in shapes]
    axes = writer.tensor((1,), "int32", data=np.array([1], np.int32))
    writer.operator(kind, [tensors[0], axes], tensors[1:])
    check(writer.content(tensors[:1], tensors[1:]), shapes[0])


SEQUENCES = [
    ((1, 1, 256, 2), (1, 256), (1, 1), VALID),
    ((1, 1, 400, 2), (1, 300), (1, 1), VALID),
    ((1, 1, 1200, 2), (1, 1000), (1, 3), VALID),
    ((1, 1, 700, 2), (1, 600), (1, 2), SAME),
]
MAPS = [
    ((1, 3, 700, 2), (2, 600), (1, 2), VALID),
    ((1, 300, 2, 20), (270, 2), (1, 1), SAME),
    ((1, 2, 1500, 1), (1, 2), (1, 1), SAME),
]


@pytest.mark.parametrize(
    ("kind", "shape", "kernel", "stride", "padding"),
    [
        *(("CONV_2D", *each) for each in (*SEQUENCES, *MAPS)),
        *(("DEPTHWISE_CONV_2D", *each) for each in SEQUENCES),
    ],
)
def test_convolutions(
    kind: str,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
) -> None:
    rng = np.random.default_rng(random_seed())
    channels = 3 if kind == "CONV_2D" else shape[3]
    out = [
        -(-size // step) if padding == SAME else (size - taps) // step + 1
        for size, taps, step in zip(shape[1:3], kernel, stride, strict=True)
    ]
    writer = ModelWriter()
    source = writer.tensor(shape, "int8", 0.05, 3)
    result = writer.tensor((1, *out, channels), "int8", 0.4, -3)
    sizes = (channels, *kernel, shape[3]) if kind == "CONV_2D" else (1, *kernel, channels)
    weights = rng.integers(-127, 128, sizes, np.int8)
    bias = rng.integers(-900, 900, channels, np.int32)
    scales = rng.uniform(0.002, 0.004, channels).astype(np.float32)
    axis = 0 if kind == "CONV_2D" else 3
    options = {"padding": padding, "strideH": stride[0], "strideW": stride[1]}
    if axis:
        options["depthMultiplier"] = 1
    writer.weighted(kind, source, result, weights, bias, scales, axis, **options)
    check(writer.content([source], [result]), shape)


@pytest.mark.parametrize(
    ("shape", "inputs"),
    [((1, 1, 300, 1), 300), ((1, 256, 2), 512), ((1, 1, 1200, 3), 3600), ((1, 600, 2), 600)],
)
@pytest.mark.parametrize("batch", [1, 4])
def test_dense_layer_over_many_pixels(shape: tuple[int, ...], inputs: int, batch: int) -> None:
    """Check a dense layer that takes many pixels of a map as one row of inputs, or as several."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    source, active = (writer.tensor(shape, "int8", 0.05, 3) for _ in range(2))
    writer.operator("RELU", [source], [active])
    rows = int(np.prod(shape)) // inputs
    result = writer.tensor((rows, 4), "int8", 2.0, -3)
    weights = rng.integers(-127, 128, (4, inputs), np.int8)
    bias = rng.integers(-900, 900, 4, np.int32)
    writer.weighted("FULLY_CONNECTED", source, result, weights, bias, 0.01, 0)
    check(writer.content([source], [result]), shape, batch=batch)


def test_more_channels_than_an_instruction_takes() -> None:
    """Check the error for a layer with more channels than an instruction takes.

    The message names the layer, and a preset that has wider blocks.
    """
    writer = ModelWriter()
    channels = 4096 * preset("8x8").cols
    source = writer.tensor((1, 1, 1, 2), "int8", 0.1)
    result = writer.tensor((1, 1, 1, channels), "int8", 0.1)
    weights = np.ones((channels, 1, 1, 2), np.int8)
    writer.weighted("CONV_2D", source, result, weights, None, 0.01, 0, strideH=1, strideW=1)
    with pytest.raises(CompileError, match=r"operator 0 \(CONV_2D\).*4096 blocks.*'base'"):
        compile_network(preset("8x8"), network_of(writer.content([source], [result])), 1)
