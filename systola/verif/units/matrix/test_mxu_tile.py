# SPDX-License-Identifier: Apache-2.0
"""The test of one block of the array against numpy: sums, swaps, low bytes, and flags passed on."""

import cocotb
import numpy as np
import pytest

from systola.hdl.matrix.mxu_tile import MXUTile
from systola.hdl.parts.fabric import Fabric
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

SIZES = {"5x6": (5, 6, 2, True), "4x4": (4, 4, 4, False), "3x5": (3, 5, 1, True)}
"""The size of a block: rows, columns, columns to a stage, and whether low bytes of int16 may
come.
"""
PACKED, MIXED = "two in a DSP", "rows without"
VARIANTS = [
    *(f"{size}:generic" for size in SIZES),
    *("5x6:ecp5", "4x4:ecp5", f"5x6:ecp5:{PACKED}", f"4x4:ecp5:{PACKED}"),
    f"4x4:ecp5:{PACKED}:{MIXED}",
    *("5x6:xilinx7", "4x4:xilinx7", "3x5:xilinx7", "5x6:ice40", "4x4:ice40"),
    *("5x6:nexus", "4x4:nexus"),
]
"""Each variant is a size, a fabric, and how the products use DSP blocks.

Two products may share a block, and some rows may have no blocks.
"""
ROWS_ABOVE = 2
TILES = 12


def unit(variant=None):
    size, *how = (variant or chosen_variant()).split(":")
    rows, cols, stage, wide = SIZES[size]
    return MXUTile(
        rows=rows,
        cols=cols,
        columns_per_stage=stage,
        wide=wide,
        depth=rows + ROWS_ABOVE,
        products_per_dsp=2 if PACKED in how else 1,
        rows_in_logic=2 if MIXED in how else 0,
    )


def int8(array):
    """Return the bytes of an int8 array as one number, the first byte lowest."""
    return int.from_bytes(array.astype(np.int8).tobytes(), "little")


def packed(array, bits):
    """Return signed numbers of `bits` bits as one number, the first of them lowest."""
    return sum((int(x) % (1 << bits)) << (bits * k) for k, x in enumerate(array))


@cocotb.test
@cocotb.parametrize((("gap", "holds"), [(0, 0), (3, 0), (0, 2)]))
async def products(dut, gap, holds):
    """Check the sums of a vector in every cycle, while tiles are loaded and swapped in.

    Tiles follow each other as soon as possible, or up to `gap` cycles later. After any cycle the
    array may be on hold for up to `holds` cycles, in which rows of weights are loaded. In blocks
    with 16-bit modes, some vectors and some tiles are low bytes of int16.
    """
    rows, cols, stage, wide = SIZES[chosen_variant().split(":")[0]]
    stages = -(-cols // stage)
    group = np.arange(cols) // stage
    random = rng("mxu_tile", gap, holds)
    data = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, unit())
    await bench.start()
    # Zero weights and activations come first, so that no value inside is unknown.
    await bench.cycle(load=(1 << rows) - 1)
    await bench.cycle(load=0, swap=(1 << rows) - 1)
    for _ in range(rows + 2 * stages + 4):
        await bench.cycle(swap=0)

    # Row k of a tile is loaded in cycle `loads` + k, and swapped in in cycle `swaps` + k.
    loads, swaps = [], []
    free = 0
    for _ in range(TILES):
        loads.append(free + random.randint(0, gap))
        swaps.append(loads[-1] + 1 + random.randint(0, gap))
        free = max(swaps[-1] + stages - 1, loads[-1] + rows)
    end = swaps[-1] + 12
    length = end + rows + stages + 6
    weights = data.integers(-128, 128, (TILES, rows, cols))
    weights[0] = -128
    x = data.integers(-128, 128, (end, rows))
    x[swaps[0]] = -128
    least, most = (-128 * 255, 255 * 255) if wide else (-128 * 127, 128 * 128)
    above = ROWS_ABOVE * data.choice([least, 0, most], (length, cols))
    above //= data.choice([1, 3, 1000], (length, cols))

    activations = np.zeros((length, rows), int)
    swap = np.zeros(length, int)
    # `low_vectors` and `low_tiles` show which vectors and tiles are low bytes of int16. In cycles
    # without a swap, `unsigned_weights` has no meaning, so it is random.
    low_vectors = data.integers(0, 2, end) * wide
    low_vectors[swaps[0]] = 0
    low_tiles = data.integers(0, 2, TILES) * wide
    low_tiles[0] = 0
    if wide:
        # This tile and vector make the largest product of low bytes.
        weights[1] = x[swaps[1]] = -1
        low_tiles[1] = low_vectors[swaps[1]] = 1
    unsigned_weights = data.integers(0, 1 << rows, length) * wide
    load = np.zeros(length, int)
    bus = np.zeros((length, cols), int)
    for k in range(rows):
        activations[k : end + k, k] = np.where(low_vectors, x[:, k] % 256, x[:, k])
        for tile in range(TILES):
            swap[swaps[tile] + k] |= 1 << k
            unsigned_weights[swaps[tile] + k] &= ~(1 << k)
            unsigned_weights[swaps[tile] + k] |= int(low_tiles[tile]) << k
            load[loads[tile] + k] |= 1 << k
            bus[loads[tile] + k] = weights[tile, k]

    flags = {"swap": swap}
    if wide:
        flags |= {"unsigned_weights": unsigned_weights}
    bits = len(bench.dut.partial_in) // cols
    sums, right = [], []
    right_flags = {name: [] for name in flags}
    for t in range(length):
        held = random.randint(0, holds)
        await bench.cycle(
            activations=packed(activations[t], 8 + wide),
            **{name: int(bits[t]) for name, bits in flags.items()},
            load=0 if held else int(load[t]),
            weights=int8(bus[t]),
            partial_in=packed(above[t], bits),
            hold_next=held > 0,
        )
        sums.append(list(bench.get("partial_out")))
        right.append(list(bench.get("activations_out")))
        for name, seen in right_flags.items():
            seen.append(bench.get(f"{name}_out"))
        for left in reversed(range(held)):
            await bench.cycle(
                hold_next=left > 0,
                load=int(load[t]),
                activations=random.getrandbits((8 + wide) * rows),
                **{name: random.getrandbits(rows) for name in flags},
                partial_in=random.getrandbits(bits * cols),
            )
    sums = np.array(sums)

    assert (np.array(right)[stages:] == activations[:-stages]).all()
    for name, seen in right_flags.items():
        assert seen[stages:] == list(flags[name][:-stages]), name
    columns = np.arange(cols)
    for t in range(swaps[0], end):
        tile = sum(when <= t for when in swaps) - 1
        vector = x[t] % 256 if low_vectors[t] else x[t]
        matrix = weights[tile] % 256 if low_tiles[tile] else weights[tile]
        expected = vector @ matrix + above[t + 3 + group, columns]
        leaves = t + rows - 1 + 4 + group
        assert (sums[leaves, columns] == expected).all(), f"vector of cycle {t}"


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_mxu_tile(simulator, variant):
    fabric = Fabric(variant.split(":")[1])
    run_unit("test_mxu_tile", simulator, unit(variant), variant=variant, fabric=fabric)
