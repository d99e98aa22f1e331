# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice of operations for many samples at a time, and of their results."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, decode
from systola.compiler.errors import CompileError
from systola.compiler.lower import batching
from systola.compiler.lower.batching import batch_sizes, batched_nodes, sample_order
from systola.compiler.lower.compile_operations import compile_operations
from systola.compiler.network import Network, compile_network
from systola.compiler.operations import Operations, Reshape
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.lstm_operator import add_lstm
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.random_maps import KINDS, RandomMaps
from systola.verif.compiler.random_sequences import RandomSequences
from systola.verif.compiler.stored_networks import (
    CONVOLUTIONAL,
    RECURRENT,
    stored_model,
    stored_samples,
)
from systola.verif.compiler.test_lstm import lstm_model
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

STORED = (*CONVOLUTIONAL, *RECURRENT)
MACHINES = ("base", "small", "6x10", "9x4", "2x2", "32x32")
BATCHES = (1, 2, 5, 16, 17, 33)
BASE = preset("base")


def operations_of(network: Network) -> Operations:
    (operations,) = (stage for stage in network.stages if isinstance(stage, Operations))
    return operations


def kinds_together(network: Network, config: Config | None = None) -> list[str]:
    """Return the kinds of operations that a network runs for a batch at once, without Reshapes."""
    stages = [stage for stage in network.stages if isinstance(stage, Operations)]
    choices = (batched_nodes(config or BASE, each) for each in stages)
    nodes = [node for choice in choices if choice for node in choice[0]]
    return [type(node).__name__ for node in nodes if not isinstance(node, Reshape)]


def check(content: bytes, x: NDArray[np.int8], config: Config, batch: int) -> None:
    run = run_network(GoldenBackend(config), network_of(content), x, batch=batch)
    assert np.array_equal(run.y, interpret(content, x)), (config, batch)


def test_what_is_batched() -> None:
    for name in RECURRENT:
        network = stored_model(name)
        nodes = operations_of(network).nodes
        assert batched_nodes(BASE, operations_of(network)) == [nodes]
    assert kinds_together(stored_model("cnn_s2_valid5_same3_1x1")) == ["Product"]
    # The operations after the depthwise convolution are batched. The maps there have fewer pixels
    # than a tile of weights takes cycles to arrive.
    assert kinds_together(stored_model("cnn_residual_dw_pool")) == [
        "Convolution",
        "Pooling",
        "Product",
    ]
    # The first tanh is not batched: sample by sample, it takes no longer, and needs less room.
    content = flat_model(np.random.default_rng(1), 3, 4, 5, stride=2)
    assert kinds_together(network_of(content)) == ["Product", "Unary"]
    # In a batch, rows of the samples alternate. A convolution can use such rows if its windows move
    # by one row.
    content = flat_model(np.random.default_rng(1), 3, 4, 5)
    assert kinds_together(network_of(content)) == ["Convolution", "Unary", "Product", "Unary"]


@pytest.mark.parametrize("machine", [thorough("base"), thorough("6x10"), "2x2"])
@pytest.mark.parametrize(
    "name", [thorough(name) if name == "lstm_digits_rows_k2" else name for name in STORED]
)
def test_stored_networks(name: str, machine: str) -> None:
    network = stored_model(name)
    x, expected = stored_samples(name)
    order = np.arange(33) % len(x)
    for batch in BATCHES:
        run = run_network(GoldenBackend(preset(machine)), network, x[order], batch=batch)
        assert np.array_equal(run.y, expected[order]), batch


