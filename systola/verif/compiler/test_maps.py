# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutional and recurrent networks on the golden model, against LiteRT."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Opcode
from systola.compiler.errors import CompileError
from systola.compiler.network import DeviceStage, compile_network
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.random_maps import KINDS, RandomMaps
from systola.verif.compiler.stored_networks import (
    CONVOLUTIONAL,
    RECURRENT,
    stored_model,
    stored_program,
    stored_samples,
)
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

STORED = (*CONVOLUTIONAL, *RECURRENT)
MACHINES = ("base", "small", "14x14", "6x10", "9x4", "2x2", "32x32")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", STORED)
def test_stored_outputs(name: str, machine: str) -> None:
    x, expected = stored_samples(name)
    run = run_network(GoldenBackend(preset(machine)), stored_model(name), x, batch=5)
    assert np.array_equal(run.y, expected)


@pytest.mark.parametrize("name", STORED)
def test_one_program(name: str) -> None:
    config = preset("small")
    image, check = stored_program(name, config, 2)
    check(GoldenBackend(config).run(image).host)
    with pytest.raises(AssertionError):
        check(image.host)


def cut_machine(rng: np.random.Generator) -> Config:
    """Return a machine so small that operations are cut, and weights loaded again and again."""
    rows, cols = (int(size) for size in rng.integers(2, 20, 2))
    return dataclasses.replace(
        preset(f"{rows}x{cols}"),
        accumulator_rows=2 * int(rng.integers(8, 40)),
        parameter_entries=int(rng.integers(25, 40)),
        tables=int(rng.integers(1, 3)),
        buffer_lines=int(rng.choice([4096, 65536])),
    )


def check_random(model: RandomMaps, config: Config) -> bool:
    """Check the results of a random network if it fits the machine; return whether it fits."""
    network = network_of(model.content)
    try:
        compile_network(config, network, 1)
    except CompileError:
        return False
    run = run_network(GoldenBackend(config), network, model.samples)
    expected = interpret(model.content, model.samples)
    assert np.array_equal(run.y, expected), config
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_single_operators(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    ran = 0
    for number in range(24):
        config = preset(str(rng.choice(MACHINES))) if number % 2 else cut_machine(rng)
        ran += check_random(RandomMaps(rng, (kind,), 1), config)
    assert ran >= 12


def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    ran = 0
    for number in range(60):
        config = preset(str(rng.choice(MACHINES))) if number % 2 else cut_machine(rng)
        ran += check_random(RandomMaps(rng, KINDS, int(rng.integers(2, 9))), config)
    assert ran >= 30


def test_two_inputs() -> None:
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    shapes = ((1, 3, 5, 11), (1, 1, 1, 11), (1, 3, 5, 11))
    scales = (0.05, 0.02, 0.06)
    a, b, result = (
        writer.tensor(shape, "int8", scale, int(rng.integers(-9, 10)))
        for shape, scale in zip(shapes, scales, strict=True)
    )
    writer.operator("SUB", [a, b], [result])
    content = writer.content([a, b], [result])
    inputs = [rng.integers(-128, 128, (4, *shape), dtype=np.int8) for shape in shapes[:2]]
    run = run_network(GoldenBackend(preset("small")), network_of(content), *inputs)
    assert np.array_equal(run.y, interpret(content, *inputs))


def test_many_inputs() -> None:
    """Check a network with more inputs than index registers: inputs of a size share a register."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    inputs = [writer.tensor((1, 6), "int8", 0.05, number) for number in range(9)]
    total = inputs[0]
    for other in inputs[1:]:
        total, parts = writer.tensor((1, 6), "int8", 0.1), [total, other]
        writer.operator("ADD", parts, [total])
    content = writer.content(inputs, [total])
    samples = [rng.integers(-128, 128, (5, 1, 6), dtype=np.int8) for _ in inputs]
    run = run_network(GoldenBackend(preset("small")), network_of(content), *samples, batch=3)
    assert np.array_equal(run.y, interpret(content, *samples))


def test_any_graph() -> None:
    """Check a network with a value that two operations take, and a result that nothing needs."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, 4), "int8", scale) for scale in (0.1, 0.2, 0.05)]
    for result in tensors[1:]:
        writer.operator("RELU", tensors[:1], [result])
    content = writer.content(tensors[:1], tensors[2:])
    x = np.arange(-128, 128, dtype=np.int8).reshape(64, 1, 4)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))


def test_many_bands() -> None:
    """Check a convolution that reads its weights again for each row of the result.

    There are more reads than may wait in the weight queue at one time.
    """
    rng = np.random.default_rng(random_seed())
    config = dataclasses.replace(preset("small"), accumulator_rows=12)
    for channels in (1, 2, 20):
        writer = ModelWriter()
        source = writer.tensor((1, 14, 12, channels), "int8", 0.02, 5)
        result = writer.tensor((1, 14, 12, 30), "int8", 0.05)
        weights = rng.integers(-127, 128, (30, 3, 5, channels), dtype=np.int8)
        bias = rng.integers(-900, 900, 30, dtype=np.int32)
        writer.weighted("CONV_2D", source, result, weights, bias, 0.001, 0, strideH=1, strideW=1)
        content = writer.content([source], [result])
        x = rng.integers(-128, 128, (2, 1, 14, 12, channels), dtype=np.int8)
        run = run_network(GoldenBackend(config), network_of(content), x)
        assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize(
    ("config", "kernel"),
    [
        (preset("tiny"), 3),
        (preset("small"), 9),
        (dataclasses.replace(preset("small"), depthwise=False), 3),
        (preset("small"), 3),
        (preset("base"), 3),
    ],
)
def test_depthwise_in_the_lanes_and_on_the_array(config: Config, kernel: int) -> None:
    """Check a depthwise convolution that the lanes and the array share, or the array makes alone.

    The array makes all rows if there are no lanes or too many taps, else only the lower rows.
    """
    rng = np.random.default_rng(random_seed())
    for stride, channels in ((1, 5), (2, 21)):
        out = -(-13 // stride)
        writer = ModelWriter()
        source = writer.tensor((1, 13, 13, channels), "int8", 0.02, 7)
        result = writer.tensor((1, out, out, channels), "int8", 0.04, -3)
        weights = rng.integers(-127, 128, (1, kernel, kernel, channels), dtype=np.int8)
        bias = rng.integers(-900, 900, channels, dtype=np.int32)
        scale = rng.uniform(0.001, 0.004, channels).astype(np.float32)
        writer.weighted(
            "DEPTHWISE_CONV_2D",
            source,
            result,
            weights,
            bias,
            scale,
            3,
            strideH=stride,
            strideW=stride,
            depthMultiplier=1,
        )
        content = writer.content([source], [result])
        x = rng.integers(-128, 128, (2, 1, 13, 13, channels), dtype=np.int8)
        network = network_of(content)
        run = run_network(GoldenBackend(config), network, x)
        assert np.array_equal(run.y, interpret(content, x))
        (stage,) = compile_network(config, network, 1).stages
        assert isinstance(stage, DeviceStage)
        opcodes = set(stage.program.image.program[::16])
        lanes = config.depthwise and kernel == 3
        assert (Opcode.DEPTHWISE in opcodes) == lanes
        assert Opcode.CONVOLVE in opcodes
