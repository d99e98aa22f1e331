# SPDX-License-Identifier: Apache-2.0
"""The test of the machine with AXI memories of cocotbext-axi, which is not of this project."""

import itertools
import logging
import random
import warnings

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, with_timeout

from systola.arch.registers import Control, Interrupt, Register, Status, program_registers
from systola.golden.machine import Machine
from systola.verif.kit import scoreboard
from systola.verif.kit.bench import config_under_test
from systola.verif.kit.launch import quick_simulators, run_machine
from systola.verif.kit.programs import random_program
from systola.verif.kit.reset import begin_reset
from systola.verif.kit.seeds import random_seed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-axi 0.1.28 uses names that cocotb 2 deprecates
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiRamRead, AxiReadBus

HOST_BASE, WEIGHT_BASE = 0x4000, 0x10000
SIZE = 1 << 20


class Bench:
    """A bench of the machine with AxiLiteMaster as host, and AxiRam and AxiRamRead as memories."""

    def __init__(self, dut):
        self.dut = dut
        self.config = config_under_test()
        begin_reset(dut.rst)
        Clock(dut.clk, 10, unit="ns").start()
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.host = AxiRam(AxiBus.from_prefix(dut, "m_axi_host"), dut.clk, dut.rst, size=SIZE)
        weight_bus = AxiReadBus.from_prefix(dut, "m_axi_weight")
        self.weight = AxiRamRead(weight_bus, dut.clk, dut.rst, size=SIZE)

    def pause(self, probability):
        """Set random pauses on every channel of both memories."""
        rng = random.Random(random_seed())
        write, read = self.host.write_if, self.host.read_if
        for channel in (
            *(write.aw_channel, write.w_channel, write.b_channel),
            *(read.ar_channel, read.r_channel),
            *(self.weight.ar_channel, self.weight.r_channel),
        ):
            pauses = [rng.random() < probability for _ in range(997)]
            channel.set_pause_generator(itertools.cycle(pauses))

    async def run(self, image):
        self.host.write(HOST_BASE, image.host.tobytes())
        self.weight.write(WEIGHT_BASE, image.weights.tobytes())
        for register, value in (
            *program_registers(
                host_base=HOST_BASE,
                host_bytes=image.host.size,
                weight_base=WEIGHT_BASE,
                tiles=image.weights.size // self.config.tile_bytes,
                program=image.program_offset,
            ),
            (Register.IRQ_ENABLE, Interrupt.DONE | Interrupt.FAULT),
            (Register.CONTROL, Control.START),
        ):
            await self.registers.write_dword(register, value)
        await with_timeout(self.ended(), 1, "ms")
        assert await self.registers.read_dword(Register.STATUS) == Status.DONE
        return np.frombuffer(self.host.read(HOST_BASE, image.host.size), np.uint8)

    async def ended(self):
        """Wait for the interrupt at the program's end; write RESUME at each wait for the host."""
        while not self.dut.irq.value:
            await ClockCycles(self.dut.clk, 50)
            if await self.registers.read_dword(Register.STATUS) & Status.WAITING:
                await self.registers.write_dword(Register.CONTROL, Control.RESUME)


@cocotb.test
@cocotb.parametrize(probability=[0.0, 0.3])
async def random_programs(dut, probability):
    bench = Bench(dut)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    if probability:
        bench.pause(probability)
    golden = Machine(bench.config)
    for index in range(2):
        image = random_program(bench.config, f"{random_seed()} axi {index}")
        expected = image.host.copy()
        outcome = golden.run(expected, image.weights, image.program_offset)
        scoreboard.check_end(outcome.fault)
        scoreboard.check(expected, await bench.run(image))
    assert bench.host.read(HOST_BASE - 256, 256) == bytes(256), "memory below the window changed"


@pytest.mark.thorough
@pytest.mark.parametrize("simulator", quick_simulators())
def test_axi_models(simulator):
    run_machine("system.test_axi_models", simulator)
