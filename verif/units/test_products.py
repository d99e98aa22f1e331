# SPDX-License-Identifier: Apache-2.0
"""The decoder's multipliers against Python's, operands at the ends of their ranges or between."""

import cocotb
import pytest

from systola.hdl.control.products import ProductUnit, operand_bits
from systola.hdl.parts.multiplier import LATENCY
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "small": small_config(),
    "largest": small_config(buffer_lines=1 << 19, accumulator_rows=1 << 15),
}


def unit(variant=None):
    return ProductUnit(config=CONFIGS[variant or chosen_variant()])


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_operands(dut, rate):
    """A product of each kind in every enabled cycle."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("products", rate, chosen_variant())
    widths = operand_bits(CONFIGS[chosen_variant()])
    inside = []
    for _ in range(1000):
        enable = random.random() < rate
        operands = {
            name: {
                operand: random.choice((0, 1, (1 << bits) - 1, random.getrandbits(bits)))
                for operand, bits in zip("ab", both, strict=True)
            }
            for name, both in widths.items()
        }
        await bench.cycle(enable=enable, operands=operands)
        if len(inside) >= LATENCY:
            shown = bench.get("products")
            expected = inside[-LATENCY]
            assert {name: shown[name] for name in widths} == expected
        if enable:
            inside.append({name: both["a"] * both["b"] for name, both in operands.items()})


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_products(simulator, variant):
    run_unit("test_products", simulator, unit(variant), variant=variant)
