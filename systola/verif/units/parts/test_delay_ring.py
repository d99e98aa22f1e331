# SPDX-License-Identifier: Apache-2.0
"""The test of the delay ring, a delay in a small memory: values come out after just the delay."""

import cocotb
import pytest

from systola.hdl.parts.delay_ring import DelayRing
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

CYCLES = {"8": 8, "5": 5}
WIDTH = 9


def unit(variant=None):
    return DelayRing(width=WIDTH, cycles=CYCLES[variant or chosen_variant()])


@cocotb.test
async def delay(dut):
    """Check that a value comes out in every cycle, for several turns of the ring."""
    bench = Bench(dut, unit())
    await bench.start()
    random, cycles = rng("delay_ring"), CYCLES[chosen_variant()]
    given = [random.getrandbits(WIDTH) for _ in range(100)]
    for now, value in enumerate(given):
        await bench.cycle(input=value)
        if now >= cycles:
            bench.expect("output", given[now - cycles])


@pytest.mark.parametrize(("simulator", "variant"), variants(*CYCLES))
def test_delay_ring(simulator, variant):
    run_unit("test_delay_ring", simulator, unit(variant), variant=variant)
