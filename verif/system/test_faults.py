# SPDX-License-Identifier: Apache-2.0
"""Every fault: its report, what it leaves alone, and the way out of it."""

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, encode
from systola.arch.registers import BusPort, Control, Register, Status
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit import scoreboard
from systola.verif.kit.bench import TB, check_outcome
from systola.verif.kit.images import DATA_OFFSET, make_image, random_memory, random_tiles
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.kit.program_faults import STATIC_FAULTS, static_faults
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

HALT = encode(Opcode.HALT)
OUTPUT = 2 * DATA_OFFSET


@cocotb.test
@cocotb.parametrize(fault=list(STATIC_FAULTS))
async def static_fault(dut, fault):
    """In the middle of a random program; another one without reset and one after soft reset."""
    tb = TB(dut, latency=8, stall=0.1, seed=int(fault))
    await tb.start()
    if fault not in static_faults(tb.config):
        dut._log.info("a machine of this configuration cannot have this fault")
        return
    result = await tb.check_program(random_program(tb.config, f"{random_seed()} a", fault=fault))
    assert result.fault_cause == fault
    await tb.check_program(random_program(tb.config, f"{random_seed()} b"))
    await tb.check_program(random_program(tb.config, f"{random_seed()} c", fault=fault))
    await tb.soft_reset()
    assert await tb.read(Register.STATUS) == 0
    for register in (Register.FAULT_CAUSE, Register.FAULT_PC, Register.FAULT_ADDRESS):
        assert await tb.read(register) == 0
    assert await tb.read(Register.IRQ_STATUS) == 0
    assert not dut.irq.value
    await tb.check_program(random_program(tb.config, f"{random_seed()} d"))


def busy_program(config):
    """Uses every port: copies in and out, weights, a product; Interrupt_Host between the parts."""
    rng = np.random.default_rng(random_seed())
    copy = {"buffer": 0, "rows": 8, "blocks": 2, "tail": 1}
    pitches = {"stride": 2 * max(config.input_pitch, config.output_pitch)}
    program = [
        encode(Opcode.READ_HOST_MEMORY, host=DATA_OFFSET, **copy, **pitches),
        encode(Opcode.READ_WEIGHTS, tile=0, count=4),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=8, k_tiles=2, n_tiles=2),
        encode(Opcode.WRITE_HOST_MEMORY, host=OUTPUT, **copy, **pitches),
        *[encode(Opcode.NOP)] * 28,  # Halt is the first instruction of another fetch
        HALT,
    ]
    return make_image(program, host=random_memory(rng, 4), weights=random_tiles(rng, config, 4))


@cocotb.test
@cocotb.parametrize(
    (
        ("cause", "pc", "host_errors", "weight_errors"),
        [
            (Fault.HOST_READ_ERROR, 0, (DATA_OFFSET, DATA_OFFSET + 64), (0, 0)),
            (Fault.HOST_WRITE_ERROR, 3, (OUTPUT, OUTPUT + 64), (0, 0)),
            (Fault.WEIGHT_READ_ERROR, 1, (0, 0), (0, 1 << 20)),
            (Fault.FETCH_ERROR, 32, (512, 640), (0, 0)),
            (Fault.FETCH_ERROR, 0, (0, 128), (0, 0)),
        ],
    )
)
async def bus_error(dut, cause, pc, host_errors, weight_errors):
    """An error on a bus stops the program; the rest of memory is as it was."""
    tb = TB(dut, latency=5, stall=0.1)
    await tb.start()
    image = busy_program(tb.config)
    errors = {"host_errors": host_errors, "weight_errors": weight_errors}
    result = await tb.run_program(image, **errors)
    assert result.status == Status.FAULT
    assert (result.fault_cause, result.fault_pc, result.fault_address) == (cause, pc, 0)
    assert (result.host[:OUTPUT] == image.host[:OUTPUT]).all()
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
    """At any time: outstanding transfers end by the rules, and the next program runs right."""
    tb = TB(dut, latency=17, stall=0.2, seed=after)
    await tb.start()
    for attempt in range(4):
        await tb.prepare(random_program(tb.config, f"{random_seed()} {after} {attempt}"))
        await tb.write(Register.CONTROL, Control.START)
        await ClockCycles(dut.clk, after + 13 * attempt)
        await tb.soft_reset()
        assert await tb.read(Register.STATUS) == 0
        await tb.check_program(random_program(tb.config, f"{random_seed()} {after} {attempt} next"))


@pytest.mark.parametrize("simulator", simulators())
def test_faults(simulator):
    run_machine("system.test_faults", simulator)


def test_late_answers():
    """With memory that takes longer than BUS_TIMEOUT the fault comes first, and the machine is busy
    until the answers have come; with a longer time, or none, there is no fault."""
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
        assert result.fault_address == BusPort.HOST_READ  # the first instruction
        assert (result.host == image.host).all()
        for _ in range(late):
            if machine.read(Register.STATUS) == Status.FAULT:
                break
        else:
            raise AssertionError("still busy")
        for bus_timeout in (2 * late, 0):
            expected = image.host.copy()
            outcome = golden.run(expected, image.weights, image.program_offset)
            result = machine.run(image, bus_timeout=bus_timeout)
            check_outcome(result, outcome.fault, outcome.interrupts)
            scoreboard.check(expected, result.host)


@pytest.mark.parametrize("fault", STATIC_FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", ["tiny", "small"])
def test_many_faults(name, fault):
    """Most instructions that have the check, in the first pass of loops and in later ones."""
    config = preset(preset_name(name))
    if fault not in static_faults(config):
        pytest.skip("a machine of this configuration cannot have this fault")
    golden = Machine(config)
    with Simulator(config, latency=5) as machine:
        for index in range(25):
            seed = f"{random_seed()} {index}"
            image = random_program(config, seed, instructions=6, fault=fault)
            expected = image.host.copy()
            outcome = golden.run(expected, image.weights, image.program_offset)
            assert outcome.fault and outcome.fault.cause == fault
            result = machine.run(image, limit=100_000)
            check_outcome(result, outcome.fault, outcome.interrupts)
            scoreboard.check(expected, result.host)
