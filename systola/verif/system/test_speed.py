# SPDX-License-Identifier: Apache-2.0
"""Tests that the RTL takes the cycles in README.md and docs/results.md, and reaches the bars.

A bar is the least use of the array's multipliers that a result must reach, as a share.
"""

import pytest

from systola.arch.config import preset
from systola.arch.pages import quoted
from systola.bench import networks, speed
from systola.bench.convolution import measure
from systola.bench.table import README, RESULTS_PAGE, find, stored_results, tables
from systola.bench.workloads import CONVOLUTIONS, IDEAL, LOADED, PRESET, PRODUCTS
from systola.cli.gemm import random_gemm
from systola.compiler.schedule import compile_chain
from systola.runtime.rtl import RtlBackend

memories = pytest.mark.parametrize("memory", [IDEAL, LOADED], ids=lambda memory: memory.name)


@memories
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.m}x{p.k}x{p.n}")
@pytest.mark.thorough
def test_products(product, memory):
    config = preset(PRESET)
    a, layer = random_gemm(product.m, product.k, product.n, seed=0)
    image = compile_chain(config, [layer], product.m).bind(a)
    backend = RtlBackend(config, latency=memory.latency, stall=memory.stall, seed=0)
    result = backend.run(image)
    assert result.fault is None
    stored = find(stored_results(), product, memory)
    assert (result.cycles, result.counters) == (stored["cycles"], stored["counters"])


def bars():
    """Yield each matrix product and memory that has a bar, with the bar."""
    for product in PRODUCTS:
        for memory, bar in ((IDEAL, product.ideal), (LOADED, product.loaded)):
            if bar is not None:
                name = f"{product.m}x{product.k}x{product.n} {memory.name}"
                yield pytest.param(product, memory, bar, id=name)


@pytest.mark.parametrize(("product", "memory", "bar"), list(bars()))
@pytest.mark.thorough
def test_bars(product, memory, bar):
    """Check that the use of the array in the stored cycles of the RTL reaches the bar."""
    cycles = find(stored_results(), product, memory)["cycles"]
    macs = product.m * product.k * product.n
    assert macs / (preset(PRESET).peak_macs * cycles) >= bar


@memories
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=lambda shape: shape.name)
@pytest.mark.thorough
def test_convolutions(shape, memory):
    result = measure(shape, memory)
    assert result["bit_exact"]
    assert result == find(stored_results(), shape, memory)
    bar = shape.ideal if memory is IDEAL else None
    assert bar is None or result["utilization"] >= bar


@pytest.mark.parametrize("network", networks.NETWORKS, ids=lambda network: network.file)
@pytest.mark.thorough
def test_networks(network):
    """Check the cycles of one inference of a network, or of the batch that has a bar.

    `make bench` measures other batches.
    """
    result = networks.measure(network, network.batch)
    assert result["bit_exact"]
    assert result == networks.find(networks.stored_networks(), network, network.batch)
    assert network.bar is None or result["utilization"] >= network.bar


def test_pages_quote_the_results():
    assert quoted(RESULTS_PAGE, "products") == tables(stored_results())
    assert quoted(README, "speed") == speed.table(speed.stored())
    assert quoted(README, "networks") == networks.table(networks.stored_networks())
