# SPDX-License-Identifier: Apache-2.0
"""The test of the read port that data transfers and fetches of instructions share.

It covers order, priorities, base address, `stop`, and limits.
"""

import cocotb
import numpy as np
import pytest

from systola.hdl.transfers.host_read_port import HostReadPort, ReadBeat, ReadRequest
from systola.sim.memory import MemoryModel
from systola.verif.kit.axi_memory import AxiMemory
from systola.verif.kit.checker import AxiRules, StreamChecker
from systola.verif.kit.launch import simulators
from systola.verif.kit.stream import StreamMonitor, StreamSink, StreamSource, never, randomly
from systola.verif.units.packing import from_bits, to_bits
from systola.verif.units.unit import Bench, rng, run_unit, small_config

BUS = 8
CONFIG = small_config(host_bus_bytes=BUS)
BASE, SIZE = 0x45_6789_A000, 1 << 14
MOST = 64
DATA, FETCH = 0, 1


def unit():
    return HostReadPort(config=CONFIG)


class Port(Bench):
    """A bench of the read port between its two requesters and a memory."""

    def __init__(self, dut, *, latency=0, stall=0.0, probability=0.0, name=""):
        super().__init__(dut, unit())
        self.random = random = rng("host_read_port", name)
        self.model = MemoryModel(
            data=np.frombuffer(random.randbytes(SIZE), np.uint8),
            bus_bytes=BUS,
            port=0,
            base=BASE,
            latency=latency,
            stall=stall,
            seed=random.getrandbits(8),
            error_range=(BASE + 512, BASE + 600),
        )
        self.memory = AxiMemory(dut, "bus_", self.model, AxiRules("host", BUS, (BASE, BASE + SIZE)))

        def pauses():
            return randomly(random, probability) if probability else never()

        names = ("data", "fetch")
        self.sources = {n: StreamSource(dut, f"{n}_request", dut.clk, pauses()) for n in names}
        self.sinks = {
            "data": StreamSink(dut, "data_beat", dut.clk, pauses()),
            "fetch": StreamSink(dut, "fetch_beat", dut.clk, never()),
        }
        self.taken = {n: StreamMonitor(dut, f"{n}_request", dut.clk) for n in names}
        self.addresses = []
        self.now = 0

    async def begin(self, *, stops=False):
        """Reset the unit, and check its output streams from then on.

        With `stops` the streams may break off, so they are not checked.
        """
        await self.start()
        self.set(base=BASE)
        await self.cycle()
        for name in () if stops else ("data_beat", "fetch_beat"):
            cocotb.start_soon(StreamChecker(self.dut, name).run(self.clock))

    async def step(self, **inputs):
        """Run one cycle, and record each address that is accepted on AR."""
        await self.cycle(**inputs)
        if self.dut.bus__arvalid.value and self.dut.bus__arready.value:
            self.addresses.append((self.now, self.get("bus__arid"), self.get("bus__araddr")))
        self.memory.step()
        self.now += 1

    def some(self):
        """Return a random burst, as its offset and its number of beats."""
        beats = self.random.choice((1, 1, 2, 7, 16))
        page = self.random.randrange(4)
        return page * 4096 + self.random.randint(0, 512 - beats) * BUS, beats

    def ask(self, name, requests):
        """Queue requests, each a pair of offset and beats, for the requester `name`."""
        layout = ReadRequest()
        self.sources[name].put(
            to_bits(layout, {"offset": offset, "length": beats - 1}) for offset, beats in requests
        )

    def beats(self, requests):
        """Return the beats that a requester should receive for its requests, as (data, error)."""
        found = []
        for offset, beats in requests:
            for start in range(offset, offset + beats * BUS, BUS):
                data = self.model.data[start : start + BUS].tobytes()
                # The error range starts and ends at beats: 512 and 600 are multiples of 8.
                found.append((int.from_bytes(data, "little"), 512 <= start < 600))
        return found

    async def received(self, name, count):
        """Wait for the next `count` beats of requester `name`, and return them as (data, error)."""
        layout = ReadBeat(data_bytes=BUS)
        items = [from_bits(layout, raw) for raw in await self.sinks[name].receive_all(count)]
        return [(item.data, bool(item.error)) for item in items]


async def forever(bench):
    while True:
        await bench.step()


