# SPDX-License-Identifier: Apache-2.0
"""The test of facts about the machine's bus masters in docs/integration.md.

The facts are about IDs, the order of beats, and the lengths and the number of bursts."""

import random

import cocotb
import pytest

from systola.sim.memory import MemoryModel
from systola.verif.kit.axi_memory import AxiMemory
from systola.verif.kit.bench import TB
from systola.verif.kit.checker import AxiRules
from systola.verif.kit.launch import quick_simulators, run_machine
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

MOST = {"host": {"AR": 64, "AW": 64}, "weight": {"AR": 8}}
"""Largest number of bursts under way at one time, by bus and channel."""
AHEAD = 16
"""Largest number of write bursts with an address on AW and incomplete data."""
PROGRAMS = 5


class Shuffled(MemoryModel):
    """A memory that answers bursts of different IDs in random order, beat by beat."""

    def __post_init__(self):
        super().__post_init__()
        self._random = random.Random(f"{random_seed()} {self.port} shuffled")
        self._id = 0
        self._beat_of = {}

    def drive(self):
        if self.outputs.r is None and self._reads:
            self._beat_of[self._id] = self._beat
            self._id = self._random.choice(sorted({burst.id for _, burst in self._reads}))
            chosen = next(entry for entry in self._reads if entry[1].id == self._id)
            self._reads.remove(chosen)
            self._reads.appendleft(chosen)
            self._beat = self._beat_of.get(self._id, 0)
        return super().drive()


class Facts(AxiRules):
    """A checker of the AXI rules for a master, and of the further facts in docs/integration.md."""

    def __init__(self, name, bus_bytes, model):
        super().__init__(name, bus_bytes, (0, 0))
        self.model = model
        self.most = dict.fromkeys(MOST[name], 0)
        self.ids = {part: set() for part in MOST[name]}
        self.most_ahead = 0

    def address(self, part, address, ready):
        super().address(part, address, ready)
        if address is None:
            return
        self.ids[part].add(address.id)
        assert address.length < 16
        self.most[part] = max(self.most[part], len(self._reads if part == "AR" else self._writes))
        assert self.most[part] <= MOST[self._name][part]
        self.most_ahead = max(self.most_ahead, len(self._lengths))
        assert self.most_ahead <= AHEAD

    def write_beat(self, beat, ready):
        assert beat is None or self._lengths, "data without an address before it"
        super().write_beat(beat, ready)

    def read_ended(self):
        oldest = next(read for read in self._reads if read.id == self.model.outputs.r.id)
        self._reads.remove(oldest)


@cocotb.test
@cocotb.parametrize(latency=[0, 300])
async def bus_facts(dut, latency):
    tb = TB(dut)
    for port, name in enumerate(("host", "weight")):
        bus = (tb.config.host_bus_bytes, tb.config.weight_bus_bytes)[port]
        model = Shuffled(
            data=getattr(tb, name).model.data,
            bus_bytes=bus,
            port=port,
            latency=latency,
            stall=0.1,
            seed=random_seed() & 0xFFFF,
        )
        memory = AxiMemory(dut, f"m_axi_{name}", model, Facts(name, bus, model))
        setattr(tb, name, memory)
    await tb.start()
    for number in range(PROGRAMS):
        image = random_program(tb.config, f"{random_seed()} bus facts {number}")
        await tb.check_program(image, limit=1_000_000)
    host, weight = tb.host.rules, tb.weight.rules
    assert host.ids == {"AR": {0, 1}, "AW": {0}} and weight.ids == {"AR": {0}}
    assert min(*host.most.values(), *weight.most.values()) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("simulator", quick_simulators())
def test_bus_facts(simulator):
    run_machine("system.test_bus_facts", simulator)
