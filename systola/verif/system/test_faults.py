# SPDX-License-Identifier: Apache-2.0
"""The test of every fault: its report, its limits, and that later programs run right."""

from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from systola.arch.config import preset
from systola.arch.isa import INSTRUCTION_BYTES, Fault, Opcode, encode
from systola.arch.registers import BusPort, Control, Register, Status
from systola.golden.machine import Machine
from systola.runtime import ImageBuilder
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB
from systola.verif.kit.bus_errors import BUS_ERRORS, busy_program
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.launch import preset_name, quick_simulators, run_machine
from systola.verif.kit.program_faults import STATIC_FAULTS, static_faults
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough


@cocotb.test
@cocotb.parametrize(fault=list(STATIC_FAULTS))
async def static_fault(dut, fault):
    """Check a fault in the middle of a random program, and the programs after it.

    One program follows without reset, and one after a soft reset.
    """
    tb = TB(dut, latency=8, stall=0.1, seed=int(fault))
    await tb.start()
    if fault not in static_faults(tb.config):
        dut._log.info("a machine of this configuration cannot have this fault")
        return
    for name, end in (("a", fault), ("b", None), ("c", fault)):
        image = random_program(tb.config, f"{random_seed()} {name}", fault=end)
        await tb.check_program(image, fault=end)
    await tb.soft_reset()
    assert await tb.read(Register.STATUS) == 0
    for register in (Register.FAULT_CAUSE, Register.FAULT_PC, Register.FAULT_ADDRESS):
        assert await tb.read(register) == 0
    assert await tb.read(Register.IRQ_STATUS) == 0
    assert not dut.irq.value
    await tb.check_program(random_program(tb.config, f"{random_seed()} d"))


@cocotb.test
@cocotb.parametrize(number=range(len(BUS_ERRORS)))
async def bus_error(dut, number):
    """Check that a bus error stops the program, and that the rest of memory is unchanged."""
    error = BUS_ERRORS[number]
    tb = TB(dut, latency=5, stall=0.1)
    await tb.start()
    image = busy_program(tb.config, random_seed())
    result = await tb.run_program(image, fault=error.cause, **error.memories)
    error.check(image, result)
    await tb.soft_reset()
    await tb.check_program(random_program(tb.config, f"{random_seed()} after"))


@cocotb.test
async def start_is_ignored_while_busy(dut):
    tb = TB(dut, latency=30)
    await tb.start()
    image = random_program(tb.config, f"{random_seed()} busy")
    undisturbed = await tb.check_program(image)
    await tb.prepare(image)

    async def disturb():
        await ClockCycles(dut.clk, 100)
        assert await tb.read(Register.STATUS) == Status.BUSY
        await tb.write(Register.CONTROL, Control.START)

    disturbing = cocotb.start_soon(disturb())
    result = await tb.finish()
    await disturbing
    assert result.cycles == undisturbed.cycles
    assert (result.host == undisturbed.host).all()


@cocotb.test
@cocotb.parametrize(after=[1, 7, 40, 120, 300])
async def soft_reset_while_busy(dut, after):
    """Check a soft reset at any time: transfers end by the rules, and the next program is right."""
    tb = TB(dut, latency=17, stall=0.2, seed=after)
    await tb.start()
    for attempt in range(4):
        await tb.prepare(random_program(tb.config, f"{random_seed()} {after} {attempt}"))
        await tb.write(Register.CONTROL, Control.START)
        await ClockCycles(dut.clk, after + 13 * attempt)
        await tb.soft_reset()
        assert await tb.read(Register.STATUS) == 0
        await tb.check_program(random_program(tb.config, f"{random_seed()} {after} {attempt} next"))


@pytest.mark.parametrize("simulator", quick_simulators())
def test_faults(simulator):
    run_machine("system.test_faults", simulator)


