# SPDX-License-Identifier: Apache-2.0
"""Bursts of transfers against a generator in plain Python, and against the rules of AXI."""

import cocotb
import pytest

from systola.hdl.burst_planner import BurstPlanner, Transfer
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

VARIANTS = {"16x16": (16, 16, 32), "4x256": (4, 256, 8), "128x1": (128, 1, 128), "8x4": (8, 4, 0)}
"""Bus bytes, longest burst in beats, pitch."""
PAGE = 4096
TRANSFERS = 60


def unit(variant=None):
    bus, longest, pitch = VARIANTS[variant or chosen_variant()]
    layout = Transfer(address_bits=33, beat_bits=30)
    return BurstPlanner(transfer=layout, bus_bytes=bus, max_burst_beats=longest, pitch=pitch)


def bursts(transfer, bus, longest, pitch):
    """Address and beats of each burst."""
    for block in range(transfer["blocks"]):
        for row in range(transfer["rows"]):
            address = transfer["address"] + row * transfer["stride"] + block * pitch
            left = transfer["beats"]
            while left:
                beats = min(left, longest, (PAGE - address % PAGE) // bus)
                yield address, beats
                address += beats * bus
                left -= beats


def some(random, bus):
    """A transfer of any shape, close to the end of a page more often than not."""
    page = random.choice((0, PAGE, random.randrange(1 << 20) * PAGE, (1 << 32) - 4 * PAGE))
    near = random.choice((0, PAGE - bus, PAGE - 2 * bus, random.randrange(PAGE // bus) * bus))
    return {
        "address": page + near,
        "beats": random.choice((1, 2, 3, random.randint(1, 40), random.randint(1, 600))),
        "rows": random.choice((1, 1, 2, random.randint(1, 6))),
        "stride": random.choice((0, bus, 3 * bus, random.randrange(1 << 10) * bus)),
        "blocks": random.choice((1, 1, 2, random.randint(1, 4))),
    }


def random_transfers(name):
    bus, longest, _ = VARIANTS[chosen_variant()]
    random = rng(name, chosen_variant())
    found = [some(random, bus) for _ in range(TRANSFERS)]
    return [{**t, "beats": min(t["beats"], 20 * longest)} for t in found], random


async def expect(bench, transfer, last_cycle_takes):
    """All bursts of one transfer, and that they obey the rules."""
    bus, longest, pitch = VARIANTS[chosen_variant()]
    planned = list(bursts(transfer, bus, longest, pitch))
    for index, (address, beats) in enumerate(planned):
        while not last_cycle_takes():
            await bench.cycle(start=1, transfer=transfer, take=0)
            assert bench.get("valid") == 1
        await bench.cycle(start=1, transfer=transfer, take=1)
        shown = bench.gets("valid", "address", "length", "last")
        assert shown == (1, address, beats - 1, index == len(planned) - 1)
        assert beats <= longest and address % PAGE + beats * bus <= PAGE


@cocotb.test
async def one_burst_a_cycle(dut):
    """At full rate each cycle has its burst, the first of the next transfer included."""
    bench = Bench(dut, unit())
    await bench.start()
    for transfer in random_transfers("rate")[0]:
        await expect(bench, transfer, lambda: True)


@cocotb.test
async def with_waits(dut):
    bench = Bench(dut, unit())
    await bench.start()
    transfers, random = random_transfers("waits")
    for transfer in transfers:
        if random.random() < 0.5:
            await bench.cycle(start=0, take=0)
            assert bench.get("valid") == 0
        await expect(bench, transfer, lambda: random.random() < 0.5)


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_burst_planner(simulator, variant):
    run_unit("test_burst_planner", simulator, unit(variant), variant=variant)
