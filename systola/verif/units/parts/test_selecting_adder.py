# SPDX-License-Identifier: Apache-2.0
"""The test of the adder that selects one of its operands bit by bit, on each fabric."""

import cocotb
import pytest
from cocotb.triggers import Timer

from systola.hdl.parts.fabric import Fabric
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.verif.units.unit import chosen_variant, rng, run_unit, variants

VARIANTS = [
    f"{fabric} {width}{subtracted}"
    for fabric in ("generic", "ecp5")
    for width in (1, 7, 32)
    for subtracted in ("", " subtracted")
]
CYCLES = 2000


def unit(variant=None):
    _, width, *subtracted = (variant or chosen_variant()).split()
    return SelectingAdder(width=int(width), subtracted=bool(subtracted))


@cocotb.test
async def sums(dut):
    """Check sums of random operands, often with long carries, against Python's integers."""
    _, width, *subtracted = chosen_variant().split()
    width = int(width)
    random = rng("selecting_adder")
    for _ in range(CYCLES):
        a, b, c = (
            random.choice((0, 1, -1, random.getrandbits(width))) % (1 << width) for _ in range(3)
        )
        chosen = random.choice((0, -1, random.getrandbits(width))) % (1 << width)
        carry = random.getrandbits(1)
        dut.a.value, dut.b.value, dut.c.value, dut.choose_b.value = a, b, c, chosen
        dut.carry.value = carry
        await Timer(1, "ns")
        total = (~a if subtracted else a) + (b & chosen | c & ~chosen) + carry
        assert int(dut.total.value) == total % (1 << width)


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_selecting_adder(simulator, variant):
    fabric = Fabric(variant.split()[0])
    run_unit("test_selecting_adder", simulator, unit(variant), variant=variant, fabric=fabric)
