# SPDX-License-Identifier: Apache-2.0
"""Tests of networks that are larger than the unified buffer, against the reference interpreter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.compiler.errors import CompileError
from systola.compiler.lower.bands import Band, cut, needed, window_of
from systola.compiler.network import CompiledNetwork, DeviceStage, Network, compile_network
from systola.compiler.operations import Window
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.random_maps import KINDS, RandomMaps
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, stored_model, stored_samples
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


def spilled(compiled: CompiledNetwork) -> dict[str, int]:
    """Return the names of the values that a network keeps in host memory, each with its bytes."""
    programs = (stage.program for stage in compiled.stages if isinstance(stage, DeviceStage))
    return {name: size for program in programs for name, size in program.spilled.items()}


@pytest.mark.parametrize("lines", [160, 200, 256])
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_stored_networks(name: str, lines: int) -> None:
    network = stored_model(name)
    config = dataclasses.replace(preset("small"), buffer_lines=lines)
    x, expected = (array[:4] for array in stored_samples(name))
    assert spilled(compile_network(config, network, 4))
    assert np.array_equal(run_network(GoldenBackend(config), network, x).y, expected)


def tight_machine(rng: np.random.Generator) -> Config:
    """Return a random machine with a very small unified buffer."""
    rows, cols = (int(size) for size in rng.integers(2, 20, 2))
    return dataclasses.replace(
        preset(f"{rows}x{cols}"),
        accumulator_rows=2 * int(rng.integers(8, 60)),
        buffer_lines=4 * int(rng.integers(8, 100)),
        tables=int(rng.integers(1, 3)),
    )


def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    ran = 0
    for _ in range(1000):  # About one network in ten has values in host memory.
        model, config = RandomMaps(rng, KINDS, int(rng.integers(1, 9))), tight_machine(rng)
        network = network_of(model.content)
        try:
            compiled = compile_network(config, network, 1)
        except CompileError:
            continue
        if spilled(compiled):
            run = run_network(GoldenBackend(config), network, model.samples)
            assert np.array_equal(run.y, interpret(model.content, model.samples)), config
            ran += 1
        if ran == 12:
            break
    assert ran == 12


def convolution_and_sum(rng: np.random.Generator) -> Network:
    """Return a network that adds a 3 x 3 convolution of 20 x 20 x 8 values to its input."""
    writer = ModelWriter()
    shape = (1, 20, 20, 8)
    source, inner, result = (writer.tensor(shape, "int8", scale) for scale in (0.1, 0.2, 0.3))
    weights = rng.integers(-127, 128, (8, 3, 3, 8), dtype=np.int8)
    bias = np.zeros(8, np.int32)
    writer.weighted("CONV_2D", source, inner, weights, bias, 0.001, 0, strideH=1, strideW=1)
    writer.operator("ADD", [source, inner], [result])
    return network_of(writer.content([source], [result]))


def test_no_more_than_must() -> None:
    """Check that the compiler moves no more values to host memory than the buffer requires.

    Up to three maps of 400 lines are in use at a time. If the buffer is too small, the network's
    input and output leave it before any other value.
    """
    network = convolution_and_sum(np.random.default_rng(random_seed()))
    sizes: list[int] = []
    for lines, count in ((1200, 0), (1000, 0), (800, 1), (200, 1)):
        config = dataclasses.replace(preset("small"), buffer_lines=lines)
        compiled = compile_network(config, network, 1)
        values = spilled(compiled)
        assert list(values.values()) == [400 * 8] * count, lines
        (stage,) = compiled.stages
        assert isinstance(stage, DeviceStage)
        sizes.append(len(stage.program.image.program))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1]


def test_bands_load_only_what_they_need() -> None:
    """Check that a band (some rows of a convolution's result) loads only the rows that it needs."""
    window = Window(kernel=(3, 3), stride=(2, 1), first=(-1, -1), out=(10, 20))
    bands = [needed(window, 20, band) for band in cut(10, 3)]
    assert bands == [Band(0, 8), Band(7, 9), Band(15, 5)]
    assert [window_of(window, band, 0).first[0] for band in cut(10, 3)] == [-1, 7, 15]
    above = Window(kernel=(1, 1), first=(-5, 0), out=(4, 1))
    assert needed(above, 20, Band(0, 4)) == Band(0, 1)
