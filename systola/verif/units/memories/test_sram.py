# SPDX-License-Identifier: Apache-2.0
"""The test of every kind of memory against a dict: inferred, a macro's model, block RAMs."""

from importlib.resources import files

import cocotb
import pytest

from systola.hdl.memories.sram import Sram
from systola.hdl.parts.fabric import Fabric
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

MACRO = (128, 8192)
VARIANTS = {
    "transparent macro": (*MACRO, True, False),
    "macro": (*MACRO, False, False),
    "inferred": (20, 48, False, False),
    "transparent": (20, 48, True, False),
    "inferred, register": (20, 48, False, True),
    "macro, register": (*MACRO, False, True),
    "ecp5, register, x36": (100, 512, False, True),
    "ecp5, register, x18": (40, 1000, False, True),
    "ecp5, register, x9": (9, 1025, False, True),
    "ecp5, register, x4": (6, 4096, False, True),
    "ecp5, register, x2": (3, 8192, False, True),
    "ecp5, register, x1": (2, 16384, False, True),
    "ecp5, register, deep": (2, 16385, False, True),
    "ecp5, macro": (*MACRO, False, False),
    "ecp5, transparent, register": (20, 48, True, True),
    "gowin, register": (100, 512, False, True),
    "gowin, register, long": (20, 513, False, True),
    "gowin, register, short": (300, 16, False, True),
}
"""For each variant: bits a word, number of words, whether the memory is transparent, and whether
it has an output register.

A memory with the name of a fabric at the beginning is made for this fabric, others in plain
Verilog.
"""


def unit(variant=None):
    width, depth, transparent, register = VARIANTS[variant or chosen_variant()]
    return Sram(width=width, depth=depth, transparent=transparent, output_register=register)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Check random reads and writes: a read word stays at the output until the next read.

    An output register keeps its word while it is not enabled. In a transparent memory, a read of a
    word in the cycle of its write gives the new content.
    """
    width, depth, transparent, register = VARIANTS[chosen_variant()]
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("sram", rate)
    addresses = [0, depth - 1, *random.sample(range(1, depth - 1), 6)]
    memory = {}
    shown, later = None, None
    for address in addresses:
        memory[address] = random.getrandbits(width)
        await bench.cycle(write_enable=1, write_address=address, write_data=memory[address])
    for _ in range(1500):
        write, read = random.random() < rate, random.random() < rate
        write_address, read_address = random.choice(addresses), random.choice(addresses)
        value = random.getrandbits(width)
        passes = random.random() < 0.8
        if write and read and not transparent and write_address == read_address:
            read = False
        await bench.cycle(
            write_enable=write,
            write_address=write_address,
            write_data=value,
            read_enable=read,
            read_address=read_address,
            **({"output_enable": passes} if register else {}),
        )
        expected = later if register else shown
        if expected is not None:
            bench.expect("read_data", expected)
        later = shown if passes else later
        if write:
            memory[write_address] = value
        if read:
            shown = memory[read_address]


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_sram(simulator, variant):
    component = unit(variant)
    assert component.is_macro == (VARIANTS[variant][:2] == MACRO)
    name = variant.split(",")[0]
    fabric = Fabric(name) if name in ("ecp5", "gowin") else Fabric.GENERIC
    is_macro = component.is_macro and fabric is Fabric.GENERIC
    text = files("systola.hdl.memories").joinpath("sram_1r1w.v").read_text() if is_macro else ""
    run_unit("test_sram", simulator, component, variant=variant, modules=text, fabric=fabric)
