# SPDX-License-Identifier: Apache-2.0
"""The test of barriers in rings of several sizes.

No core may pass before the last core has arrived. Then all cores must pass within some cycles.
"""

from __future__ import annotations

from collections import deque

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.link.pod_barrier import PodBarrier
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

SIZES = ("3", "1", "2", "4", "5", "8")


class Ring(wiring.Component):
    """A unit for tests that has the barriers of `cores` cores, not connected to each other.

    Each port has a bit for each core.
    """

    def __init__(self, *, cores: int):
        self._cores = cores
        tokens = {name: In(cores) for name in ("arrived", "from_left", "from_right")}
        super().__init__({**tokens, **dict.fromkeys(("passed", "to_left", "to_right"), Out(cores))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for i in range(self._cores):
            barrier = m.submodules[f"barrier_{i}"] = PodBarrier()
            m.d.comb += [
                barrier.cores.eq(self._cores),
                barrier.arrived.eq(self.arrived[i]),
                barrier.from_left.eq(self.from_left[i]),
                barrier.from_right.eq(self.from_right[i]),
                self.passed[i].eq(barrier.passed),
                self.to_left[i].eq(barrier.to_left),
                self.to_right[i].eq(barrier.to_right),
            ]
        return m


async def barriers(dut, name, arrives, latency, count):
    """Run `count` barriers; return the cycle of the last arrival and of all passes at each one."""
    cores = int(chosen_variant())
    random = rng("pod_barrier", name)
    bench = Bench(dut, Ring(cores=cores))
    await bench.start()
    await bench.cycle()
    wires = {
        (way, i): deque([0] * latency) for way in ("to_left", "to_right") for i in range(cores)
    }
    came, passed = [0] * cores, [0] * cores
    last = [0] * (count + 1)
    passes = [[] for _ in range(count + 1)]
    waits = [False] * cores
    now = 0
    while min(passed) < count:
        for i in range(cores):
            if not waits[i] and came[i] < count and random.random() < arrives:
                waits[i] = True
                came[i] += 1
                last[came[i]] = now
        bits = {"arrived": waits, "from_left": [], "from_right": []}
        for i in range(cores):
            bits["from_left"].append(wires["to_right", (i - 1) % cores][0])
            bits["from_right"].append(wires["to_left", (i + 1) % cores][0])
        await bench.cycle(
            **{key: sum(bool(v) << i for i, v in enumerate(vs)) for key, vs in bits.items()}
        )
        for (way, i), wire in wires.items():
            wire.popleft()
            wire.append(bench.get(way) >> i & 1)
        for i in range(cores):
            if bench.get("passed") >> i & 1:
                assert waits[i]
                passed[i] += 1
                assert min(came) >= passed[i], "somebody has not come"
                passes[passed[i]].append(now)
                waits[i] = False
        now += 1
        assert now < 10_000
    return last[1:], passes[1:]


@cocotb.test
@cocotb.parametrize((("arrives", "latency"), [(1.0, 1), (0.5, 1), (0.05, 2), (0.3, 7)]))
async def nobody_is_early(dut, arrives, latency):
    """Check that no core passes early if cores arrive at any time.

    A fast core may arrive at the next barrier before slow cores have passed the last one.
    """
    await barriers(dut, f"early {arrives} {latency}", arrives, latency, 40)


@cocotb.test
@cocotb.parametrize(latency=[1, 3])
async def latency_is_kept(dut, latency):
    """Check that all cores pass within a fixed number of cycles after the last arrival."""
    cores = int(chosen_variant())
    last, passes = await barriers(dut, "latency", 0.02, latency, 12)
    for arrival, cycles in zip(last, passes, strict=True):
        assert max(cycles) - arrival <= (cores // 2) * (2 + latency) + 1


@pytest.mark.parametrize(("simulator", "variant"), variants(*SIZES))
def test_pod_barrier(simulator, variant):
    run_unit("test_pod_barrier", simulator, Ring(cores=int(variant)), variant=variant)