def test_batches_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check more samples than a batch may have, so that the first batch is not full."""
    monkeypatch.setattr(batching, "largest_batch", lambda config: 4)
    for name in STORED:
        x, expected = stored_samples(name)
        for samples in (3, 4, 5, 9, 13):
            order = np.arange(samples) % len(x)
            run = run_network(GoldenBackend(preset("small")), stored_model(name), x[order])
            assert np.array_equal(run.y, expected[order]), (name, samples)


def test_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "largest_batch", lambda config: 8)
    assert batch_sizes(BASE, 1) == []
    assert batch_sizes(BASE, 3) == [3, 2]
    assert batch_sizes(BASE, 8) == [8, 4, 2]
    assert batch_sizes(BASE, 9) == [5, 3, 2]
    assert batch_sizes(BASE, 33) == [7, 4, 2]


def test_order() -> None:
    """Check the order in which the rows of samples lie in batches of several shapes.

    In the first case there are five samples of two rows each, in batches of three samples. The
    first batch is not full: its first place stays empty, and sample 0 takes the second place.
    """
    assert sample_order(2, 3, 5).tolist() == [1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert sample_order(3, 1, 2).tolist() == [0, 1, 2, 3, 4, 5]
    # Each sample has two rows of two pixels. A batch has the first row of all samples, then the
    # second row of all.
    assert sample_order(4, 3, 2, 2).tolist() == [2, 3, 8, 9, 4, 5, 10, 11]


@pytest.mark.thorough
def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    ran = batched = 0
    kinds = (*KINDS, "fully_connected", "fully_connected", "fully_connected")
    for _ in range(120):
        samples = int(rng.choice(BATCHES))
        model = RandomMaps(rng, kinds, int(rng.integers(2, 9)), samples)
        config = preset(str(rng.choice(MACHINES)))
        if rng.integers(2):
            config = dataclasses.replace(
                config,
                buffer_lines=int(rng.choice([1024, 4096])),
                accumulator_rows=2 * int(rng.integers(8, 40)),
                parameter_entries=int(rng.integers(25, 40)),
            )
        network = network_of(model.content)
        try:
            compile_network(config, network, 1)
        except CompileError:
            continue
        check(model.content, model.samples, config, int(rng.choice(BATCHES)))
        ran += 1
        batched += bool(samples > 1 and kinds_together(network, config))
    assert ran >= 30
    assert batched >= 10


@pytest.mark.thorough
def test_random_sequences() -> None:
    """Check batches of random networks on sequences, which have several steps in each sample."""
    rng = np.random.default_rng(random_seed())
    ran = 0
    for number in range(60):
        config = preset(str(rng.choice(MACHINES if number % 4 else ("tiny",))))
        samples = int(rng.choice(BATCHES))
        model = RandomSequences(rng, int(rng.integers(1, 9)), samples, lstm=config.wide)
        try:
            compile_network(config, network_of(model.content), 1)
        except CompileError:
            continue
        check(model.content, model.samples, config, int(rng.choice(BATCHES)))
        ran += 1
    assert ran >= 30


@pytest.mark.thorough
def test_random_lstms() -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(12):
        steps, inputs, cells = (int(size) for size in rng.integers(1, (9, 40, 30)))
        content = lstm_model(rng, steps, inputs, cells)
        config = preset(str(rng.choice(MACHINES)))
        if rng.integers(3) == 0:
            rows = -(-cells // min(config.rows, config.cols))
            config = dataclasses.replace(
                config, accumulator_rows=2 * rows * int(rng.integers(3, 20))
            )
        x = rng.integers(-128, 128, (33, 1, steps, inputs), dtype=np.int8)
        check(content, x, config, int(rng.choice(BATCHES)))


def test_lstm_behind_a_convolution() -> None:
    """Check an LSTM after a convolution, in batches.

    The convolution's result for each sample is moved into the batch step by step.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    source = writer.tensor((1, 1, 14, 5), "int8", 0.02, 3)
    map_ = writer.tensor((1, 1, 12, 21), "int8", 0.01, -7)
    weights = rng.integers(-127, 128, (21, 1, 3, 5), dtype=np.int8)
    bias = rng.integers(-900, 900, 21, dtype=np.int32)
    options = {"padding": 1, "strideH": 1, "strideW": 1}
    writer.weighted("CONV_2D", source, map_, weights, bias, 0.0004, 0, **options)
    sequence = writer.tensor((1, 12, 21), "int8", 0.01, -7)
    shape = writer.tensor((3,), "int32", data=np.array([1, 12, 21], np.int32))
    writer.operator("RESHAPE", [map_, shape], [sequence])
    result = add_lstm(rng, writer, sequence, 0.01, (12, 21, 19))
    content = writer.content([source], [result])
    assert kinds_together(network_of(content)) == ["Lstm"]
    x = rng.integers(-128, 128, (7, 1, 1, 14, 5), dtype=np.int8)
    for machine in MACHINES:
        check(content, x, preset(machine), 7)


