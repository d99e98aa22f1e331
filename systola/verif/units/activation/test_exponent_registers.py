# SPDX-License-Identifier: Apache-2.0
"""The test of the exponent registers against the golden model: sums, magnitudes, shifts."""

import cocotb
import pytest

from systola.golden.training import Exponents
from systola.hdl.activation.exponent_registers import MAGNITUDE_BITS, MEASURED, ExponentRegisters
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit


@cocotb.test
async def measures(dut):
    """Check random Measures, one after the other; after each of them all registers are read."""
    bench = Bench(dut, ExponentRegisters())
    await bench.start()
    random, registers = rng("exponent_registers"), Exponents()
    for _ in range(300):
        about = {
            "exponent": random.randint(1, 7),
            "bits": random.choice((7, random.randrange(32))),
            **{name: random.randrange(8) for name in ("first", "second", "third")},
            "value": random.choice((0, random.randint(-9, 9), random.randint(-128, 127))) & 0xFF,
        }
        by_magnitude, seen = random.random() < 0.6, 0
        width = random.randint(0, MAGNITUDE_BITS)
        await bench.cycle(take=1, about=about)
        bench.set(take=0, about=dict.fromkeys(about, 0))
        for left in reversed(range(random.randint(1, 5))):
            for _ in range(random.choice((0, 0, 2))):
                await bench.cycle(counts=0, magnitude=random.getrandbits(MAGNITUDE_BITS))
            magnitude = random.getrandbits(MAGNITUDE_BITS) & ((1 << width) - 1)
            seen |= magnitude
            bench.set(last=left == 0, magnitudes=by_magnitude)
            await bench.cycle(counts=1, magnitude=magnitude)
        bench.set(counts=0, last=0, magnitudes=not by_magnitude)
        for _ in range(MEASURED - 1):
            await bench.cycle(magnitude=random.getrandbits(MAGNITUDE_BITS))
        terms = (about[name] for name in ("first", "second", "third", "value"))
        value = registers.total(*terms)
        if by_magnitude:
            value = max(value, seen.bit_length() - about["bits"])
        registers.set(about["exponent"], value)
        for register in range(8):
            await bench.cycle(select=register)
            shifts, (left, right) = bench.get("shifts"), registers.shifts(register)
            assert (shifts.left, shifts.right) == (left, right)
            assert shifts.replaces == (register != 0)


@cocotb.test
async def reset(dut):
    """Check that a reset sets all registers to zero."""
    bench = Bench(dut, ExponentRegisters())
    await bench.start()
    about = dict.fromkeys(("bits", "first", "second", "third"), 0)
    await bench.cycle(take=1, about={**about, "exponent": 3, "value": 5})
    await bench.cycle(take=0, last=1)
    bench.set(last=0)
    for _ in range(MEASURED):
        await bench.cycle(select=3)
    assert bench.get("shifts").right == 5
    dut.rst.value = 1
    await bench.cycle()
    dut.rst.value = 0
    await bench.cycle()
    assert bench.get("shifts").right == 0


@pytest.mark.parametrize("simulator", simulators())
def test_exponent_registers(simulator):
    run_unit("test_exponent_registers", simulator, ExponentRegisters())