@cocotb.test
@cocotb.parametrize(
    (("latency", "stall", "probability"), [(0, 0.0, 0.0), (20, 0.0, 0.0), (3, 0.3, 0.4)])
)
async def random_requests(dut, latency, stall, probability):
    """Check that each requester gets its beats in order, with any activity of the other one."""
    bench = Port(dut, latency=latency, stall=stall, probability=probability, name=f"{latency}")
    await bench.begin()
    cocotb.start_soon(forever(bench))
    wanted = {name: [bench.some() for _ in range(60)] for name in ("data", "fetch")}
    wanted["data"][3] = 504, 16
    for name, requests in wanted.items():
        bench.ask(name, requests)
    for name, requests in wanted.items():
        expected = bench.beats(requests)
        assert await bench.received(name, len(expected)) == expected
    for _ in range(3):
        await bench.cycle()
    assert bench.get("quiet") and all(sink.empty() for sink in bench.sinks.values())
    for name, number in (("data", DATA), ("fetch", FETCH)):
        shown = [address for _, id, address in bench.addresses if id == number]
        assert shown == [BASE + offset for offset, _ in wanted[name]]


@cocotb.test
@cocotb.parametrize(urgent=[0, 1])
async def priorities(dut, urgent):
    """Check that requests for data go first, or fetches if they are urgent.

    A request for data is on AR in the cycle after it is taken, and one can be taken in each cycle.
    A fetch goes out every third cycle.
    """
    bench = Port(dut, name=f"urgent {urgent}")
    await bench.begin()
    bench.set(fetch_urgent=urgent)
    for name in ("data", "fetch"):
        bench.ask(name, [(64 * i, 1) for i in range(10)])
    for _ in range(60):
        await bench.step()
    shown = {id: [now for now, i, _ in bench.addresses if i == id] for id in (DATA, FETCH)}
    assert len(shown[DATA]) == len(shown[FETCH]) == 10
    # The monitors count from the start of the clock, `step` from the end of the reset.
    offset = bench.taken["data"].cycles[0] + 1 - shown[DATA][0]
    waits = [
        cycle + offset - taken
        for cycle, taken in zip(shown[DATA], bench.taken["data"].cycles, strict=True)
    ]
    assert set(waits) == {1}
    assert bench.taken["fetch"].cycles == [cycle + offset for cycle in shown[FETCH]]
    if urgent:
        # Two of three cycles are left to requests for data.
        assert shown[FETCH] == list(range(shown[FETCH][0], shown[FETCH][0] + 30, 3))
        assert shown[DATA][-1] < shown[FETCH][-1]
    else:
        assert shown[DATA] == list(range(shown[DATA][0], shown[DATA][0] + 10))
        assert shown[FETCH] == list(range(shown[DATA][-1] + 1, shown[DATA][-1] + 31, 3))


@cocotb.test
async def limit(dut):
    """Check that no more than 64 read bursts are under way."""
    bench = Port(dut, latency=200, name="limit")
    await bench.begin()
    bench.ask("data", [(0, 1)] * 100)
    for _ in range(150):
        await bench.step()
    assert len(bench.addresses) == MOST and not bench.get("bus__arvalid")
    while len(bench.addresses) < 100:
        await bench.step()


@cocotb.test
async def stop(dut):
    """Check that after `stop` no request goes out and no beat arrives.

    The unit is quiet after the last burst has ended.
    """
    bench = Port(dut, latency=15, stall=0.2, probability=0.3, name="stop")
    await bench.begin(stops=True)
    for _ in range(12):
        for name in ("data", "fetch"):
            bench.ask(name, [bench.some() for _ in range(8)])
        for _ in range(bench.random.randint(1, 60)):
            await bench.step(stop=0)
        await bench.step(stop=1)
        # One burst may be waiting on AR, and another burst may wait for AR.
        announced = len(bench.addresses) + 2 * bool(bench.dut.bus__arvalid.value)
        for _ in range(800):
            await bench.step()
            assert not any(bench.gets("data_beat__valid", "fetch_beat__valid"))
            assert bench.get("bus__rready") or not bench.dut.bus__rvalid.value
            if bench.get("quiet"):
                break
        assert bench.get("quiet") and bench.model.idle
        assert len(bench.addresses) <= announced


@pytest.mark.parametrize("simulator", simulators())
def test_host_read_port(simulator):
    run_unit("test_host_read_port", simulator, unit())
