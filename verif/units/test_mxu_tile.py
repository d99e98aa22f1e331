# SPDX-License-Identifier: Apache-2.0
"""One tile of the array against numpy: skewed vectors, swaps, sums from above, neighbours."""

import cocotb
import numpy as np
import pytest

from systola.hdl.mxu_tile import MXUTile
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

VARIANTS = {"5x6": (5, 6, 2), "4x4": (4, 4, 4), "3x5": (3, 5, 1)}
"""Rows, columns, columns to a stage."""
TILES = 12


def unit(variant=None):
    rows, cols, stage = VARIANTS[variant or chosen_variant()]
    return MXUTile(rows=rows, cols=cols, columns_per_stage=stage)


def int8(array):
    """The bytes of an int8 array as one number."""
    return int.from_bytes(array.astype(np.int8).tobytes(), "little")


def int32(array):
    """The words of an int32 array as one number."""
    return int.from_bytes(array.astype("<i4").tobytes(), "little")


@cocotb.test
@cocotb.parametrize((("gap", "holds"), [(0, 0), (3, 0), (0, 2)]))
async def products(dut, gap, holds):
    """A vector in every cycle; a new tile as often as loading allows, or up to `gap` later.

    Up to `holds` cycles of `hold` come between any two, and take over the loading of the one
    before them.
    """
    rows, cols, stage = VARIANTS[chosen_variant()]
    stages = -(-cols // stage)
    group = np.arange(cols) // stage
    random = rng("mxu_tile", gap, holds)
    data = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, unit())
    await bench.start()
    # Zero weights and activations first, so that nothing is unknown.
    await bench.cycle(load=(1 << rows) - 1)
    await bench.cycle(load=0, swap=(1 << rows) - 1)
    for _ in range(rows + 2 * stages + 2):
        await bench.cycle(swap=0)

    # When each tile is loaded and swapped in: row k is loaded at load + k, swapped at swap + k.
    loads, swaps = [], []
    free = 0
    for _ in range(TILES):
        loads.append(free + random.randint(0, gap))
        swaps.append(loads[-1] + 1 + random.randint(0, gap))
        free = max(swaps[-1] + stages - 1, loads[-1] + rows)
    end = swaps[-1] + 12
    length = end + rows + stages + 4
    weights = data.integers(-128, 128, (TILES, rows, cols))
    weights[0] = -128
    x = data.integers(-128, 128, (end, rows))
    x[swaps[0] + 1] = -128
    above = data.integers(-(1 << 31), 1 << 31, (length, cols))

    activations = np.zeros((length, rows), int)
    swap = np.zeros(length, int)
    load = np.zeros(length, int)
    bus = np.zeros((length, cols), int)
    for k in range(rows):
        activations[k : end + k, k] = x[:, k]
        for tile in range(TILES):
            swap[swaps[tile] + k] |= 1 << k
            load[loads[tile] + k] |= 1 << k
            bus[loads[tile] + k] = weights[tile, k]

    sums, right, right_swap = [], [], []
    for t in range(length):
        held = random.randint(0, holds)
        await bench.cycle(
            activations=int8(activations[t]),
            swap=int(swap[t]),
            load=0 if held else int(load[t]),
            weights=int8(bus[t]),
            partial_in=int32(above[t]),
        )
        sums.append(list(bench.get("partial_out")))
        right.append(list(bench.get("activations_out")))
        right_swap.append(bench.get("swap_out"))
        for _ in range(held):
            await bench.cycle(
                hold=1,
                load=int(load[t]),
                activations=random.getrandbits(8 * rows),
                swap=random.getrandbits(rows),
                partial_in=random.getrandbits(32 * cols),
            )
        bench.set(hold=0)
    sums = np.array(sums)

    assert (np.array(right)[stages:] == activations[:-stages]).all()
    assert right_swap[stages:] == list(swap[:-stages])
    columns = np.arange(cols)
    for t in range(swaps[0] + 1, end):
        tile = sum(when < t for when in swaps) - 1
        expected = x[t] @ weights[tile] + above[t + 1 + group, columns]
        leaves = t + rows - 1 + 2 + group
        assert (sums[leaves, columns] == expected.astype(np.int32)).all(), f"vector of cycle {t}"


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_mxu_tile(simulator, variant):
    run_unit("test_mxu_tile", simulator, unit(variant), variant=variant)
