# SPDX-License-Identifier: Apache-2.0
"""The test of the weight fetch with a memory model: rows, rates, throttle, stalls, `stop`."""

import cocotb
import numpy as np
import pytest

from systola.hdl.transfers.weight_fetch import WeightFetch
from systola.sim.memory import MemoryModel
from systola.verif.kit.axi_memory import AxiMemory
from systola.verif.kit.checker import AxiRules
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "6 on 4": small_config(rows=3, cols=6, columns_per_stage=2, weight_fifo_tiles=2),
    "throttled": small_config(
        weight_bus_bytes=8, weight_throttle=(3, 7), weight_fifo_tiles=3, max_burst_beats=4
    ),
    "9 on 4": small_config(cols=9, columns_per_stage=3, max_burst_beats=256, weight_fifo_tiles=16),
}
BASE, TILES = 0x9_8765_4000, 200


def unit(variant=None):
    return WeightFetch(config=CONFIGS[variant or chosen_variant()])


class Weights(Bench):
    """A bench of the weight fetch between a memory and an array that takes rows."""

    def __init__(self, dut, *, latency=0, stall=0.0, name=""):
        super().__init__(dut, unit())
        self.config = config = CONFIGS[chosen_variant()]
        self.random = random = rng("weight_fetch", name, chosen_variant())
        bus = config.weight_bus_bytes
        self.beats_a_row = -(-config.cols // bus)
        self.tile_bytes = config.rows * self.beats_a_row * bus
        data = np.frombuffer(random.randbytes(TILES * self.tile_bytes), np.uint8)
        self.model = MemoryModel(
            data=data,
            bus_bytes=bus,
            port=1,
            base=BASE,
            latency=latency,
            stall=stall,
            seed=random.getrandbits(8),
        )
        rules = AxiRules("weight", bus, (BASE, BASE + data.size))
        self.memory = AxiMemory(dut, "bus_", self.model, rules)
        self.commands = []
        self.rows = []
        self.taken = 0
        self.beats = []
        self.asked = 0
        self.popped = 0
        self.bursts = 0
        self.errors = []
        self.now = 0
        self.set(base=BASE)

    def ask(self, tile, count):
        """Queue a Read_Weights of `count` tiles from tile `tile` on."""
        beats = count * self.config.rows * self.beats_a_row
        transfer = {"address": tile * self.tile_bytes, "beats": beats}
        self.commands.append({"pc": self.asked, "transfer": transfer})
        self.asked += 1

    def expected(self, tiles):
        """Return the rows of weights that the array must get for the tiles numbered `tiles`."""
        pitch = self.beats_a_row * self.config.weight_bus_bytes
        return [
            self.model.data[start : start + self.config.cols].tobytes()
            for tile in tiles
            for start in range(tile * self.tile_bytes, (tile + 1) * self.tile_bytes, pitch)
        ]

    async def step(self, take=False, **inputs):
        """Run one cycle; with `take` the array takes the oldest row, if a row is present."""
        inputs["queue__valid"] = bool(self.commands)
        if self.commands:
            inputs["queue__command"] = self.commands[0]
        # Whether a row is present depends on no input of this cycle, so it is read before the edge.
        await self.cycle(**inputs, rows__pop=take and self._has_row())
        if len(self.rows) < self.taken:
            self.rows.append(self.get("rows__row").to_bytes(self.config.cols, "little"))
        if self._driven["rows__pop"]:
            assert self.get("rows__valid")
            self.taken += 1
        if self.dut.bus__rvalid.value and self.dut.bus__rready.value:
            self.beats.append(self.now)
        self.bursts += bool(self.dut.bus__arvalid.value and self.dut.bus__arready.value)
        if self.get("error"):
            self.errors.append(self.get("error_pc"))
        if self.get("queue__pop"):
            self.commands.pop(0)
            self.popped += 1
        self.memory.step()
        self.now += 1

    def _has_row(self):
        """Return whether the FIFO has a row in this cycle.

        A row is there from two cycles after its last beat until the array takes the row.
        """
        n = self.beats_a_row
        complete = sum(beat + 2 <= self.now for beat in self.beats[n - 1 :: n])
        return complete > self.taken


@cocotb.test
@cocotb.parametrize((("latency", "stall", "take"), [(0, 0.0, 1.0), (25, 0.0, 1.0), (3, 0.3, 0.3)]))
async def random_tiles(dut, latency, stall, take):
    """Check that rows come in order over several Read_Weights, at any pace of memory and array."""
    bench = Weights(dut, latency=latency, stall=stall, name=f"{latency}")
    await bench.start()
    tiles = []
    for _ in range(8):
        count = bench.random.choice((1, 1, 2, 5))
        first = bench.random.randint(0, TILES - count)
        bench.ask(first, count)
        tiles += range(first, first + count)
    expected = bench.expected(tiles)
    for _ in range(20000):
        await bench.step(bench.random.random() < take)
        if len(bench.rows) == len(expected):
            break
    assert bench.rows == expected
    assert bench.popped == 8
    await bench.step()
    assert bench.get("quiet") and not bench.get("rows__valid") and not bench.errors


@cocotb.test
async def one_after_the_other(dut):
    """Check that the latency of the memory is paid once, not for each Read_Weights."""
    bench = Weights(dut, latency=20, name="gaps")
    await bench.start()
    for tile in range(6):
        bench.ask(tile, 1)
    while len(bench.rows) < 6 * bench.config.rows:
        await bench.step(True)
    numerator, denominator = bench.config.weight_throttle
    beats = 6 * bench.config.rows * bench.beats_a_row
    assert bench.beats[-1] - bench.beats[0] <= beats * denominator // numerator


@cocotb.test
async def rate(dut):
    """Check that a beat comes in every cycle, or in exactly the share that the throttle allows."""
    bench = Weights(dut, latency=5, name="rate")
    await bench.start()
    bench.ask(0, TILES)
    beats = TILES * bench.config.rows * bench.beats_a_row
    while len(bench.beats) < beats:
        await bench.step(True)
    numerator, denominator = bench.config.weight_throttle
    shifted = zip(bench.beats, bench.beats[numerator:], strict=False)
    assert {late - early for early, late in shifted} == {denominator}
    assert len(bench.rows) > TILES * bench.config.rows - 4


@cocotb.test
async def fills_and_waits(dut):
    """Check that the weight FIFO fills to the last row if no row is taken, and no row is lost."""
    bench = Weights(dut, name="fill")
    await bench.start()
    config = bench.config
    depth = config.weight_fifo_tiles * config.rows
    bench.ask(0, 2 * config.weight_fifo_tiles)
    for _ in range(20 * depth):
        await bench.step()
    assert len(bench.beats) == depth * bench.beats_a_row
    for _ in range(40 * depth):
        await bench.step(True)
    assert bench.rows == bench.expected(range(2 * config.weight_fifo_tiles))


@cocotb.test
async def limit(dut):
    """Check that no more than 8 read bursts are under way."""
    bench = Weights(dut, latency=100, name="limit")
    await bench.start()
    bench.ask(0, 40)
    for _ in range(60):
        await bench.step(True)
    assert bench.bursts == 8 or bench.config.max_burst_beats > 16
    assert bench.bursts <= 8 and not bench.get("bus__arvalid")


@cocotb.test
async def errors(dut):
    """Check that each bus error is reported with the number of its Read_Weights.

    Two beats of the second of three Read_Weights have an error.
    """
    bench = Weights(dut, name="errors")
    await bench.start()
    first = BASE + 7 * bench.tile_bytes
    bus = bench.config.weight_bus_bytes
    bench.model.error_range = first + bus, first + 3 * bus
    for tile in (1, 7, 3):
        bench.ask(tile, 1)
    while len(bench.rows) < 3 * bench.config.rows:
        await bench.step(True)
    assert bench.errors == [1, 1]


@cocotb.test
async def stop(dut):
    """Check that no new burst begins after `stop`.

    Beats of bursts under way are dropped, even with the FIFO full.
    """
    bench = Weights(dut, latency=9, stall=0.2, name="stop")
    await bench.start()
    for _ in range(15):
        bench.ask(0, 40)
        for _ in range(bench.random.randint(1, 120)):
            await bench.step(stop=0)
        await bench.step(stop=1)
        announced = bench.bursts + 2  # one burst may wait on AR, and another for AR
        for _ in range(1000):
            await bench.step()
            if bench.get("quiet"):
                break
        assert bench.get("quiet") and bench.model.idle and bench.bursts <= announced
        await bench.step()
        assert not bench.get("bus__arvalid")
        bench.commands.clear()
        dut.rst.value = 1
        await bench.step(stop=0)
        dut.rst.value = 0


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_weight_fetch(simulator, variant):
    run_unit("test_weight_fetch", simulator, unit(variant), variant=variant)
