# SPDX-License-Identifier: Apache-2.0
"""The unified buffer with all four streams: data, priorities, and what a conflict costs."""

import cocotb
import pytest

from systola.hdl.unified_buffer import UnifiedBuffer
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit, small_config

CONFIG = small_config(rows=5, cols=3, columns_per_stage=3, buffer_banks=4)
LINES, BANKS, WIDTH = CONFIG.buffer_lines, 4, 8 * 5
WINNERS = {"dma_out": "mxu", "dma_in": "activate"}


def unit():
    return UnifiedBuffer(config=CONFIG)


class Model(Bench):
    """The unit and the lines that it should hold."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.lines = {}
        self.reading = {}

    async def step(self, *, mxu=None, dma_out=None, activate=None, dma_in=None):
        """One cycle: lines to read, (line, data) to write. Returns the names of those served."""
        wanted = {"mxu": mxu, "dma_out": dma_out, "activate": activate, "dma_in": dma_in}
        address = {"mxu": mxu, "dma_out": dma_out}
        for name in ("activate", "dma_in"):
            address[name] = wanted[name] and wanted[name][0]
        inputs = {}
        for name, value in wanted.items():
            inputs[f"{name}__enable"] = value is not None
            inputs[f"{name}__address"] = address[name] or 0
            if name in ("activate", "dma_in") and value is not None:
                inputs[f"{name}__data"] = value[1]
        await self.cycle(**inputs)
        for name, value in self.reading.items():
            assert self.get(f"{name}__data") == value, f"{name} one cycle after its read"
        served = set()
        for name, line in address.items():
            if line is None:
                continue
            winner = address.get(WINNERS.get(name))
            expected = winner is None or winner % BANKS != line % BANKS
            assert self.get(f"{name}__ready") == expected, name
            if expected:
                served.add(name)
        self.reading = {n: self.lines[address[n]] for n in ("mxu", "dma_out") if n in served}
        for name in ("activate", "dma_in"):
            if name in served:
                self.lines[address[name]] = wanted[name][1]
        return served

    async def fill(self, random):
        """Gives every line a value."""
        for line in range(LINES):
            assert await self.step(dma_in=(line, random.getrandbits(WIDTH))) == {"dma_in"}


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.6])
async def random_use(dut, rate):
    """Any lines on all four ports; nobody reads what is being written."""
    bench = Model(dut)
    await bench.start()
    random = rng("unified_buffer", rate)
    await bench.fill(random)
    for _ in range(2500):
        wanted = {}
        lines = random.sample(range(LINES), 4)
        for name, line in zip(("mxu", "dma_out", "activate", "dma_in"), lines, strict=True):
            if random.random() < rate:
                is_read = name in ("mxu", "dma_out")
                wanted[name] = line if is_read else (line, random.getrandbits(WIDTH))
        await bench.step(**wanted)
    for line in range(LINES):
        await bench.step(dma_out=line)
    await bench.step()


@cocotb.test
@cocotb.parametrize(offset=range(BANKS))
async def four_streams(dut, offset):
    """Streams that meet in a bank lose one cycle once; others none."""
    bench = Model(dut)
    await bench.start()
    random = rng("streams", offset)
    await bench.fill(random)
    at = {"dma_out": 16 + offset, "dma_in": 48 + offset}
    lost = {"dma_out": 0, "dma_in": 0}
    for row in range(8):
        served = await bench.step(
            mxu=row,
            dma_out=at["dma_out"],
            activate=(32 + row, random.getrandbits(WIDTH)),
            dma_in=(at["dma_in"], random.getrandbits(WIDTH)),
        )
        assert {"mxu", "activate"} <= served
        for name in at:
            at[name] += name in served
            lost[name] += name not in served
    assert set(lost.values()) == {int(offset == 0)}


@pytest.mark.parametrize("simulator", simulators())
def test_unified_buffer(simulator):
    run_unit("test_unified_buffer", simulator, unit())
