# SPDX-License-Identifier: Apache-2.0
"""What tests of the machine say of a program that is wrong, or of a machine that is."""

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, Operation, Unit, encode
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.mutation.trial import program_trial
from systola.verif.regress.check import Pair

BEYOND = 2000
"""A line that the buffer of `tiny` does not have, as a slip of the pen."""
NOP, HALT = encode(Opcode.NOP), encode(Opcode.HALT)


def image(*program):
    host = random_memory(np.random.default_rng(0), 1)
    return make_image(program, host=host, program_offset=0xE00)


def slips():
    """Programs that golden model and machine end alike, but not as anybody meant, and their end."""
    operands = {"buffer": 0, "operand": 2, "destination": BEYOND, "rows": 2, "parameter": 0}
    wrong = encode(Opcode.VECTOR, operation=Operation.ADD, **operands)
    yield (
        image(NOP, wrong, HALT),
        Fault.BUFFER_RANGE,
        "BUFFER_RANGE at instruction 1, address 0x7d0",
    )
    yield image(NOP, NOP, bytes(16)), Fault.ILLEGAL_OPCODE, "ILLEGAL_OPCODE at instruction 2"


@cocotb.test
async def a_fault_that_nobody_means(dut):
    tb = TB(dut)
    await tb.start()
    for program, fault, told in slips():
        for run in (tb.check_program, tb.run_program):
            with pytest.raises(AssertionError, match=told):
                await run(program)
            await run(program, fault=fault)
            with pytest.raises(AssertionError, match="ends at Halt"):
                await run(image(HALT), fault=fault)


LINE, COLUMN, ROWS, OUTPUT = 5, 1, 4, 0x800
STRAY = 0xD00
LATENCY = 7


class Broken(Machine):
    """Finds another byte in a line that it writes."""

    def write_host_memory(self, **operands):
        self.buffer[LINE, COLUMN] ^= 4
        super().write_host_memory(**operands)


class Stray(Machine):
    """Writes a byte that no instruction does."""

    def write_host_memory(self, **operands):
        super().write_host_memory(**operands)
        self._host[STRAY] ^= 1


def copy(config):
    """Lines in, and four of them out, of which LINE is the last; a tag when that is complete."""
    shape = {"rows": 8, "stride": config.input_pitch, "blocks": 1, "tail": config.rows}
    read = encode(Opcode.READ_HOST_MEMORY, host=0x400, buffer=0, **shape)
    lines = lines_out(config, host=OUTPUT, line=LINE - ROWS + 1, rows=ROWS)
    write = encode(Opcode.WRITE_HOST_MEMORY, **lines)
    return image(read, write, encode(Opcode.DEBUG_TAG, wait=Unit.HOST_WRITER), HALT)


def check_blame(text, config, result):
    """Instruction, row and column; the tag entered two cycles behind the acknowledgement."""
    ((entered, _),) = result.tags
    place = OUTPUT + (ROWS - 1) * config.output_pitch + COLUMN
    assert f"1 of 4096 bytes differ, first at 0x{place:x}" in text
    assert (
        f"byte 0x{place:x} is row {ROWS - 1}, column {COLUMN} of what instruction 1 writes" in text
    )
    assert "writes: write_host_memory host=2048, buffer=2, rows=4" in text
    assert f"the machine wrote it in cycle {entered - 2 - 1 - LATENCY} after START" in text


@cocotb.test
async def a_wrong_byte(dut):
    tb = TB(dut, latency=LATENCY)
    await tb.start()
    program = copy(tb.config)
    result = await tb.check_program(program)
    tb.golden = Broken(tb.config)
    with pytest.raises(AssertionError) as failure:
        await tb.check_program(program)
    check_blame(str(failure.value), tb.config, result)


def test_a_wrong_byte():
    """The same without cocotb."""
    config = preset(preset_name("tiny"))
    with Simulator(config, latency=LATENCY) as machine:
        result = machine.run(copy(config))
        with pytest.raises(AssertionError) as failure:
            compared_run(machine, Broken(config), copy(config))
        check_blame(str(failure.value), config, result)
        pair = Pair(machine)
        pair.golden = Broken(config)
        check_blame(pair.check(copy(config)), config, result)
        with pytest.raises(
            AssertionError, match=r"no instruction writes byte 0xd00\nthe .* has not"
        ):
            compared_run(machine, Stray(config), copy(config))


@pytest.mark.parametrize("simulator", simulators())
def test_failures(simulator):
    run_machine("system.test_failures", simulator)


def test_a_fault_that_nobody_means():
    """The same without cocotb."""
    config = preset(preset_name("tiny"))
    with Simulator(config) as machine:
        pair = Pair(machine)
        for program, fault, told in slips():
            with pytest.raises(AssertionError, match=told):
                compared_run(machine, Machine(config), program)
            compared_run(machine, Machine(config), program, fault=fault)
            with pytest.raises(AssertionError, match=told):
                program_trial(config, "slip", program, 0)
            program_trial(config, "slip", program, 0, ends={fault}).run(machine, 10_000)
            assert told in pair.check(program)
            assert pair.check(program, ends={fault}) is None
            assert "ends at Halt" in pair.check(image(HALT), ends={fault})
