# SPDX-License-Identifier: Apache-2.0
"""Tests of batches, shapes and faults when a network runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.compiler.errors import ModelError
from systola.compiler.network import Network
from systola.golden.outcome import FaultReport
from systola.runtime.backend import BackendError, Result
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.test_networks import model_file, network_of
from systola.verif.kit.run_network import run_network

BACKEND = GoldenBackend(preset("tiny"))


@pytest.fixture(scope="module")
def network() -> Network:
    return network_of(model_file("mlp_odd_relu6_tanh_sigmoid.tflite"))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (11, 1, 61), dtype=np.int8)


@pytest.mark.parametrize("batch", [1, 2, 5, 11, 100])
def test_batches(network: Network, x: np.ndarray, batch: int) -> None:
    whole = run_network(BACKEND, network, x)
    done: list[int] = []
    run = run_network(BACKEND, network, x, batch=batch, progress=done.append)
    assert np.array_equal(run.y, whole.y)
    assert run.samples == 11
    assert done == [*range(batch, 11, batch), 11]
    assert run.cycles is None
    assert run.counters == {}


def test_shapes(network: Network, x: np.ndarray) -> None:
    y = run_network(BACKEND, network, x).y
    assert y.shape == (11, 1, 10)
    assert np.array_equal(run_network(BACKEND, network, x[0]).y, y[0])
    assert np.array_equal(run_network(BACKEND, network, x[:, 0]).y, y[:, 0])
    for wrong in (x[0, 0], x[:, :, 1:], x[np.newaxis], x.reshape(1, 11, 61), np.int8(3)):
        with pytest.raises(ModelError, match="does not fit the model"):
            run_network(BACKEND, network, np.asarray(wrong))


class Clocked:
    """A golden model that reports ten cycles for each program, and a fault if one is given."""

    def __init__(self, fault: FaultReport | None = None) -> None:
        self._fault = fault

    @property
    def config(self) -> Config:
        return BACKEND.config

    @property
    def programs(self) -> int:
        return BACKEND.programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        return replace(
            BACKEND.run(image),
            fault=self._fault,
            cycles=10,
            counters={"array_active": 7, "fetch": 3},
            simulated_cycles_per_second=100.0,
        )


def test_figures_add_up(network: Network, x: np.ndarray) -> None:
    run = run_network(Clocked(), network, x, batch=4)
    assert run.cycles == 30
    assert run.counters == {"array_active": 21, "fetch": 9}
    assert run.simulated_cycles_per_second == pytest.approx(100)


def test_fault(network: Network, x: np.ndarray) -> None:
    fault = FaultReport(Fault.HOST_READ_ERROR, 3, 0)
    with pytest.raises(BackendError, match="instruction 3: HOST_READ_ERROR"):
        run_network(Clocked(fault), network, x)
