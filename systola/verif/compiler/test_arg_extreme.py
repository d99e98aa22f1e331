# SPDX-License-Identifier: Apache-2.0
"""Tests of ARG_MAX and ARG_MIN along any axis, with extreme elements that occur several times."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from systola.arch.config import preset
from systola.compiler.host_stage import Extreme, HostStage
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("target", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_first_place(kind: str, dtype: str, target: str, axis: int) -> None:
    writer = ModelWriter()
    shape = (1, 4, 3, 7)
    scale = None if dtype == "float32" else 0.1
    source = writer.tensor(shape, dtype, scale)
    result = writer.tensor(tuple(np.delete(shape, axis).tolist()), target)
    axes = writer.tensor((1,), "int32", data=np.array([axis], np.int32))
    options = {"outputType": getattr(schema.TensorType, target.upper())}
    writer.operator(kind, [source, axes], [result], **options)
    content = writer.content([source], [result])
    network = network_of(content)
    on_host = any(
        isinstance(each, HostStage) and isinstance(each.function, Extreme)
        for each in network.stages
    )
    # The host takes the last axis of this map, as the machine would have to move too many elements.
    assert on_host == (dtype == "float32" or axis == -1)
    x = np.random.default_rng(random_seed()).integers(0, 5, (6, *shape)).astype(dtype)
    run = run_network(GoldenBackend(preset("small")), network, x)
    expected = interpret(content, x)
    assert run.y.dtype == expected.dtype
    assert np.array_equal(run.y, expected)


def classifier(kind: str, shape: tuple[int, ...]) -> bytes:
    """Return a model of a single ARG_MAX or ARG_MIN along the last axis."""
    writer = ModelWriter()
    source = writer.tensor(shape, "int8", 0.1)
    result = writer.tensor(shape[:-1], "int64")
    axes = writer.tensor((1,), "int32", data=np.array([-1], np.int32))
    writer.operator(kind, [source, axes], [result], outputType=schema.TensorType.INT64)
    return writer.content([source], [result])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize(
    ("shape", "machine"), [((1, 60), True), ((3, 20), True), ((1, 300), False)]
)
def test_codes_at_the_ends(kind: str, shape: tuple[int, ...], machine: bool) -> None:
    """Check ARG_MAX and ARG_MIN on codes of the whole range, on the machine and on the host.

    The machine calculates the index in int8, enough for 255 elements. So the host takes 300.
    """
    content = classifier(kind, shape)
    network = network_of(content)
    found = [each.function for each in network.stages if isinstance(each, HostStage)]
    assert any(isinstance(each, Extreme) for each in found) != machine
    rng = np.random.default_rng(random_seed())
    x = rng.choice([-128, -127, 0, 126, 127], (40, *shape)).astype(np.int8)
    x[:10] = rng.integers(-128, 128, (10, *shape))
    run = run_network(GoldenBackend(preset("small")), network, x, batch=8)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.thorough
def test_rtl() -> None:
    content = classifier("ARG_MAX", (1, 10))
    x = np.random.default_rng(random_seed()).integers(-3, 4, (4, 1, 10)).astype(np.int8)
    run = run_network(RtlBackend(preset("small")), network_of(content), x, batch=4)
    assert np.array_equal(run.y, interpret(content, x))
