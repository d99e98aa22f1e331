# SPDX-License-Identifier: Apache-2.0
"""Tests of BATCH_MATMUL by constants and by calculated matrices, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import compile_network
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


def model(
    source: tuple[int, ...],
    weights: tuple[int, ...],
    *,
    zero_point: int = 0,
    turned: bool = False,
    constant: bool = True,
    zero_point_of_source: int = 7,
) -> bytes:
    """Return a model of a single BATCH_MATMUL."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    n = weights[-2] if turned else weights[-1]
    batch = np.broadcast_shapes(source[:-2], weights[:-2])
    x = writer.tensor(source, "int8", 0.05, zero_point_of_source)
    data = rng.integers(-128, 128, weights, np.int8) if constant else None
    w = writer.tensor(weights, "int8", 0.013, zero_point, data=data)
    y = writer.tensor((*batch, source[-2], n), "int8", 0.11 * source[-1] ** 0.5, -9)
    writer.operator("BATCH_MATMUL", [x, w], [y], adjY=turned)
    return writer.content([x] if constant else [x, w], [y])


@pytest.mark.parametrize("zero_point", [0, -11])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("source", "matrices"),
    [((1, 5, 12), ()), ((3, 5, 12), (1,)), ((3, 5, 12), (3,)), ((1, 2, 4, 12), (1, 2))],
)
def test_constants(
    source: tuple[int, ...], matrices: tuple[int, ...], turned: bool, zero_point: int
) -> None:
    shape = (7, 12) if turned else (12, 7)
    content = model(source, (*matrices, *shape), zero_point=zero_point, turned=turned)
    network = network_of(content)
    assert network.macs >= 7 * np.prod(source)
    rng = np.random.default_rng(random_seed())
    x = rng.integers(-128, 128, (3, *source), np.int8)
    run = run_network(GoldenBackend(preset("small")), network, x, batch=2)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize(("machine", "turned"), [("4x4-training", False), ("8x8-training", True)])
@pytest.mark.parametrize(
    ("zero_point_of_source", "zero_point"), [(0, 0), (-128, 3), (5, -128), (127, 127), (-1, 0)]
)
@pytest.mark.parametrize(
    ("source", "matrix"),
    [((1, 5, 8), (1, 8, 7)), ((2, 3, 16), (2, 16, 9)), ((1, 2, 6, 13), (1, 2, 13, 4))],
    ids=["whole tiles", "two matrices", "parts of tiles"],
)
def test_calculated(
    source: tuple[int, ...],
    matrix: tuple[int, ...],
    zero_point_of_source: int,
    zero_point: int,
    machine: str,
    turned: bool,
) -> None:
    if turned:
        matrix = (*matrix[:-2], matrix[-1], matrix[-2])
    content = model(
        source,
        matrix,
        turned=turned,
        zero_point=zero_point,
        constant=False,
        zero_point_of_source=zero_point_of_source,
    )
    network = network_of(content)
    assert network.macs == matrix[-2 if turned else -1] * np.prod(source)
    rng = np.random.default_rng(random_seed())
    x = [rng.integers(-128, 128, (3, *shape), np.int8) for shape in (source, matrix)]
    run = run_network(GoldenBackend(preset(machine)), network, *x, batch=2)
    assert np.array_equal(run.y, interpret(content, *x))


@pytest.mark.thorough
def test_calculated_on_the_rtl() -> None:
    shapes = (2, 7, 9), (2, 9, 6)
    content = model(*shapes, zero_point=-128, constant=False, zero_point_of_source=3)
    rng = np.random.default_rng(random_seed())
    x = [rng.integers(-128, 128, (2, *shape), np.int8) for shape in shapes]
    backend = RtlBackend(preset("4x4-training"), seed=random_seed())
    run = run_network(backend, network_of(content), *x, batch=1)
    assert np.array_equal(run.y, interpret(content, *x))


def test_many_rows() -> None:
    """Check a product of calculated matrices with more rows than accumulators."""
    config = preset("4x4-training")
    shapes = (config.accumulator_rows + 3, 6), (6, 5)
    content = model(*((1, *each) for each in shapes), zero_point=9, constant=False)
    rng = np.random.default_rng(random_seed())
    x = [rng.integers(-128, 128, (1, 1, *shape), np.int8) for shape in shapes]
    run = run_network(GoldenBackend(config), network_of(content), *x, batch=1)
    assert np.array_equal(run.y, interpret(content, *x))


def test_a_machine_without_weights_from_the_buffer() -> None:
    network = network_of(model((1, 5, 12), (1, 12, 7), constant=False))
    with pytest.raises(CompileError, match="no weights from the buffer"):
        compile_network(preset("small"), network, 1)


def test_refusals() -> None:
    """Check that a BATCH_MATMUL by more matrices than the source has is refused."""
    with pytest.raises(ModelError, match="it makes shape"):
        network_of(model((1, 5, 12), (4, 12, 7)))
