# SPDX-License-Identifier: Apache-2.0
"""The test of the bursts of transfers, against a Python generator, and the rules of AXI."""

import cocotb
import pytest

from systola.hdl.commands import Transfer
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.verif.kit.checker import StreamRules
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

VARIANTS = {"16x16": (16, 16, 32), "4x256": (4, 256, 8), "128x1": (128, 1, 128), "8x4": (8, 4, 0)}
"""For each variant: bytes of the bus, beats of the longest burst, and bytes between blocks."""
PAGE = 4096
TRANSFERS = 60


def unit(variant=None):
    bus, longest, pitch = VARIANTS[variant or chosen_variant()]
    layout = Transfer(address_bits=33, beat_bits=30)
    return BurstPlanner(transfer=layout, bus_bytes=bus, max_burst_beats=longest, pitch=pitch)


def bursts(transfer, bus, longest, pitch):
    """Yield the address and the number of beats of each burst of a transfer."""
    for block in range(transfer["blocks"]):
        for row in range(transfer["rows"]):
            address = transfer["address"] + row * transfer["stride"] + block * pitch
            left = transfer["beats"]
            while left:
                beats = min(left, longest - address // bus % longest)
                yield address, beats
                address += beats * bus
                left -= beats


def some(random, bus):
    """Return a random transfer of any shape, mostly close to the end of a page."""
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


class Planner(Bench):
    """A bench of the burst planner with a queue of transfers; it records bursts and cycles."""

    def __init__(self, dut, transfers):
        super().__init__(dut, unit())
        self.transfers = list(transfers)
        self.taken = []
        self.cycles = []
        self.now = 0
        self._rules = StreamRules("burst")

    async def step(self, valid, take):
        """Run one cycle; `valid` offers the next transfer, and `take` accepts a burst."""
        valid = bool(valid and self.transfers)
        if valid:
            self.set(transfer__payload=self.transfers[0])
        await self.cycle(transfer__valid=valid, burst__ready=take)
        if self.get("burst__valid"):
            burst = self.get("burst__payload")
            self._rules.observe(burst.bits, take)
            if take:
                self.taken.append((burst.address, burst.length + 1, burst.last))
                self.cycles.append(self.now)
        else:
            self._rules.observe(None, take)
        if valid and self.get("transfer__ready"):
            self.transfers.pop(0)
        self.now += 1


def expected(transfers):
    """Yield the expected bursts of all transfers, as (address, beats, last).

    A burst that breaks the rules of AXI is an error of the test.
    """
    bus, longest, pitch = VARIANTS[chosen_variant()]
    for transfer in transfers:
        planned = list(bursts(transfer, bus, longest, pitch))
        for index, (address, beats) in enumerate(planned):
            assert beats <= longest and address % PAGE + beats * bus <= PAGE
            yield address, beats, index == len(planned) - 1


@cocotb.test
async def one_burst_a_cycle(dut):
    """Check that a burst comes in each cycle, if transfers are always there and bursts are taken.

    Only the first burst of a transfer may come one cycle later.
    """
    transfers = random_transfers("rate")[0]
    bench = Planner(dut, transfers)
    await bench.start()
    for _ in range(2):
        await bench.step(1, 1)
        assert not bench.taken
    await bench.step(1, 1)
    assert bench.taken, "a transfer has its first burst two cycles later"
    wanted = list(expected(transfers))
    for _ in range(3 * len(wanted)):
        await bench.step(1, 1)
    assert bench.taken == wanted
    assert bench.cycles[-1] - bench.cycles[0] <= len(wanted) - 1 + len(transfers) - 1


@cocotb.test
async def with_waits(dut):
    transfers, random = random_transfers("waits")
    bench = Planner(dut, transfers)
    await bench.start()
    wanted = list(expected(transfers))
    valid = False
    for _ in range(20 * len(wanted)):
        before = len(bench.transfers)
        # A transfer that has been offered stays on offer until it is taken.
        valid = valid or random.random() < 0.5
        await bench.step(valid, random.random() < 0.5)
        valid = valid and len(bench.transfers) == before
        if len(bench.taken) == len(wanted):
            break
    assert bench.taken == wanted and not bench.transfers


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_burst_planner(simulator, variant):
    run_unit("test_burst_planner", simulator, unit(variant), variant=variant)
