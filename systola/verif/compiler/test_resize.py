# SPDX-License-Identifier: Apache-2.0
"""Tests of RESIZE_BILINEAR to larger and smaller maps, with all its options."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.compiler.host_stage import HostStage, ResizeBilinear
from systola.compiler.network import Network
from systola.runtime import compile
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

OPTIONS = {"corner": {}, "align": {"alignCorners": True}, "half": {"halfPixelCenters": True}}
EXACT = [
    ((4, 5), (8, 10), "corner half"),
    ((3, 2), (12, 8), "corner half"),
    ((2, 3), (16, 24), "corner half"),
    ((2, 2), (32, 32), "corner half"),
    ((3, 4), (5, 7), "align"),
    ((3, 2), (17, 9), "align"),
    ((8, 6), (4, 3), "corner half"),
    ((9, 6), (3, 2), "corner half"),
    ((16, 8), (4, 2), "corner half"),
    ((9, 7), (5, 4), "align"),
    ((4, 8), (8, 4), "corner half"),
    ((4, 9), (16, 3), "corner half"),
    ((6, 4), (6, 8), "corner half"),
    ((6, 4), (12, 4), "corner half"),
    ((1, 1), (5, 3), "corner align half"),
    ((1, 1), (2, 200), "corner align half"),
    ((1, 3), (4, 6), "corner half"),
    ((3, 1), (6, 5), "corner half"),
    ((5, 7), (5, 7), "corner align half"),
    ((4, 4), (1, 1), "corner half"),
]
"""Cases that the machine itself resizes: size of the map, size of the result, and options."""
ON_HOST = [
    ((4, 5), (7, 3), "columns of"),
    ((1, 6), (3, 4), "columns of"),
    ((3, 4), (17, 8), "with weights up to"),
    ((3, 2), (7, 31), "columns of"),
    ((257, 1), (514, 1), "at most 256"),
]
"""Cases that the host resizes, with half-pixel centres: sizes of map and result, and the reason.

The reason is a part of the compiler's message.
"""


def resizing(
    size: tuple[int, int], out: tuple[int, int], channels: int, options: dict[str, bool]
) -> bytes:
    writer = ModelWriter()
    tensors = [writer.tensor((1, *each, channels), "int8", 0.1, 7) for each in (size, out)]
    wanted = writer.tensor((2,), "int32", data=np.array(out, np.int32))
    writer.operator("RESIZE_BILINEAR", [tensors[0], wanted], tensors[1:], **options)
    return writer.content(tensors[:1], tensors[1:])


def samples(size: tuple[int, int], channels: int) -> NDArray[np.int8]:
    """Return maps of random codes, of extreme codes, and of small codes with many ties."""
    rng = np.random.default_rng(random_seed())
    shape = (1, *size, channels)
    any_codes = rng.integers(-128, 128, (2, *shape), np.int8)
    extremes = rng.choice(np.array([-128, 127], np.int8), (2, *shape))
    near = rng.integers(-3, 4, (2, *shape), np.int8)
    return np.concatenate([any_codes, extremes, near])


def on_host(network: Network) -> bool:
    stages = (stage for stage in network.stages if isinstance(stage, HostStage))
    return any(isinstance(stage.function, ResizeBilinear) for stage in stages)


@pytest.mark.parametrize(
    ("channels", "machine"),
    [
        (21, "small"),
        pytest.param(1, "base", marks=pytest.mark.thorough),
        pytest.param(3, "14x14", marks=pytest.mark.thorough),
        pytest.param(16, "base", marks=pytest.mark.thorough),
        pytest.param(40, "small", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(
    ("size", "out", "kind"),
    [(size, out, kind) for size, out, kinds in EXACT for kind in kinds.split()],
)
def test_on_the_machine(
    size: tuple[int, int], out: tuple[int, int], kind: str, channels: int, machine: str
) -> None:
    content = resizing(size, out, channels, OPTIONS[kind])
    network = network_of(content)
    assert not on_host(network)
    assert network.macs == 0
    x = samples(size, channels)
    run = run_network(GoldenBackend(preset(machine)), network, x, batch=1)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize(("size", "out", "why"), ON_HOST)
def test_on_the_host(size: tuple[int, int], out: tuple[int, int], why: str, kind: str) -> None:
    content = resizing(size, out, 3, OPTIONS[kind])
    x = samples(size, 3)
    model = compile(content, preset="small")
    assert np.array_equal(model.run(x, backend="iss").y, interpret(content, x))
    if kind == "half":
        (place,) = model.placement
        assert why in place.reason
        assert on_host(network_of(content))


@pytest.mark.parametrize("samples_at_once", [1, 3])
def test_between_convolutions(samples_at_once: int) -> None:
    """Check a RESIZE_BILINEAR between two convolutions."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    shapes = [(1, 6, 5, 3), (1, 6, 5, 20), (1, 12, 10, 20), (1, 12, 10, 6)]
    scales = [(0.05, 3), (0.1, -7), (0.1, -7), (0.3, 20)]
    first, narrow, large, last = (
        writer.tensor(shape, "int8", *scale) for shape, scale in zip(shapes, scales, strict=True)
    )
    for source, result, shape in ((first, narrow, (20, 3, 3, 3)), (large, last, (6, 3, 3, 20))):
        weights = rng.integers(-127, 128, shape, dtype=np.int8)
        bias = rng.integers(-900, 900, shape[0], dtype=np.int32)
        writer.weighted(
            "CONV_2D",
            source,
            result,
            weights,
            bias,
            np.full(shape[0], 0.005, np.float32),
            0,
            strideH=1,
            strideW=1,
        )
        if source == first:
            wanted = writer.tensor((2,), "int32", data=np.array(shapes[2][1:3], np.int32))
            writer.operator("RESIZE_BILINEAR", [narrow, wanted], [large], halfPixelCenters=True)
    content = writer.content([first], [last])
    network = network_of(content)
    assert len(network.stages) == 1
    x = rng.integers(-128, 128, (3, *shapes[0]), np.int8)
    run = run_network(GoldenBackend(preset("base")), network, x, batch=samples_at_once)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("size", "out", "kind"), [((3, 4), (6, 8), "half"), ((6, 4), (3, 8), "corner")]
)
def test_on_rtl(size: tuple[int, int], out: tuple[int, int], kind: str) -> None:
    content = resizing(size, out, 5, OPTIONS[kind])
    x = samples(size, 5)
    run = run_network(RtlBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
