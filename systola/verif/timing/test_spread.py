# SPDX-License-Identifier: Apache-2.0
"""Tests of applications with weights spread over a pod's cores: their bytes and cycles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.bench.original.compiled import compiled, random_inputs
from systola.bench.original.measure import work_of
from systola.bench.original.networks import operations_of
from systola.bench.original.result import PRESET
from systola.bench.original.shapes import Application, applications
from systola.bench.original.spread import Spread, spread
from systola.compiler.errors import CompileError
from systola.golden.pod import Pod
from systola.runtime.iss import GoldenBackend
from systola.timing.estimate import estimate
from systola.timing.pod import estimate_pod
from systola.verif.kit.small_applications import dense, operations_in_order, recurrent
from systola.verif.plan.selection import thorough

CORES = 8
BAR = 7.0
"""Least speed of a pod of CORES cores, as a multiple of one core's speed."""


def golden_results(config: Config, pod: Spread) -> list[NDArray[np.int8]]:
    images = [replace(image, host=image.host.copy()) for image in pod.images]
    outcomes = Pod(config, len(images)).run(images)
    assert [outcome.fault for outcome in outcomes] == [None] * len(images)
    return pod.results([image.host for image in images])


@pytest.mark.parametrize(
    ("name", "cores", "application"),
    [
        ("tiny", 3, recurrent(batch=3, inputs=10, size=12)),
        # Two cores work on each tile of the cell's channels.
        thorough("tiny", 4, recurrent(batch=4, inputs=12, size=8)),
        thorough("tiny", 5, recurrent(batch=3, inputs=9, size=7)),
        thorough("tiny", 4, recurrent(batch=5, inputs=4, size=4)),  # each core makes one gate
        thorough("tiny", 1, recurrent(batch=2, inputs=4, size=4)),
        thorough("8x8", 3, recurrent(batch=6, inputs=20, size=24)),
        thorough("8x8", 2, dense(batch=9, sizes=(24, 40, 17, 9))),
    ],
)
def test_bytes_of_one_core(name: str, cores: int, application: Application) -> None:
    """Check that each output of the golden pod equals one core's output for the same inputs."""
    operations = operations_in_order(application)
    one, config = preset(name), preset(f"{name}-links")
    work = compiled(one, application, operations)
    run = GoldenBackend(one).run(work.image)
    assert run.fault is None
    inputs = random_inputs(application, operations.inputs)
    found = golden_results(config, spread(config, operations, inputs, cores))
    for got, expected in zip(found, work.program.results(run.host), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_refusals() -> None:
    application = recurrent(batch=3, inputs=10, size=12)
    operations = operations_in_order(application)
    inputs = random_inputs(application, operations.inputs)
    with pytest.raises(CompileError, match="with links"):
        spread(preset("tiny"), operations, inputs, 3)
    with pytest.raises(CompileError, match="parameter entries"):
        spread(preset("tiny-links"), operations, inputs, 1)
    small = replace(preset("tiny-links"), buffer_lines=64)
    with pytest.raises(CompileError, match="no room for all values"):
        spread(small, operations, inputs, 3)
    large = recurrent(batch=300, inputs=4, size=4)
    operations = operations_in_order(large)
    with pytest.raises(CompileError, match="no room for all samples"):
        spread(preset("tiny-links"), operations, random_inputs(large, operations.inputs), 1)


@pytest.mark.parametrize("name", [thorough("lstm0")])
def test_full_size(name: str) -> None:
    """Check the estimated speed of eight full-size cores, each with an eighth of the weights."""
    application = applications()[name]
    operations = operations_of(application)
    config = preset(f"{PRESET}-links")
    inputs = random_inputs(application, operations.inputs)
    pod = spread(config, operations, inputs, CORES)
    result = estimate_pod(config, pod.images)
    one = estimate(preset(PRESET), work_of(name).image)
    print(f"{one.cycles} cycles on one core, {result.cycles} on {CORES}")
    assert sum(image.weights.size for image in pod.images) == one.traffic.weights
    assert one.cycles / result.cycles > BAR
