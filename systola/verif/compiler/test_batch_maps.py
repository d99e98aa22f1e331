# SPDX-License-Identifier: Apache-2.0
"""Tests of operations on the windows of maps for many samples at a time, against LiteRT."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, decode
from systola.compiler.errors import CompileError
from systola.compiler.lower.batching import batched_nodes
from systola.compiler.lower.compile_operations import compile_operations
from systola.compiler.operations import (
    Convolution,
    Operations,
    Pooling,
    Slice,
    Value,
    Window,
    scalar_requantisation,
)
from systola.runtime.iss import GoldenBackend
from systola.timing.estimate import estimate
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

BATCHES = (2, 5, 15, 16, 33)
"""Numbers of samples in a batch.

In the buffer, row y of all samples comes before row y + 1. So the rows of a sample are as many rows
apart as there are samples. A Convolve can have a dilation of up to 15, enough for 15 samples. In
larger batches each row of a window takes a Convolve of its own.
"""


class Maps:
    """A writer of a model that is a chain of operations on maps."""

    def __init__(self, rng: np.random.Generator, size: int, channels: int) -> None:
        self.rng, self.writer = rng, ModelWriter()
        self.shape = (size, size, channels)
        self.first = self.last = self.writer.tensor((1, *self.shape), "int8", 0.02, 3)

    def convolution(self, kernel: int, channels: int, *, stride_w: int = 1, dilation: int = 1):
        height, width, inputs = self.shape
        out = (height, -(-width // stride_w), channels)
        result = self.writer.tensor((1, *out), "int8", 0.02, -7)
        shape = (channels, kernel, kernel, inputs)
        weights = self.rng.integers(-127, 128, shape, dtype=np.int8)
        bias = self.rng.integers(-900, 900, channels, dtype=np.int32)
        self.writer.weighted(
            "CONV_2D",
            self.last,
            result,
            weights,
            bias,
            float(np.float32(0.007 / np.sqrt(kernel * kernel * inputs))),
            0,
            padding=0,
            strideH=1,
            strideW=stride_w,
            dilationHFactor=dilation,
            dilationWFactor=dilation,
        )
        self.last, self.shape = result, out
        return self

    def pool(self, kind: str, size: int, stride: int, *, padding: int = 0):
        height, width, channels = self.shape
        if padding == 0:
            out = (-(-height // stride), -(-width // stride), channels)
        else:
            out = ((height - size) // stride + 1, (width - size) // stride + 1, channels)
        result = self.writer.tensor((1, *out), "int8", 0.02, -7)
        options = {"filterHeight": size, "filterWidth": size}
        self.writer.operator(
            kind, [self.last], [result], padding=padding, strideH=stride, strideW=stride, **options
        )
        self.last, self.shape = result, out
        return self

    def dense(self, results: int):
        k = int(np.prod(self.shape))
        flat = self.writer.tensor((1, k), "int8", 0.02, -7)
        shape = self.writer.tensor((2,), "int32", data=np.array([1, k], np.int32))
        self.writer.operator("RESHAPE", [self.last, shape], [flat])
        dense = self.writer.tensor((1, results), "int8", 0.04, 11)
        weights = self.rng.integers(-127, 128, (results, k), dtype=np.int8)
        self.writer.fully_connected(
            flat, dense, weights, None, float(np.float32(0.014 / np.sqrt(k)))
        )
        self.last = dense
        return self

    def content(self) -> bytes:
        return self.writer.content([self.first], [self.last])


def operations_of(content: bytes) -> Operations:
    (operations,) = (s for s in network_of(content).stages if isinstance(s, Operations))
    return operations


def all_together(config: Config, content: bytes) -> bool:
    operations = operations_of(content)
    return operations.nodes in batched_nodes(config, operations)


def check(content: bytes, x: NDArray[np.int8], config: Config) -> None:
    run = run_network(GoldenBackend(config), network_of(content), x, batch=len(x))
    assert np.array_equal(run.y, interpret(content, x)), config.name


MODELS = {
    "3x3, 5x5": lambda maps: maps.convolution(3, 19).convolution(5, 9).dense(7),
    "stride along rows": lambda maps: maps.convolution(3, 9, stride_w=2).convolution(1, 5),
    "dilation": lambda maps: maps.convolution(3, 8, dilation=2).dense(20),
    "largest, stride 1": lambda maps: maps.convolution(1, 9).pool("MAX_POOL_2D", 3, 1).dense(7),
    "largest, stride 2": lambda maps: maps.convolution(3, 18).pool("MAX_POOL_2D", 3, 2).dense(7),
    "largest, no padding": lambda maps: (
        maps.convolution(3, 9).pool("MAX_POOL_2D", 2, 2, padding=1).convolution(3, 20)
    ),
    "average of all": lambda maps: (
        maps.convolution(3, 9).pool("AVERAGE_POOL_2D", 3, 3, padding=1).dense(7)
    ),
    "a channel each": lambda maps: maps.convolution(3, 9).convolution(1, 1),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("machine", ["base", "16x10", "32x32"])
def test_models(name: str, machine: str) -> None:
    rng = np.random.default_rng(random_seed())
    content = MODELS[name](Maps(rng, 3, 5)).content()
    config = preset(machine)
    assert all_together(config, content)
    for batch in BATCHES:
        x = rng.integers(-128, 128, (batch, 1, 3, 3, 5), dtype=np.int8)
        check(content, x, config)


def test_batches_take_fewer_tiles() -> None:
    """Check that a batch of sixteen samples reads no more weights than a single sample."""
    content = Maps(np.random.default_rng(1), 3, 16).convolution(3, 16).convolution(3, 16).content()
    operations, config = operations_of(content), preset("base")
    one, many = (
        estimate(config, compile_operations(config, operations, samples).image)
        for samples in (1, 16)
    )
    assert many.traffic.weights == one.traffic.weights
    passes = 16 * 9 * 18
    assert passes < many.cycles < 1.1 * passes


def test_average_over_edges_stays_out_of_large_batches() -> None:
    """Check average poolings with windows that reach over the edges of maps.

    A large batch would need two instructions, along rows and columns. These cannot divide by the
    number of taps inside the map, so a large batch runs such a pooling sample by sample.
    """
    rng = np.random.default_rng(random_seed())
    content = Maps(rng, 3, 5).convolution(3, 9).pool("AVERAGE_POOL_2D", 3, 2).dense(7).content()
    for batch in BATCHES:
        x = rng.integers(-128, 128, (batch, 1, 3, 3, 5), dtype=np.int8)
        check(content, x, preset("base"))


def opcodes(program: bytes) -> list[Opcode]:
    found: list[Opcode] = []
    for at in range(0, len(program), INSTRUCTION_BYTES):
        instruction = decode(program[at : at + INSTRUCTION_BYTES])
        assert instruction is not None
        found.append(instruction[0].opcode)
    return found


def test_lines_on_their_way_out() -> None:
    """Check the number of bytes that are written to host memory for a result of one channel.

    Four pixels side by side share a line of 16 bytes. Alone, each pixel would take 16 bytes.
    """
    config = dataclasses.replace(preset("base"), host_bus_bytes=4)
    content = Maps(np.random.default_rng(1), 4, 5).convolution(1, 1).content()
    program = compile_operations(config, operations_of(content), 1)
    assert estimate(config, program.image).traffic.host_out == 4 * 4 * 16 / 4


def branched(rng: np.random.Generator, axis: int = 3) -> Operations:
    """Return a network that joins two branches of a map: a pooling, and two convolutions."""
    writer = ModelWriter()
    shape = (1, 3, 3, 16)
    source = writer.tensor(shape, "int8", 0.02, 3)
    maps = [writer.tensor(shape, "int8", 0.02, 3) for _ in range(5)]
    for before, after, kernel in (
        (source, maps[0], 1),
        (maps[0], maps[1], 3),
        (maps[1], maps[2], 3),
    ):
        weights = rng.integers(-127, 128, (16, kernel, kernel, 16), dtype=np.int8)
        bias = rng.integers(-900, 900, 16, dtype=np.int32)
        writer.weighted("CONV_2D", before, after, weights, bias, 5e-5, 0, strideH=1, strideW=1)
    window = {"filterHeight": 3, "filterWidth": 3, "strideH": 1, "strideW": 1}
    writer.operator("MAX_POOL_2D", [maps[0]], [maps[3]], padding=0, **window)
    both = writer.tensor((1, 6, 3, 16) if axis == 1 else (1, 3, 3, 32), "int8", 0.02, 3)
    writer.operator("CONCATENATION", [maps[2], maps[3]], [both], axis=axis)
    return operations_of(writer.content([source], [both]))


def test_poolings_beside_convolutions() -> None:
    """Check that a batch runs a pooling before the convolutions that hide its time.

    A single sample keeps the order of the model.
    """
    operations = branched(np.random.default_rng(1))
    kinds = [type(node) for node in operations.nodes]
    assert kinds.index(Pooling) > max(i for i, kind in enumerate(kinds) if kind is Convolution)
    for samples, before in ((1, False), (16, True)):
        program = compile_operations(preset("base"), operations, samples).image.program
        order = opcodes(program)
        last = len(order) - 1 - order[::-1].index(Opcode.CONVOLVE)
        assert (order.index(Opcode.POOL) < last) == before


@pytest.mark.parametrize("samples", [1, 16])
def test_parts_are_made_in_their_place(samples: int) -> None:
    """Check that operations write their results straight into a concatenation of rows.

    No copy is needed if only the concatenation takes the results.
    """
    operations = branched(np.random.default_rng(1), axis=1)
    program = compile_operations(preset("base"), operations, samples).image.program
    assert Opcode.VECTOR not in opcodes(program)


def test_parameters_come_when_they_are_needed() -> None:
    """Check that a program loads the parameters of each layer when the layer needs them.

    The first layer's parameters come before the program's input. After the input, their load would
    have to wait until the whole input has arrived. The second layer's parameters come after the
    input.
    """
    content = Maps(np.random.default_rng(1), 3, 5).convolution(3, 9).convolution(3, 9).content()
    order = opcodes(compile_operations(preset("base"), operations_of(content), 2).image.program)
    loads = [at for at, opcode in enumerate(order) if opcode == Opcode.LOAD_PARAMETERS]
    reads = (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
    assert loads[0] < min(at for at, opcode in enumerate(order) if opcode in reads) < loads[1]
    assert order.index(Opcode.ACTIVATE) < loads[1]


def test_what_does_not_fit_together_is_calculated_alone() -> None:
    """Check that samples that the buffer cannot hold at once are run in smaller batches."""
    rng = np.random.default_rng(random_seed())
    content = Maps(rng, 3, 5).convolution(3, 9).convolution(3, 9).dense(7).content()
    x = rng.integers(-128, 128, (33, 1, 3, 3, 5), dtype=np.int8)
    for lines in (1024, 256, 64):
        config = dataclasses.replace(preset("small"), buffer_lines=lines)
        try:
            check(content, x, config)
        except CompileError:
            assert lines < 256


def test_pixels_of_a_row_put_together() -> None:
    """Check two maps of one pixel that are joined to a row of two pixels, in batches.

    In a batch, pixels of other samples would lie between the two pixels of a sample.
    """
    rng = np.random.default_rng(random_seed())
    maps = Maps(rng, 1, 5)
    parts = [Maps.convolution(maps, 1, 9).last, Maps.convolution(maps, 1, 9).last]
    both = maps.writer.tensor((1, 1, 2, 9), "int8", 0.02, -7)
    maps.writer.operator("CONCATENATION", parts, [both], axis=2)
    maps.last, maps.shape = both, (1, 2, 9)
    content = maps.convolution(1, 7).content()
    for batch in BATCHES:
        x = rng.integers(-128, 128, (batch, 1, 1, 1, 5), dtype=np.int8)
        check(content, x, preset("base"))


def test_rows_that_are_no_map_any_more() -> None:
    """Check a slice of a matrix with a row for each pixel of a convolution: some rows are cut off.

    Each sample of a batch must have the results that it has alone.
    """
    rng = np.random.default_rng(random_seed())
    source, rows, part = Value("x", (1, 1, 7, 16)), Value("rows", (7, 8)), Value("part", (4, 8))
    output = scalar_requantisation(1 << 30, -8)
    convolution = Convolution(
        operator="convolution",
        result=rows,
        source=source,
        weights=rng.integers(-127, 128, (1, 1, 16, 8), dtype=np.int8),
        window=Window(kernel=(1, 1), out=(1, 7)),
        fill=0,
        output=output,
    )
    cut = Slice(operator="slice", result=part, source=rows, axis=0, start=2)
    operations = Operations((source,), (part,), (convolution, cut))
    config = preset("base")
    x = rng.integers(-128, 128, (5, 1, 1, 7, 16), dtype=np.int8)

    def results(samples: NDArray[np.int8]) -> NDArray[np.int8]:
        program = compile_operations(config, operations, len(samples))
        return program.result(GoldenBackend(config).run(program.bind(samples)).host)

    assert np.array_equal(results(x), np.concatenate([results(x[n : n + 1]) for n in range(5)]))