@pytest.mark.parametrize(("name", "other"), [("tiny", "2x2"), thorough("small", "tiny")])
def test_program_of_another_machine(name, other):
    """Check that a program of another machine stops at once, with memory untouched.

    A program of the right machine then runs. Nothing else is wrong with the stopped program:
    without its first instruction it ends at Halt.
    """
    config = preset(name)
    golden = Machine(config)
    foreign, own = (product_image(preset(each)) for each in (other, name))
    # A driver that mistakes the program for a program of this machine fills the weight window with
    # whole tiles of this machine.
    tiles = np.resize(foreign.weights, 16 * config.tile_bytes)
    foreign = replace(foreign, weights=tiles, host=foreign.host.copy())
    with Simulator(config, latency=5) as machine:
        compared_run(machine, golden, foreign, fault=Fault.OTHER_MACHINE)
        result = machine.run(foreign)
        found = (result.status, result.fault_cause, result.fault_pc, result.fault_address)
        assert found == (Status.FAULT, Fault.OTHER_MACHINE, 0, 0)
        assert (result.host == foreign.host).all()
        at = foreign.program_offset
        foreign.host[at : at + INSTRUCTION_BYTES] = np.frombuffer(encode(Opcode.NOP), np.uint8)
        compared_run(machine, golden, foreign)
        compared_run(machine, golden, own)


def product_image(config):
    """Return a product's image that is legal also on machines with twice the rows and columns."""
    builder = ImageBuilder(config)
    operand = builder.matrix(np.arange(-40, 40, dtype=np.int8).reshape(10, 8))
    weights = builder.weights(np.arange(-32, 32, dtype=np.int8).reshape(8, 8))
    entries = builder.parameters(scale=1 / 64, bias=[0] * 8)
    result = builder.room(10, 8)
    return builder.build(
        f"read_host_memory {operand.operands}, buffer=0\n"
        f"read_weights {weights.operands}\n"
        f"load_parameters {entries.operands}, parameter=0\n"
        f"matrix_multiply buffer=0, accumulator=0, rows=10, {weights.sizes}\n"
        f"activate accumulator=0, buffer=100, rows=10, n_tiles={weights.n_tiles}, parameter=0\n"
        f"write_host_memory {result.operands}, buffer=100\n"
        "halt"
    )


def test_late_answers():
    """Check a memory with a latency that is longer than BUS_TIMEOUT.

    The fault comes first, and the machine is busy until the memory has answered. With a longer
    BUS_TIMEOUT, or without any, there is no fault.
    """
    config = preset("tiny")
    image = random_program(config, f"{random_seed()} late")
    late = 2000
    golden = Machine(config)
    with Simulator(config, latency=late) as machine:
        result = machine.run(image, bus_timeout=100)
        assert (result.status, result.fault_cause) == (
            Status.BUSY | Status.FAULT,
            Fault.BUS_TIMEOUT,
        )
        # the port over which the first instruction is fetched
        assert result.fault_address == BusPort.HOST_READ
        assert (result.host == image.host).all()
        for _ in range(late):
            if machine.read(Register.STATUS) == Status.FAULT:
                break
        else:
            raise AssertionError("still busy")
        for bus_timeout in (2 * late, 0):
            compared_run(machine, golden, image, limit=10_000_000, bus_timeout=bus_timeout)


@pytest.mark.parametrize("fault", STATIC_FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_many_faults(name, fault):
    """Check one kind of fault in random programs: the machine reports it as the golden model does.

    Most instructions that can have the fault come up, in first and in later iterations of loops.
    """
    config = preset(preset_name(name))
    if fault not in static_faults(config):
        pytest.skip("a machine of this configuration cannot have this fault")
    golden = Machine(config)
    with Simulator(config, latency=5) as machine:
        for index in range(25):
            seed = f"{random_seed()} {index}"
            image = random_program(config, seed, instructions=6, fault=fault)
            compared_run(machine, golden, image, fault=fault)
