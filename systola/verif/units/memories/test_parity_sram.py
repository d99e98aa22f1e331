# SPDX-License-Identifier: Apache-2.0
"""The test of the memory with parity bits: each bit of a word is flipped once.

A read gives the word with the flipped bit, and reports a flaw. `counts` is high if the word that is
read is used. Only Icarus Verilog lets a test flip a bit inside a memory.
"""

import cocotb
import pytest

from systola.hdl.memories.parity_sram import FLAW_LATENCY, ParitySram
from systola.verif.kit.launch import chosen_netlist, simulators
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit

WIDTHS = {"five bytes": 40, "one byte": 8}
DEPTH = 8


def unit(variant=None):
    return ParitySram(width=WIDTHS[variant or chosen_variant()], depth=DEPTH)


async def write(bench, address, word):
    """Write a word to the memory."""
    await bench.cycle(write_enable=1, write_address=address, write_data=word)
    await bench.cycle(write_enable=0)


async def read(bench, address, counts):
    """Read the word at `address`; return the word, and whether a flaw was reported for it.

    Fails if a flaw is reported in a cycle that does not belong to the word.
    """
    await bench.cycle(read_enable=1, read_address=address)
    await bench.cycle(read_enable=0)
    await bench.cycle(counts=counts)
    word = bench.get("read_data")
    bench.set(counts=0)
    flawed = [bench.get("flawed")]
    await bench.cycle()
    for _ in range(FLAW_LATENCY + 1):
        flawed.append(bench.get("flawed"))
        await bench.cycle()
    assert sum(flawed) == flawed[FLAW_LATENCY]
    return word, flawed[FLAW_LATENCY]


@cocotb.test
async def unchanged(dut):
    """Check that no flaw is reported for words that were written."""
    bench = Bench(dut, unit())
    await bench.start()
    width, random = WIDTHS[chosen_variant()], rng("parity")
    for turn in range(100):
        address = random.randrange(DEPTH)
        word = random.choice((0, (1 << width) - 1, random.getrandbits(width)))
        await write(bench, address, word)
        assert await read(bench, address, counts=turn % 2) == (word, 0)


@cocotb.test
async def flips(dut):
    """Check that a flip of any bit of a word, or of a parity bit, is reported as a flaw."""
    bench = Bench(dut, unit())
    await bench.start()
    width, random = WIDTHS[chosen_variant()], rng("flips")
    memory = dut.words.memory
    for bit in range(width + width // 8):
        word = random.getrandbits(width)
        await write(bench, 5, word)
        memory[5].value = int(memory[5].value) ^ 1 << bit
        shown = word ^ (1 << bit if bit < width else 0)
        assert await read(bench, 5, counts=1) == (shown, 1), bit
        assert await read(bench, 5, counts=0) == (shown, 0), bit


@pytest.mark.skipif(chosen_netlist() is not None, reason="in a netlist the memory has other names")
@pytest.mark.skipif("icarus" not in simulators(), reason="needs Icarus Verilog")
@pytest.mark.icarus
@pytest.mark.parametrize("variant", WIDTHS)
def test_parity_sram(variant):
    run_unit("test_parity_sram", "icarus", unit(variant), variant=variant)
