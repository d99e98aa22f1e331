# SPDX-License-Identifier: Apache-2.0
"""Tests of windows along sequences that are too long for one instruction, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from systola.arch.config import preset
from systola.compiler.operations import Convolution, Operations
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


def sequence_model(
    rng: np.random.Generator,
    kind: str,
    length: int,
    channels: int,
    taps: int,
    stride: int = 1,
    dilation: int = 1,
) -> bytes:
    """Return a model of a convolution or a pooling along a sequence, with random padding."""
    writer = ModelWriter()
    extent = (taps - 1) * dilation + 1
    same = bool(rng.integers(2)) or extent > length
    out = -(-length // stride) if same else (length - extent) // stride + 1
    zero_point = int(rng.integers(-128, 128))
    source = writer.tensor((1, length, channels), "int8", 0.02, zero_point)
    shape = (1, 1, length, channels)
    row = writer.tensor(shape, "int8", 0.02, zero_point)
    target = writer.tensor((4,), "int32", data=np.array(shape, np.int32))
    writer.operator("RESHAPE", [source, target], [row])
    options = {
        "padding": schema.Padding.SAME if same else schema.Padding.VALID,
        "strideH": 1,
        "strideW": stride,
    }
    if kind.endswith("POOL_2D"):
        result = writer.tensor((1, 1, out, channels), "int8", 0.02, zero_point)
        writer.operator(kind, [row], [result], filterHeight=1, filterWidth=taps, **options)
        return writer.content([source], [result])
    n = channels if kind == "DEPTHWISE_CONV_2D" else int(rng.integers(1, 9))
    result = writer.tensor((1, 1, out, n), "int8", 0.05, 3)
    if kind == "DEPTHWISE_CONV_2D":
        weights, axis = rng.integers(-127, 128, (1, 1, taps, n), dtype=np.int8), 3
        options["depthMultiplier"] = 1
    else:
        weights, axis = rng.integers(-127, 128, (n, 1, taps, channels), dtype=np.int8), 0
    bias = rng.integers(-500, 500, n, dtype=np.int32)
    options |= {"dilationHFactor": 1, "dilationWFactor": dilation}
    writer.weighted(kind, row, result, weights, bias, 0.002, axis, **options)
    return writer.content([source], [result])


def check(rng: np.random.Generator, content: bytes) -> None:
    network = network_of(content)
    x = rng.integers(-128, 128, (2, *network.inputs[0].shape), dtype=np.int8)
    run = run_network(GoldenBackend(preset("base")), network, x)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_taps_far_apart(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(20):
        dilation = int(rng.integers(16, 40))
        length = int(rng.choice([rng.integers(20, 300), dilation * rng.integers(2, 8)]))
        channels, taps = int(rng.choice([1, 5, 17])), int(rng.integers(1, 5))
        check(rng, sequence_model(rng, kind, length, channels, taps, dilation=dilation))


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_long_sequences(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(12):
        stride = int(rng.choice([1, 2, 4, 16]))
        length = int(rng.integers(4096, 9000)) // stride * stride + int(rng.integers(4) == 0)
        channels, taps = int(rng.integers(1, 4)), int(rng.integers(1, 20))
        check(rng, sequence_model(rng, kind, length, channels, taps, stride))


def test_pixels_between_windows_become_channels() -> None:
    rng = np.random.default_rng(1)
    network = network_of(sequence_model(rng, "CONV_2D", 8000, 1, 80, 16))
    (stage,) = (stage for stage in network.stages if isinstance(stage, Operations))
    (node,) = (node for node in stage.nodes if isinstance(node, Convolution))
    assert node.source.channels == 16
    assert node.window.stride == (1, 1)
