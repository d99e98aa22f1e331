# SPDX-License-Identifier: Apache-2.0
"""The test of the multiplier of each fabric, against Python's product."""

import cocotb
import pytest
from amaranth.hdl import Shape

from systola.hdl.parts.fabric import Fabric
from systola.hdl.parts.multiplier import LATENCY, Multiplier
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

SHAPES = ("s18 s18", "u18 s18", "u18 u18", "s9 s8", "s16 u16", "u1 s12")
VARIANTS = [
    f"{fabric.value} {shapes}"
    for shapes in SHAPES
    for fabric in (Fabric.GENERIC, Fabric.ECP5, Fabric.GOWIN)
] + [f"ice40 {shapes}" for shapes in ("s16 s16", "u16 s16", "s9 u8", "u16 u16", "u18 s18")]
VARIANTS += [f"{name} s16 s16 short" for name in ("generic", "ecp5", "gowin", "ice40")]
"""Each variant is a fabric and the shapes of two operands: s16 is signed, with 16 bits.

With `short` the multiplier has no `pipeline` register, so the latency is a cycle less.
"""


def operands(variant):
    return [Shape(int(text[1:]), text[0] == "s") for text in variant.split()[1:3]]


def unit(variant=None):
    variant = variant or chosen_variant()
    a, b = operands(variant)
    return Multiplier(a=a, b=b, pipeline="short" not in variant)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.6])
async def random_products(dut, rate):
    """Check products of extreme and random operands.

    A product comes `latency` enabled cycles later, and then stays.
    """
    latency = LATENCY - ("short" in chosen_variant())
    shapes = operands(chosen_variant())
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("multiplier", rate)
    extremes = []
    for shape in shapes:
        low = -(1 << (shape.width - 1)) if shape.signed else 0
        high = low + (1 << shape.width) - 1
        extremes.append([low, low + 1, 0, high - 1, high, *([-1] if shape.signed else [])])
    given = [(a, b) for a in extremes[0] for b in extremes[1]]
    while len(given) < 400:
        given.append(tuple(random.randint(numbers[0], max(numbers)) for numbers in extremes))
    products = []
    for a, b in given:
        moving = False
        while not moving:
            moving = random.random() < rate
            await bench.cycle(a=a if moving else ~a, b=b, enable=moving)
            if len(products) >= latency:
                bench.expect("product", products[-latency])
        products.append(a * b)


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_multiplier(simulator, variant):
    fabric = Fabric(variant.split()[0])
    run_unit("test_multiplier", simulator, unit(variant), variant=variant, fabric=fabric)
