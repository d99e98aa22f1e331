# SPDX-License-Identifier: Apache-2.0
"""Both kinds of memory against a dict: inferred, and the macro's model in Verilog."""

from importlib.resources import files

import cocotb
import pytest

from systola.hdl.sram import Sram
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

MACRO = (128, 8192)
VARIANTS = {
    "transparent macro": (*MACRO, True),
    "macro": (*MACRO, False),
    "inferred": (20, 48, False),
    "transparent": (20, 48, True),
}
"""Width, depth, whether transparent."""


def unit(variant=None):
    width, depth, transparent = VARIANTS[variant or chosen_variant()]
    return Sram(width=width, depth=depth, transparent=transparent)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Reads keep their word until the next one; a word being written is new where transparent."""
    width, depth, transparent = VARIANTS[chosen_variant()]
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("sram", rate)
    addresses = [0, depth - 1, *random.sample(range(1, depth - 1), 6)]
    memory = {}
    shown = None
    for address in addresses:
        memory[address] = random.getrandbits(width)
        await bench.cycle(write_enable=1, write_address=address, write_data=memory[address])
    for _ in range(1500):
        write, read = random.random() < rate, random.random() < rate
        write_address, read_address = random.choice(addresses), random.choice(addresses)
        value = random.getrandbits(width)
        if write and read and not transparent and write_address == read_address:
            read = False
        await bench.cycle(
            write_enable=write,
            write_address=write_address,
            write_data=value,
            read_enable=read,
            read_address=read_address,
        )
        if shown is not None:
            assert bench.get("read_data") == shown
        if write:
            memory[write_address] = value
        if read:
            shown = memory[read_address]


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_sram(simulator, variant):
    component = unit(variant)
    assert component.is_macro == ("macro" in variant)
    text = files("systola.hdl").joinpath("sram_1r1w.v").read_text() if component.is_macro else ""
    run_unit("test_sram", simulator, component, variant=variant, modules=text)
