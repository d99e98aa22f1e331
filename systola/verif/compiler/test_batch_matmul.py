# SPDX-License-Identifier: Apache-2.0
"""Tests of BATCH_MATMUL with a constant as its second operand, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.runtime.iss import GoldenBackend
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
) -> bytes:
    """Return a model of a single BATCH_MATMUL."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    n = weights[-2] if turned else weights[-1]
    batch = np.broadcast_shapes(source[:-2], weights[:-2])
    x = writer.tensor(source, "int8", 0.05, 7)
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


def test_refusals() -> None:
    """Check that a BATCH_MATMUL is refused with two calculated inputs, or with several matrices."""
    with pytest.raises(ModelError, match="must be a constant"):
        network_of(model((1, 5, 12), (1, 12, 7), constant=False))
    with pytest.raises(ModelError, match="it makes shape"):
        network_of(model((1, 5, 12), (4, 12, 7)))
