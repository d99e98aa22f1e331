# SPDX-License-Identifier: Apache-2.0
"""The test of the reader of weight tiles from the buffer: order and cycles of the lines read."""

import cocotb
import pytest

from systola.hdl.ports import BUFFER_LATENCY
from systola.hdl.transfers.tile_reader import TileReader
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4x4": small_config(training=True),
    "2x2": small_config(rows=2, cols=2, columns_per_stage=2, buffer_lines=32, training=True),
}


def unit(variant=None):
    return TileReader(config=CONFIGS[variant or chosen_variant()])


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def lines(dut, rate):
    """Check that the lines of random tiles are read in order, and one a cycle at full rate.

    Of two tiles with int16 weights, all even lines are read first, then all odd lines.
    """
    bench = Bench(dut, unit())
    await bench.start()
    config = CONFIGS[chosen_variant()]
    random, rows = rng("tile_reader", rate), config.rows
    for _ in range(30):
        wide = random.randrange(2)
        tiles = random.randint(1, config.buffer_lines // rows >> wide)
        first = random.randint(0, config.buffer_lines - (tiles * rows << wide))
        expected = []
        for tile in range(tiles):
            start = first + (tile * rows << wide)
            expected += range(start, start + (rows << wide), 1 + wide)
            if wide:
                expected += range(start + 1, start + 2 * rows, 2)
        await bench.cycle(start=1, line=first, tiles=tiles << wide, wide=wide)
        assert bench.get("idle")
        bench.set(start=0, line=0, tiles=1, wide=1 - wide)
        asked, pushes, now = [], [], 0
        while True:
            room, ready = random.random() < rate, random.random() < rate
            await bench.cycle(room=room, buffer__ready=ready)
            enable = bench.get("buffer__enable")
            assert room or not enable
            bench.expect("asks", enable and ready)
            if enable and ready:
                bench.expect("buffer__address", expected[len(asked)])
                asked.append(now)
            if bench.get("pushes"):
                pushes.append(now - BUFFER_LATENCY)
            if bench.get("idle"):
                break
            now += 1
        assert pushes == asked
        assert len(asked) == len(expected)
        assert rate < 1 or asked == list(range(len(expected)))


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_tile_reader(simulator, variant):
    run_unit("test_tile_reader", simulator, unit(variant), variant=variant)
