# SPDX-License-Identifier: Apache-2.0
"""The test of the weight loader: rows come in order, and a tile in as few cycles as possible.

Weights in use are never overwritten.
"""

import cocotb
import pytest

from systola.hdl.matrix.weight_loader import WeightLoader
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4x8": small_config(rows=4, cols=8, columns_per_stage=4, weight_fifo_tiles=2),
    "3x8": small_config(rows=3, cols=8, columns_per_stage=1, weight_fifo_tiles=2),
    "4x4": small_config(weight_fifo_tiles=2),
}


def unit(variant=None):
    return WeightLoader(config=CONFIGS[variant or chosen_variant()])


class Model(Bench):
    """A bench of the weight loader, with a FIFO of `level` rows and a model of the array's weights.

    `time` counts the cycles of the array, which are the cycles without `hold`.
    """

    def __init__(self, dut):
        super().__init__(dut, unit())
        config = CONFIGS[chosen_variant()]
        self.rows = config.rows
        self.stages = -(-config.cols // config.columns_per_stage)
        self.level = 0
        self.time = 0
        self.swaps = []
        self.loads = 0
        self.holds = 0

    async def step(self, arrive=0, swap=False):
        """Run one cycle in which `arrive` rows come in; with `swap` a tile is swapped in if it is
        ready.
        """
        tile, row = divmod(self.loads, self.rows)
        cold = not self.swaps or self.time > self.swaps[-1] + self.stages
        begins = self.level > 0 and row == 0 and tile == len(self.swaps) and cold
        waiting = -(-self.loads // self.rows) > len(self.swaps)
        would_be_ready = begins or waiting
        swap = swap and would_be_ready
        await self.cycle(arrived=self.level > 0, swap=swap)
        ready, hold, load, take = self.gets("ready", "hold", "load", "take")
        assert ready == would_be_ready
        # After a swap each row must come in time; if a row is missing, the array is on hold.
        assert hold == (row > 0 and tile < len(self.swaps) and self.level == 0)
        if self.level > 0 and (row > 0 or begins):
            assert (load, take) == (1 << row, 1)
            # A swap reaches row 0 of the array two cycles after the loader, and row k in k cycles
            # more. The last stage of columns takes the weights `stages` - 1 cycles after the first.
            if tile:
                taken = self.swaps[tile - 1] + 2 + row + self.stages - 1
                assert self.time >= taken, "weights still in use"
            if tile < len(self.swaps):
                assert self.time < self.swaps[tile] + 2 + row, "weights come too late"
            self.loads += 1
        else:
            assert (load, take) == (0, 0)
        if swap:
            self.swaps.append(self.time)
        self.level += arrive - take
        self.holds += hold
        self.time += not hold


@cocotb.test
async def full_rate(dut):
    """Check that a tile can be swapped in every max(rows, stages + 1) cycles, if its rows are
    present.
    """
    bench = Model(dut)
    await bench.start()
    bench.level = 2
    for _ in range(100):
        await bench.step(arrive=bench.level <= 2, swap=True)
    assert bench.holds == 0 and bench.time == 100
    period = max(bench.rows, bench.stages + 1)
    assert bench.swaps == list(range(0, 100, period))


@cocotb.test
@cocotb.parametrize(rate=[0.9, 0.5, 0.1])
async def random_use(dut, rate):
    """Check rows that arrive at random, and tiles that are swapped in at once or later."""
    bench = Model(dut)
    await bench.start()
    random = rng("weight_loader", chosen_variant(), rate)
    for _ in range(2000):
        await bench.step(random.random() < rate and bench.level < 6, random.random() < 0.5)
    assert len(bench.swaps) > 20 and (bench.holds > 20 or rate > 0.3)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_weight_loader(simulator, variant):
    run_unit("test_weight_loader", simulator, unit(variant), variant=variant)
