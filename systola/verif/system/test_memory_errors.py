# SPDX-License-Identifier: Apache-2.0
"""The test of bit flips in the buffer and the accumulators: parity reports every wrong result.

Only Icarus Verilog lets a test write a word of a memory.
"""

import os
import random
import re

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from systola.arch.isa import Fault, Opcode, encode
from systola.arch.registers import CheckedMemory, Feature, Register, Status
from systola.verif.kit.bench import TB
from systola.verif.kit.images import DATA_OFFSET, make_image, random_memory, random_tiles
from systola.verif.kit.launch import chosen_netlist, run_machine, simulators
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

PRESET = "tiny-parity"
TRIAL = "TPU_MEMORY_ERROR_TRIAL"
ROWS = 8
STRIKES = 12
TRIALS = 3
FLIPS = 100


def banks(dut):
    """Return the memory banks of the buffer and the accumulators, each with its CheckedMemory."""
    found = []
    for name, which in (
        ("unified_buffer", CheckedMemory.UNIFIED_BUFFER),
        ("accumulators", CheckedMemory.ACCUMULATORS),
    ):
        # If a wire has the name of the unit, the simulator adds a number to the unit's name.
        (unit,) = (
            part
            for part in dut.core
            if part._name.partition("$")[0] == name and hasattr(part, "bank_0")
        )
        found += [
            (which, part.words.memory) for part in unit if re.fullmatch(r"bank_\d+", part._name)
        ]
    return found


def flip(memory, address, bit):
    """Change one bit of a word of a simulated memory."""
    word = memory[address]
    if word.value.is_resolvable:  # a word that was never written stays unknown
        word.value = int(word.value) ^ 1 << bit


def strike_at(memory, address, bit):
    """Return a function that flips a bit while the program waits for the host."""
    return lambda _: flip(memory, address, bit)


async def strike_after(dut, cycle, memory, places):
    """Wait `cycle` cycles, then flip bits of a memory, given by address and bit."""
    await ClockCycles(dut.clk, cycle)
    for address, bit in places:
        flip(memory, address, bit)


def two_waits(config):
    """Return a program with a product that waits for the host before its data are read.

    While it waits, the sums are in the accumulators and the inputs in the buffer. Then Activate
    reads the sums, and Write_Host_Memory reads the lines.
    """
    rng = np.random.default_rng(random_seed())
    shape = {"buffer": 0, "rows": ROWS, "blocks": 1, "tail": 1, "stride": config.input_pitch}
    out = DATA_OFFSET + ROWS * config.input_pitch
    program = [
        encode(Opcode.READ_HOST_MEMORY, host=DATA_OFFSET, **shape),
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=ROWS, k_tiles=1, n_tiles=1),
        encode(Opcode.SYNCHRONIZE),
        encode(Opcode.SYNCHRONIZE_HOST),
        encode(Opcode.WRITE_HOST_MEMORY, host=out, **shape),
        encode(Opcode.ACTIVATE, accumulator=0, buffer=ROWS, rows=ROWS, n_tiles=1, parameter=0),
        encode(Opcode.HALT),
    ]
    return make_image(program, host=random_memory(rng, 2), weights=random_tiles(rng, config, 1))


@cocotb.test
async def each_is_told(dut):
    """Check that a flipped bit in a word that is read later raises a fault.

    The fault's address must be the number of the memory with the flipped bit.
    """
    tb = TB(dut)
    await tb.start()
    assert await tb.read(Register.FEATURES) & Feature.PARITY
    image = two_waits(tb.config)
    rng = random.Random(random_seed())
    memories = banks(dut)
    for strike in range(STRIKES):
        index = strike % len(memories)
        which, memory = memories[index]
        count = tb.config.buffer_banks if which == CheckedMemory.UNIFIED_BUFFER else 2
        address, bit = rng.randrange(ROWS // count), rng.randrange(len(memory[0]))
        result = await tb.run_program(
            image, fault=Fault.MEMORY_ERROR, on_wait=strike_at(memory, address, bit)
        )
        told = result.status, result.fault_cause, result.fault_pc, result.fault_address
        expected = Status.FAULT, Fault.MEMORY_ERROR, 0, int(which)
        assert told == expected, f"bank {index}, word {address}, bit {bit}"
    # The next program writes the memories again, and ends without a fault.
    await tb.check_program(image)


@cocotb.test
async def none_is_silent(dut):
    """Check bits that flip at some time in a random program: a fault, or all bytes are right.

    Each simulation tests only one program, since the golden model does not know the machine's state
    after the flips.
    """
    tb = TB(dut)
    await tb.start()
    seed = f"{random_seed()} {os.environ[TRIAL]}"
    rng = random.Random(seed)
    image = random_program(tb.config, seed, instructions=10)
    undisturbed = await tb.check_program(image)
    _, memory = rng.choice(banks(dut))
    written = [address for address, word in enumerate(memory) if word.value.is_resolvable]
    places = [
        (address, rng.randrange(len(memory[0])))
        for address in rng.sample(written, min(FLIPS, len(written)))
    ]
    await tb.prepare(image)
    cocotb.start_soon(strike_after(dut, rng.randrange(undisturbed.cycles), memory, places))
    result = await tb.finish_anyhow()
    dut._log.info(f"{len(places)} flips: {result.fault_cause.name}")
    if result.fault_cause != Fault.MEMORY_ERROR:
        assert result.fault_cause == undisturbed.fault_cause
        assert (result.host == undisturbed.host).all()


@cocotb.test
async def the_machine_goes_on(dut):
    """Check that a program after a memory error runs right, with a clear fault register."""
    tb = TB(dut)
    await tb.start()
    image = two_waits(tb.config)
    _, memory = banks(dut)[0]
    await tb.run_program(image, fault=Fault.MEMORY_ERROR, on_wait=strike_at(memory, 0, 0))
    await tb.check_program(image)
    assert await tb.read(Register.FAULT_CAUSE) == Fault.NONE


@pytest.mark.skipif(chosen_netlist() is not None, reason="in a netlist the memory has other names")
@pytest.mark.skipif("icarus" not in simulators(), reason="needs Icarus Verilog")
@pytest.mark.icarus
@pytest.mark.thorough
@pytest.mark.parametrize("trial", range(TRIALS))
def test_memory_errors(trial):
    run_machine("system.test_memory_errors", "icarus", config=PRESET, extra_env={TRIAL: str(trial)})