def flat_model(
    rng: np.random.Generator,
    height: int,
    width: int,
    results: int,
    *,
    pool: bool = False,
    stride: int = 1,
) -> bytes:
    """Return a model of a convolution with a tanh, and a fully connected layer with a tanh.

    The layer takes all pixels of the convolution's result. With `pool`, a maximum pooling of 4 x 5
    pixels lies between. The convolution's windows are `stride` pixels apart, so the input has
    `stride` times as many rows and columns as the result.
    """
    writer = ModelWriter()
    source = writer.tensor((1, stride * height, stride * width, 3), "int8", 0.02, 3)
    map_ = writer.tensor((1, height, width, 9), "int8", 0.01, -7)
    weights = rng.integers(-127, 128, (9, 1, 1, 3), dtype=np.int8)
    bias = rng.integers(-900, 900, 9, dtype=np.int32)
    writer.weighted(
        "CONV_2D", source, map_, weights, bias, 0.0008, 0, strideH=stride, strideW=stride
    )
    curve = writer.tensor((1, height, width, 9), "int8", 1 / 128)
    writer.operator("TANH", [map_], [curve])
    if pool:
        height, width = height // 4, width // 5
        pooled = writer.tensor((1, height, width, 9), "int8", 1 / 128)
        size = {"filterHeight": 4, "filterWidth": 5, "strideH": 4, "strideW": 5}
        writer.operator("MAX_POOL_2D", [curve], [pooled], padding=1, **size)
        curve = pooled
    k = height * width * 9
    flat = writer.tensor((1, k), "int8", 1 / 128)
    shape = writer.tensor((2,), "int32", data=np.array([1, k], np.int32))
    writer.operator("RESHAPE", [curve, shape], [flat])
    dense = writer.tensor((1, results), "int8", 0.04, 11)
    weights = rng.integers(-127, 128, (results, k), dtype=np.int8)
    writer.fully_connected(flat, dense, weights, None, float(np.float32(0.04 / np.sqrt(k))))
    result = writer.tensor((1, results), "int8", 1 / 128)
    writer.operator("TANH", [dense], [result])
    return writer.content([source], [result])


def test_more_pixels_than_a_kernel_has_rows() -> None:
    rng = np.random.default_rng(random_seed())
    content = flat_model(rng, 23, 25, 20, stride=2)
    x = rng.integers(-128, 128, (6, 1, 46, 50, 3), dtype=np.int8)
    for machine in ("base", "small"):
        check(content, x, preset(machine), 6)


def loops(content: bytes, config: Config, samples: int) -> list[int]:
    """Return the number of passes of each loop in the program that a model is compiled to."""
    program = compile_operations(config, operations_of(network_of(content)), samples).image.program
    counts: list[int] = []
    for at in range(0, len(program), INSTRUCTION_BYTES):
        instruction = decode(program[at : at + INSTRUCTION_BYTES])
        assert instruction is not None
        if instruction[0].opcode == Opcode.LOOP:
            counts.append(instruction[1]["count"])
    return counts


def test_smaller_batches_where_the_buffer_is_small() -> None:
    """Check that a smaller unified buffer makes the batches of a model smaller.

    The program's loops are over batches, samples and the pixels of a map.
    """
    rng = np.random.default_rng(random_seed())
    content = flat_model(rng, 16, 16, 20, stride=2)
    x = rng.integers(-128, 128, (8, 1, 32, 32, 3), dtype=np.int8)
    for lines, expected in ((8192, [1, 8, 256]), (4096, [2, 4, 256]), (1100, [8])):
        config = dataclasses.replace(preset("small"), buffer_lines=lines)
        assert loops(content, config, 8) == expected
        check(content, x, config, 8)


def test_batch_beside_what_goes_to_host_memory() -> None:
    """Check that a map that is moved to host memory does not make the batch smaller."""
    rng = np.random.default_rng(random_seed())
    content = flat_model(rng, 24, 25, 20, pool=True, stride=2)
    config = dataclasses.replace(preset("small"), buffer_lines=1024)
    x = rng.integers(-128, 128, (11, 1, 48, 50, 3), dtype=np.int8)
    program = compile_operations(config, operations_of(network_of(content)), 11)
    assert program.spilled
    assert loops(content, config, 11) == [2, 6, 30]
    check(content, x, config, 11)


def test_many_rows_of_a_sample_need_no_batch() -> None:
    """Check that a layer of 16 vectors for each sample is not batched on an array of 16 rows.

    The array loads a tile of weights in the time of 16 vectors. With 15 vectors, a layer is
    batched.
    """
    rng = np.random.default_rng(random_seed())
    weights = rng.integers(-127, 128, (5, 7), dtype=np.int8)
    for rows, expected in ((16, []), (15, ["Product"])):
        writer = ModelWriter()
        tensors = [writer.tensor((1, rows, size), "int8", 0.05) for size in (7, 7, 5)]
        writer.operator("LOGISTIC", tensors[:1], [tensors[1]])
        writer.fully_connected(tensors[1], tensors[2], weights, None, 0.01)
        content = writer.content(tensors[:1], tensors[2:])
        assert kinds_together(network_of(content))[-1:] == expected
