# SPDX-License-Identifier: Apache-2.0
"""The test of the bus watchdog against a count of silent cycles.

In a silent cycle a memory owes a beat or a handshake, and no beat moves on any port.
"""

import cocotb
import pytest

from systola.arch.registers import BusPort
from systola.hdl.host.bus_watchdog import BusWatchdog
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

LATENCY = 3
PORTS = len(BusPort)
NOTHING = {"offered": 0, "taken": 0}


def unit():
    return BusWatchdog()


class Watched(Bench):
    """A bench of the watchdog, with the expected values of its outputs."""

    def __init__(self, dut, limit):
        super().__init__(dut, unit())
        self.limit = limit
        self.unanswered = 0
        self.silent = 0
        self.expected = [(0, 0)] * LATENCY

    async def step(self, to=None, back=None, reading=0, written=0):
        """Run one cycle, and check the watchdog's outputs, which are due LATENCY cycles later.

        `to` and `back` have pairs (offered, taken) by number of the bus port, for beats to memory
        and from memory.
        """
        to, back = to or {}, back or {}

        def all_of(some):
            return [
                dict(zip(NOTHING, some.get(number, (0, 0)), strict=True)) for number in range(PORTS)
            ]

        owing = 0
        for number, port in enumerate(BusPort):
            expects = reading & port
            if port == BusPort.HOST_WRITE:
                expects = self.unanswered
            if to.get(number, (0, 0))[0] or (expects and not back.get(number, (0, 0))[0]):
                owing |= port
        moves = any(taken for _, taken in (*to.values(), *back.values()))
        self.silent = self.silent + 1 if owing and not moves else 0
        expired = self.limit and self.silent == self.limit
        self.expected.append((int(bool(expired)), owing))
        await self.cycle(
            limit=self.limit,
            to_memory=all_of(to),
            from_memory=all_of(back),
            quiet=~reading & (1 << PORTS) - 1,
            written=written,
        )
        up, ports = self.expected.pop(0)
        self.expect("expired", up)
        if up:
            self.expect("ports", ports)
        self.unanswered += written - back.get(1, (0, 0))[1]


@cocotb.test
@cocotb.parametrize(limit=[0, 1, 2, 7, 30])
async def random_traffic(dut, limit):
    bench = Watched(dut, limit)
    await bench.start()
    for _ in range(LATENCY + 1):
        await bench.cycle(limit=limit, quiet=(1 << PORTS) - 1)
    random = rng("watchdog", limit)
    seen = 0
    for _ in range(60):
        busy = random.choice((0.0, 0.02, 0.5))
        for _ in range(100):
            to = {n: random.choice(((1, 0), (0, 1))) for n in range(3) if random.random() < busy}
            back = {
                n: random.choice(((1, 0), (0, 1)))
                for n in range(3)
                if random.random() < busy and (n != 1 or bench.unanswered)
            }
            reading = random.choice((0, 1, 4, 5))
            written = int(bench.unanswered < 60 and random.random() < busy)
            await bench.step(to, back, reading, written)
            seen += bench.get("expired")
    assert bool(seen) == bool(limit)


@pytest.mark.parametrize("simulator", simulators())
def test_bus_watchdog(simulator):
    run_unit("test_bus_watchdog", simulator, unit())
