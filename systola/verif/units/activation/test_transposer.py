# SPDX-License-Identifier: Apache-2.0
"""The test of the transposer with tiles of random bytes.

The transposer must show zeros in cycles in which no line is taken.
"""

import cocotb
import numpy as np
import pytest

from systola.hdl.activation.transposer import Transposer
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

COLS = {"8": 8, "2": 2, "7": 7, "16": 16}


def unit(variant=None):
    return Transposer(cols=COLS[variant or chosen_variant()])


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.4])
async def tiles(dut, rate):
    """Check tiles that come in by rows and go out by columns, at full rate and with gaps."""
    bench = Bench(dut, unit())
    await bench.start()
    random, cols = rng("transposer", rate), COLS[chosen_variant()]

    async def idle(**inputs):
        while random.random() >= rate:
            await bench.cycle(load=0, take=0, line=random.getrandbits(8 * cols))
            await bench.cycle()
            bench.expect("result", 0)
        await bench.cycle(**inputs)

    for _ in range(20):
        tile = np.frombuffer(random.randbytes(cols * cols), np.uint8).reshape(cols, cols)
        for row in tile:
            await idle(load=1, take=0, line=int.from_bytes(row.tobytes(), "little"))
        for column in tile.T:
            await idle(load=0, take=1, line=random.getrandbits(8 * cols))
            await bench.cycle(take=0)
            bench.expect("result", int.from_bytes(column.tobytes(), "little"))


@pytest.mark.parametrize(("simulator", "variant"), variants(*COLS))
def test_transposer(simulator, variant):
    run_unit("test_transposer", simulator, unit(variant), variant=variant)
