# SPDX-License-Identifier: Apache-2.0
"""What tests of the machine say of a program that is wrong, or of a machine that is."""

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, Operation, encode
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.mutation.trial import program_trial
from systola.verif.regress.check import Pair

BEYOND = 2000
"""A line that the buffer of `tiny` does not have, as a slip of the pen."""
NOP, HALT = encode(Opcode.NOP), encode(Opcode.HALT)


def image(*program):
    return make_image(program, host=random_memory(np.random.default_rng(0), 1))


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
