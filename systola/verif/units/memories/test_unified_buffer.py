# SPDX-License-Identifier: Apache-2.0
"""The test of the unified buffer with all five ports: data, priorities, cost of a conflict."""

from collections import deque

import cocotb
import pytest

from systola.hdl.memories.unified_buffer import UnifiedBuffer
from systola.hdl.ports import BUFFER_LATENCY
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

SHAPE = {"rows": 5, "cols": 3, "columns_per_stage": 3, "buffer_banks": 4}
CONFIG = small_config(**SHAPE)
CONFIGS = {
    "plain": CONFIG,
    "parity": small_config(**SHAPE, parity=True),
    "training": small_config(**{**SHAPE, "rows": 5, "cols": 5}, training=True),
}
LINES, BANKS, WIDTH = CONFIG.buffer_lines, 4, 8 * 5
READERS = ("mxu", "operands", "dma_out")
WRITERS = ("activate", "dma_in")
"""The ports that write, in the order of their rank."""


def unit(variant=None):
    return UnifiedBuffer(config=CONFIGS[variant or chosen_variant()])


class Model(Bench):
    """A bench of the unified buffer, with the lines that it should hold."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.pairs = CONFIGS[chosen_variant()].reads_pairs
        self.lines = {}
        self.reading = deque([{}] * BUFFER_LATENCY)

    async def step(self, pair=False, **wanted):
        """Run one cycle of reads and writes; return the names of the ports that were served.

        `wanted` has a line for each port that reads, and a pair (line, data) for each port that
        writes. With `pair` the port `operands` reads the wanted line and the line before.
        """
        inputs, address = {"operands__pair": pair} if self.pairs else {}, {}
        for name in READERS + WRITERS:
            value = wanted.get(name)
            inputs[f"{name}__enable"] = value is not None
            if value is None:
                continue
            address[name] = value if name in READERS else value[0]
            inputs[f"{name}__address"] = address[name]
            if name in WRITERS:
                inputs[f"{name}__data"] = value[1]
        await self.cycle(**inputs)
        assert not self.get("flawed")
        for name, value in self.reading.popleft().items():
            self.expect(name, value, f"{name} BUFFER_LATENCY after its read")
        served = set()
        for ports in (READERS, WRITERS):
            taken = set()
            for name in ports:
                if name not in address:
                    continue
                bank = address[name] % BANKS
                banks = {bank, bank - 1} if pair and name == "operands" else {bank}
                self.expect(f"{name}__ready", not banks & taken, name)
                if not banks & taken:
                    served.add(name)
                taken |= banks
        reads = {f"{n}__data": self.lines[address[n]] for n in READERS if n in served}
        if pair and "operands" in served:
            reads["operands__before"] = self.lines[address["operands"] - 1]
        self.reading.append(reads)
        for name in served.intersection(WRITERS):
            self.lines[address[name]] = wanted[name][1]
        return served

    async def fill(self, random):
        """Write random data to every line."""
        for line in range(LINES):
            assert await self.step(dma_in=(line, random.getrandbits(WIDTH))) == {"dma_in"}


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.6])
async def random_use(dut, rate):
    """Check random lines on all five ports; no port reads a line that is being written."""
    bench = Model(dut)
    await bench.start()
    random = rng("unified_buffer", rate)
    await bench.fill(random)
    for _ in range(2500):
        wanted = {}
        lines = random.sample(range(LINES), 5)
        for name, line in zip(READERS + WRITERS, lines, strict=True):
            if random.random() < rate:
                is_read = name in READERS
                wanted[name] = line if is_read else (line, random.getrandbits(WIDTH))
        line = wanted.get("operands", 0)
        pair = bench.pairs and line % 2 and line - 1 not in lines and random.random() < 0.7
        await bench.step(pair=bool(pair), **wanted)
    for line in range(LINES):
        await bench.step(dma_out=line)
    for _ in range(BUFFER_LATENCY):
        await bench.step()


@cocotb.test
@cocotb.parametrize(operands=range(BANKS), dma_out=range(BANKS))
async def streams(dut, operands, dma_out):
    """Check how many cycles streams of consecutive lines lose in conflicts of banks.

    A stream loses one cycle for each stream of higher rank that it meets in a bank, and no other
    cycle. `operands` and `dma_out` are the numbers of banks by which the streams of these names are
    ahead of the stream `mxu`.
    """
    bench = Model(dut)
    await bench.start()
    random = rng("streams", operands, dma_out)
    await bench.fill(random)
    at = {"mxu": 0, "operands": 16 + operands, "dma_out": 32 + dma_out}
    at |= {"activate": 48, "dma_in": 52 + dma_out}
    lost = dict.fromkeys(at, 0)
    for _ in range(8):
        # The two writers overlap in lines, which does not matter, as these lines are not read.
        wanted = {
            name: line if name in READERS else (line, random.getrandbits(WIDTH))
            for name, line in at.items()
        }
        served = await bench.step(**wanted)
        for name in at:
            at[name] += name in served
            lost[name] += name not in served
    # A stream that has lost a cycle is one bank back, where it may meet another stream.
    occupied = {0, operands or BANKS - 1}
    behind = 0
    while (dma_out - behind) % BANKS in occupied:
        behind += 1
    assert (lost["mxu"], lost["operands"], lost["dma_out"]) == (0, operands == 0, behind)
    assert (lost["activate"], lost["dma_in"]) == (0, dma_out == 0)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_unified_buffer(simulator, variant):
    assert BUFFER_LATENCY == 2
    run_unit("test_unified_buffer", simulator, unit(variant), variant=variant)
