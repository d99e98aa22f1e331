# SPDX-License-Identifier: Apache-2.0
"""The test of convolutional and recurrent networks on the RTL: every byte equals LiteRT's."""

import pytest

from systola.arch.config import preset
from systola.compiler.lower import batching
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, RECURRENT, stored_program
from systola.verif.kit.seeds import random_seed

PRESET = "base"
SAMPLES = 4


def cycles(name, samples, latency, stall):
    """Run a stored network on the RTL, check its outputs, and return the cycles."""
    config = preset(PRESET)
    image, check = stored_program(name, config, samples)
    backend = RtlBackend(config, latency=latency, stall=stall, seed=random_seed())
    result = backend.run(image)
    assert result.fault is None
    check(result.host)
    return result.cycles


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (30, 0.1)], ids=["ideal", "loaded"])
@pytest.mark.parametrize("name", [*CONVOLUTIONAL, *RECURRENT])
@pytest.mark.thorough
def test_network(name, latency, stall):
    cycles(name, SAMPLES, latency, stall)


@pytest.mark.parametrize("name", [*CONVOLUTIONAL, *RECURRENT])
@pytest.mark.thorough
def test_batches(name, monkeypatch):
    """Check a network with five samples in batches of at most three, one of which is not full."""
    monkeypatch.setattr(batching, "largest_batch", lambda config: 3)
    cycles(name, 5, 30, 0.1)


@pytest.mark.thorough
def test_large_batch():
    """Check that a batch of 16 takes less time than two single samples.

    With a single sample, the network's layers have few rows, and each layer waits for the layer
    before it.
    """
    name = "lstm_digits_rows_unrolled_k3"
    assert cycles(name, 16, 30, 0.0) < 2 * cycles(name, 1, 30, 0.0)
