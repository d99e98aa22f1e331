# SPDX-License-Identifier: Apache-2.0
"""The test of the whole array against numpy: a vector in every cycle, and the fastest swaps."""

from itertools import pairwise

import cocotb
import numpy as np
import pytest

from systola.hdl.matrix.mxu import MXU, is_grid, make_tile
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    convert,
    rng,
    run_unit,
    small_config,
    variants,
)

CONFIGS = {
    "4x4": small_config(),
    "5x3": small_config(rows=5, cols=3, columns_per_stage=2, wide=False),
    "2x8": small_config(rows=2, cols=8, columns_per_stage=1),
    "40x36": small_config(rows=40, cols=36, host_bus_bytes=64, weight_bus_bytes=64),
}


def unit(variant=None):
    return MXU(config=CONFIGS[variant or chosen_variant()])


def int8(array):
    """Return the bytes of an int8 array as one number, the first byte lowest."""
    return int.from_bytes(array.astype(np.int8).tobytes(), "little")


@cocotb.test
@cocotb.parametrize((("gap", "holds"), [(0, 0), (4, 2)]))
async def products(dut, gap, holds):
    """Check the sums of a vector in every cycle, while tiles are loaded and swapped in.

    Tiles follow each other as soon as possible, or up to `gap` cycles later. After any cycle the
    array may be on hold for up to `holds` cycles, in which a row of weights is loaded. With 16-bit
    modes, some vectors and some tiles are low bytes of int16.
    """
    config = CONFIGS[chosen_variant()]
    rows, stages = config.rows, -(-config.cols // config.columns_per_stage)
    latency = rows + stages + 2
    random = rng("mxu", chosen_variant(), gap)
    data = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, unit())
    await bench.start()

    tiles = 3 if is_grid(config) else 8
    weights = data.integers(-128, 128, (tiles, rows, config.cols))
    weights[0] = -128
    low_tiles = [0, config.wide]
    low_tiles += [random.getrandbits(1) * config.wide for _ in range(tiles - 2)]
    begins, swaps = [], []
    free = 0
    for _ in range(tiles):
        begins.append(free + random.randint(0, gap))
        swaps.append(begins[-1] + 1 + random.randint(0, gap))
        free = max(swaps[-1] + stages - 1, begins[-1] + rows)
    if not gap:
        assert {b - a for a, b in pairwise(swaps)} == {max(rows, stages)}
    end = swaps[-1] + rows

    expected = {}
    active = None
    for t in range(end + latency):
        load, bus = 0, np.zeros(config.cols)
        for tile, begin in enumerate(begins):
            if 0 <= t - begin < rows:
                load, bus = 1 << (t - begin), weights[tile, t - begin]
        corner = t == swaps[0]
        x = np.full(rows, -128) if corner else data.integers(-128, 128, rows)
        low = 0 if corner else random.getrandbits(1) * config.wide
        held = random.randint(0, holds)
        bench.set(load=0 if held else load, weights=int8(bus))
        if config.wide:
            # Without a swap, input `unsigned_weights` has no meaning.
            low_tile = low_tiles[swaps.index(t)] if t in swaps else random.getrandbits(1)
            bench.set(unsigned_vector=low, unsigned_weights=low_tile)
        await bench.cycle(vector=int8(x), swap=t in swaps, hold_next=held > 0)
        if t in swaps:
            active = swaps.index(t)
        if active is not None and t < end:
            vector = x % 256 if low else x
            matrix = weights[active] % 256 if low_tiles[active] else weights[active]
            expected[t + latency] = vector @ matrix
        if t in expected:
            sums = np.array(bench.get("sums"))
            assert (sums == expected[t]).all(), f"vector of cycle {t - latency}"
        for left in reversed(range(held)):
            vector, swap = random.getrandbits(8 * rows), random.getrandbits(1)
            if config.wide:
                bench.set(
                    unsigned_vector=random.getrandbits(1), unsigned_weights=random.getrandbits(1)
                )
            await bench.cycle(hold_next=left > 0, load=load, vector=vector, swap=swap)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_mxu(simulator, variant):
    config = CONFIGS[variant]
    assert MXU.latency(config) == config.rows + config.stages + 2
    assert is_grid(config) == (variant == "40x36")
    tile = convert(make_tile(config), "mxu_tile") if is_grid(config) else ""
    run_unit("test_mxu", simulator, unit(variant), variant=variant, modules=tile)
