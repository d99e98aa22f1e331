# SPDX-License-Identifier: Apache-2.0
"""The test of programs one after the other without reset.

The test checks the state that lasts between programs, the state that is lost, and the cycles."""

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from systola.arch.isa import LOOP_DEPTH, Fault, Function, Opcode, Operation, Reduction, encode
from systola.arch.registers import Control, Register
from systola.verif.kit.bench import TB
from systola.verif.kit.images import (
    DATA_OFFSET,
    make_image,
    random_memory,
    random_parameter_entry,
    random_tiles,
)
from systola.verif.kit.launch import quick_simulators, run_machine
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

HALT = encode(Opcode.HALT)


@cocotb.test
async def same_program_takes_the_same_cycles(dut):
    tb = TB(dut, latency=9, stall=0.2, seed=1)
    await tb.start()
    image = random_program(tb.config, f"{random_seed()} again")
    first = await tb.check_program(image)
    for _ in range(3):
        result = await tb.check_program(image)
        assert (result.cycles, result.counters) == (first.cycles, first.counters)


@cocotb.test
async def buffer_persists(dut):
    """Check that buffer lines last: a program writes back lines that an earlier program read."""
    tb = TB(dut)
    await tb.start()
    config, rng = tb.config, np.random.default_rng(random_seed())
    copy = {"host": DATA_OFFSET, "buffer": 3, "rows": 5, "blocks": 1, "tail": 2}
    for opcode, pitch in (
        (Opcode.READ_HOST_MEMORY, config.input_pitch),
        (Opcode.WRITE_HOST_MEMORY, config.output_pitch),
    ):
        host = random_memory(rng, 2)
        await tb.check_program(make_image([encode(opcode, **copy, stride=pitch), HALT], host=host))


@cocotb.test
async def halt_drops_weights(dut):
    """Check that weight tiles left in the queue by a program are lost for the next program."""
    tb = TB(dut, latency=20)
    await tb.start()
    config, rng = tb.config, np.random.default_rng(random_seed())
    multiply = {"buffer": 0, "accumulator": 0, "rows": 1, "n_tiles": 1}
    host, weights = random_memory(rng, 2), random_tiles(rng, config, 8)
    leftover = [encode(Opcode.READ_WEIGHTS, tile=0, count=8), HALT]
    await tb.check_program(make_image(leftover, host=host, weights=weights))
    underflow = [encode(Opcode.MATRIX_MULTIPLY, **multiply, k_tiles=1), HALT]
    image = make_image(underflow, host=host, weights=weights)
    result = await tb.check_program(image, fault=Fault.WEIGHT_UNDERFLOW)
    assert result.fault_address == 0, "tiles were still queued"
    await tb.check_program(random_program(config, f"{random_seed()} after"))


def leaves_state_behind():
    """Yield instructions that set all state that ends with the program.

    As many open Loops as the machine allows follow.
    """
    sides = ("height", "width", "pitch", "kernel_height", "kernel_width", "stride_y", "stride_x")
    ones = (*sides, "dilation_y", "dilation_x", "out_height", "out_width")
    yield encode(Opcode.SET_CONFIG_WINDOW, **dict.fromkeys(ones, 1))
    yield encode(Opcode.SET_CONFIG_SCALE, multiplier_a=1 << 30, zero_a=77, zero_b=5, ceiling=99)
    yield encode(Opcode.READ_WEIGHTS, tile=0, count=3)
    for register in range(1, 8):
        yield encode(Opcode.SET_REGISTER, register=register, value=8 * register)
    for _ in range(LOOP_DEPTH):
        yield encode(Opcode.LOOP, count=0xFFFF_FFFF)


@cocotb.test
@cocotb.parametrize(end=["halt", "fault", "soft reset"])
async def state_ends_with_its_program(dut, end):
    """Check that a program starts with zero registers and scale, and no open loop or window."""
    tb = TB(dut, latency=5)
    await tb.start()
    config, rng = tb.config, np.random.default_rng(random_seed())
    host, weights = random_memory(rng, 3), random_tiles(rng, config, 4)
    entry = random_parameter_entry(rng, config)
    host[2 * DATA_OFFSET : 2 * DATA_OFFSET + entry.size] = entry

    async def leave():
        """Run the program that sets the state, and end it by a halt, a fault or a soft reset.

        `end` names the way in which the program ends.
        """
        last = {"halt": HALT, "fault": bytes(16), "soft reset": encode(Opcode.END_LOOP)}[end]
        fault = Fault.ILLEGAL_OPCODE if end == "fault" else None
        image = make_image([*leaves_state_behind(), last], host=host, weights=weights)
        if end != "soft reset":
            await tb.check_program(image, fault=fault)
            return
        await tb.prepare(image)
        await tb.write(Register.CONTROL, Control.START)
        await ClockCycles(dut.clk, 400)
        await tb.soft_reset()

    async def check(*program, fault=None):
        image = make_image(program, host=host, weights=weights)
        return await tb.check_program(image, fault=fault)

    copy = {"rows": 4, "blocks": 1, "tail": 4, "stride": config.input_pitch, "host": DATA_OFFSET}
    read = encode(Opcode.READ_HOST_MEMORY, **copy, buffer=0, buffer_register=7)
    add = {"operation": Operation.ADD, "buffer": 0, "operand": 2, "destination": 4, "rows": 2}
    use = [
        encode(Opcode.LOAD_PARAMETERS, host=2 * DATA_OFFSET, parameter=0, count=1),
        encode(Opcode.VECTOR, **add, parameter=0, function=Function.RELU6, zero_point=9),
    ]
    pool = {"buffer": 0, "destination": 4, "blocks": 1, "parameter": 0}
    multiply = {"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 1}
    for instruction, fault in (
        (encode(Opcode.END_LOOP), Fault.LOOP),
        (encode(Opcode.POOL, **pool, reduction=Reduction.MAX), Fault.WINDOW),
        (encode(Opcode.MATRIX_MULTIPLY, **multiply), Fault.WEIGHT_UNDERFLOW),
    ):
        await leave()
        result = await check(instruction, HALT, fault=fault)
        assert result.fault_address == 0
    await leave()
    write = {**copy, "stride": config.output_pitch, "host": 0x1800}
    shown = [encode(Opcode.WRITE_HOST_MEMORY, **{**write, "rows": 6, "host_register": 3}, buffer=0)]
    await check(read, *use, *shown, HALT)


@cocotb.test
async def shortest_programs(dut):
    tb = TB(dut)
    await tb.start()
    host = random_memory(np.random.default_rng(random_seed()), 1)
    for program in ([HALT], [encode(Opcode.NOP), HALT], [HALT]):
        for offset in (0, 128, 4096 - 128):
            await tb.check_program(make_image(program, host=host, program_offset=offset))


@pytest.mark.thorough
@pytest.mark.parametrize("simulator", quick_simulators())
def test_back_to_back(simulator):
    run_machine("system.test_back_to_back", simulator)
