# SPDX-License-Identifier: Apache-2.0
"""The test of the delay line: values and their valid bits come out exactly after the delay."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.parts.delay_line import DelayLine
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

CYCLES = {"5": 5, "1": 1}


def unit(variant=None):
    layout = data.StructLayout({"a": 7, "b": 2})
    return DelayLine(layout=layout, cycles=CYCLES[variant or chosen_variant()])


@cocotb.test
@cocotb.parametrize(holds=[0, 3])
async def delay(dut, holds):
    """Check that cycles with `hold` do not count, and that inputs in these cycles are lost."""
    bench = Bench(dut, unit())
    await bench.start()
    random, cycles = rng("delay"), CYCLES[chosen_variant()]
    given = [({"a": random.getrandbits(7), "b": random.getrandbits(2)}, i % 3) for i in range(50)]
    for now, (value, valid) in enumerate(given):
        for _ in range(random.randint(0, holds)):
            await bench.cycle(hold=1, input={"a": random.getrandbits(7), "b": 0}, input_valid=1)
        bench.set(hold=0)
        await bench.cycle(input=value, input_valid=valid == 0)
        if now < cycles:
            bench.expect("output_valid", 0)
        else:
            value, valid = given[now - cycles]
            output = bench.get("output")
            assert (output.a, output.b) == (value["a"], value["b"])
            bench.expect("output_valid", valid == 0)


@cocotb.test
async def reset(dut):
    """Check that a reset clears all values inside the delay line."""
    bench = Bench(dut, unit())
    await bench.start()
    await bench.cycle(input_valid=1)
    dut.rst.value = 1
    await bench.cycle(input_valid=0)
    dut.rst.value = 0
    for _ in range(7):
        await bench.cycle()
        bench.expect("output_valid", 0)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CYCLES))
def test_delay_line(simulator, variant):
    run_unit("test_delay_line", simulator, unit(variant), variant=variant)
