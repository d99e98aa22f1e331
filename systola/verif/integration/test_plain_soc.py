# SPDX-License-Identifier: Apache-2.0
"""Tests of the system in integration/plain_soc, with Verilog of `tpu deliver --fabric chip`."""

import re

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.compiler.schedule import compile_chain
from systola.hdl.parts.fabric import Fabric
from systola.runtime.iss import GoldenBackend
from systola.synth.delivery import delivery
from systola.verif.compiler.products import random_layer
from systola.verif.kit import scoreboard
from systola.verif.kit.checkout import ROOT
from systola.verif.kit.images import make_image
from systola.verif.kit.launch import run_module, simulators
from systola.verif.kit.reset import begin_reset
from systola.verif.kit.seeds import random_seed

pytestmark = pytest.mark.thorough
CONFIG = preset("tiny")
SOC = ROOT / "integration" / "plain_soc" / "soc.v"


class Soc:
    """A bench that clocks the system, loads the system's memory and runs programs."""

    def __init__(self, dut):
        self.dut = dut
        for name in ("load", "word", "load_data", "start", "program_offset"):
            getattr(dut, name).value = 0

    async def start(self):
        begin_reset(self.dut.rst_n, 0)
        Clock(self.dut.clk, 10, unit="ns").start(start_high=False)
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst_n.value = 1

    async def load(self, first, content):
        self.dut.load.value = 1
        for number, value in enumerate(np.ascontiguousarray(content).view("<u4")):
            self.dut.word.value = first // 4 + number
            self.dut.load_data.value = int(value)
            await RisingEdge(self.dut.clk)
        self.dut.load.value = 0

    async def content(self, size):
        words = []
        for number in range(size // 4 + 1):
            self.dut.word.value = number
            await RisingEdge(self.dut.clk)
            # The clock edge has taken this address; the data still belong to the last address.
            if number:
                words.append(int(self.dut.data.value))
        return np.array(words, "<u4").view(np.uint8)

    async def run(self, image):
        """Run a program, and return whether it stopped with a fault, and the host window."""
        dut = self.dut
        await self.load(0, image.host)
        await self.load(len(image.host), image.weights)
        dut.host_pages.value = len(image.host) // 4096
        dut.weight_base.value = len(image.host)
        dut.weight_tiles.value = len(image.weights) // CONFIG.tile_bytes
        dut.program_offset.value = image.program_offset
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        await ClockCycles(dut.clk, 2)
        await with_timeout(RisingEdge(dut.done), 1, "ms")
        await RisingEdge(dut.clk)
        return bool(dut.fault.value), await self.content(len(image.host))


@cocotb.test
async def programs(dut):
    """Check two products and a program that stops with a fault against the golden model."""
    soc = Soc(dut)
    await soc.start()
    random = np.random.default_rng(random_seed())
    golden = GoldenBackend(CONFIG)
    for rows in (5, 3):
        compiled = compile_chain(CONFIG, [random_layer(random, 9, 6)], rows)
        image = compiled.bind(random.integers(-128, 128, (rows, 9), dtype=np.int8))
        fault, host = await soc.run(image)
        assert not fault
        scoreboard.check(golden.run(image).host, host)
    memory = np.zeros(4096, np.uint8)
    fault, _ = await soc.run(make_image([encode(Opcode.NOP), bytes([0xFF] * 16)], host=memory))
    assert fault


@pytest.fixture(scope="module")
def parts():
    return delivery(CONFIG, Fabric.CHIP)


def test_wrapper(parts):
    """Check that each AXI port of the wrapper has an attribute, each interface one description."""
    text = parts["tpu_axi.v"]
    ports = re.findall(r"(?:in|out)put wire (?:\[\d+:0\] )?((?:s|m)_axi\w+?)_([a-z]+)\b", text)
    assert len(ports) > 60
    for interface, signal in ports:
        assert f'"xilinx.com:interface:aximm:1.0 {interface} {signal.upper()}"' in text
    assert text.count("PROTOCOL AXI4LITE") == 1
    assert text.count("PROTOCOL AXI4,") == 2
    assert "ASSOCIATED_BUSIF s_axil:m_axi_host:m_axi_weight, ASSOCIATED_RESET aresetn" in text
    assert all(f"| {interface}_{signal} |" in parts["ports.md"] for interface, signal in ports)


def test_every_memory_is_a_macro(parts):
    """Check that --fabric chip leaves each large memory to a macro, not to Verilog."""
    arrays = re.findall(r"reg \[(\d+):0\] \w+ \[(\d+):0\];", parts["tpu.v"])
    assert all((int(bit) + 1) * (int(word) + 1) <= 4096 for bit, word in arrays)
    assert "module sram_1r1w" not in parts["tpu.v"]


@pytest.mark.parametrize("simulator", simulators())
def test_plain_soc(simulator, parts):
    names = ("tpu.v", "tpu_axi.v", "sram_1r1w.v")
    # The files' headers are cut off, as they name the commit: each commit would need a new
    # simulator.
    text = "\n".join([SOC.read_text(), *(parts[name].split("\n", 2)[2] for name in names)])
    run_module("integration.test_plain_soc", simulator, verilog=text, top="soc")
