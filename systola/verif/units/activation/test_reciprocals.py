# SPDX-License-Identifier: Apache-2.0
"""The test of the reciprocals of partitions against gemmlowp's integers: corners, stalls, rate."""

import cocotb
import pytest

from systola.hdl.activation.reciprocals import Reciprocals
from systola.verif.kit.launch import simulators
from systola.verif.kit.partition import corners, expected_channel
from systola.verif.units.unit import Bench, rng, run_unit

LATENCY = 59
"""Cycles from a sum to its reciprocal."""
EIGHT = 56
"""Cycles in which the unit takes eight sums."""
COUNT = 2000


def unit():
    return Reciprocals()


async def check(bench, sums, offers):
    """Offer sums in the cycles in which `offers` is true, and check all results and their cycles.

    Returns the cycle in which each sum was taken.
    """
    taken, found, cycle = [], 0, 0
    while found < len(sums):
        offered = len(taken) < len(sums) and offers(cycle)
        payload = sums[len(taken)] if offered else 0
        await bench.cycle(sums__valid=int(offered), sums__payload=payload)
        if bench.get("valid"):
            assert cycle == taken[found] + LATENCY, found
            _, multiplier, _, right = expected_channel(sums[found])
            assert bench.gets("multiplier", "shift") == (multiplier, right), hex(sums[found])
            found += 1
        else:
            assert found == len(taken) or cycle < taken[found] + LATENCY, found
        if offered and bench.get("sums__ready"):
            taken.append(cycle)
        cycle += 1
    return taken


@cocotb.test
async def corners_at_full_rate(dut):
    """Check sums around powers of two, and that eight sums are taken in EIGHT cycles."""
    bench = Bench(dut, unit())
    await bench.start()
    taken = await check(bench, corners(), lambda _: True)
    assert all(later == earlier + EIGHT for earlier, later in zip(taken, taken[8:], strict=False))
    assert taken[7] == taken[0] + 7


@cocotb.test
async def random_sums(dut):
    """Check random sums of all sizes that come with gaps, alone and in groups."""
    random = rng("reciprocals")
    bench = Bench(dut, unit())
    await bench.start()
    sums = [random.getrandbits(32) >> random.randrange(32) for _ in range(COUNT)]
    busy = [random.random() ** 2 for _ in range(100)]
    await check(bench, sums, lambda cycle: random.random() < busy[cycle // 97 % 100])


@pytest.mark.parametrize("simulator", simulators())
def test_reciprocals(simulator):
    run_unit("test_reciprocals", simulator, unit())
