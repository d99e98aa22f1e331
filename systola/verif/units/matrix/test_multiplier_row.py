# SPDX-License-Identifier: Apache-2.0
"""The test of the multipliers of an array's row, on each fabric, with every pair of operands."""

import cocotb
import pytest

from systola.hdl.matrix.multiplier_row import MultiplierRow
from systola.hdl.parts.fabric import Fabric
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

IMPLEMENTATIONS = (
    *("generic 1", "ecp5 0", "ecp5 1", "ecp5 2", "ice40 1", "nexus 1", "xilinx7 1"),
    "gowin 1",
)
"""For each implementation: the name of its fabric, and how many products share a DSP block.

With 0, the products use no DSP block.
"""
VARIANTS = [f"{how} {kind}" for how in IMPLEMENTATIONS for kind in ("int8", "wide")]
COLUMNS = 8


def unit(variant=None):
    _, products, kind = (variant or chosen_variant()).split()
    return MultiplierRow(
        cols=COLUMNS,
        columns_per_stage=COLUMNS,
        wide=kind == "wide",
        products_per_dsp=int(products),
    )


@cocotb.test
async def every_product(dut):
    """Check the products of all pairs of operands, in even and in odd columns.

    An even and an odd column may share a DSP block.
    """
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("multiplier_row")
    wide = chosen_variant().endswith("wide")
    operands = range(-128, 256 if wide else 128)
    bits = 9 if wide else 8

    def packed(numbers):
        return sum((x % (1 << bits)) << (bits * k) for k, x in enumerate(numbers))

    lower, upper = (random.sample(operands, len(operands)) for _ in range(2))
    pairs = COLUMNS // 2
    expected = []
    for first in range(0, len(operands), pairs):
        weights = [w for both in zip(lower, upper, strict=True) for w in both]
        weights = weights[2 * first : 2 * (first + pairs)]
        for a in random.sample(operands, len(operands)):
            await bench.cycle(activations=packed([a]), weights=packed(weights), enable=1, load=1)
            if len(expected) >= 3:
                assert list(bench.get("products")) == expected[-3]
            expected.append([a * w for w in weights])
            if random.random() < 0.01:
                await bench.cycle(activations=0, weights=0, enable=0)
    assert len(expected) * pairs == len(operands) ** 2


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_multiplier_row(simulator, variant):
    fabric = Fabric(variant.split()[0])
    run_unit("test_multiplier_row", simulator, unit(variant), variant=variant, fabric=fabric)
