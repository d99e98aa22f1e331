# SPDX-License-Identifier: Apache-2.0
"""Tests of a board's memory: bursts on all of its AXI ports at once, against an array."""

import itertools
import logging
import warnings

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb.utils import get_sim_time

from systola.boards.board_memory import BoardMemory
from systola.boards.burst_read_port import BurstReadPort
from systola.boards.burst_write_port import BurstWritePort
from systola.boards.lite_memory_port import LiteMemoryPort
from systola.hdl.port_names import flat_ports
from systola.hdl.transfers.axi import LiteSignature, ReadSignature, WriteSignature
from systola.hdl.verilog import convert
from systola.verif.kit.launch import run_module
from systola.verif.kit.reset import begin_reset
from systola.verif.units.unit import TOP, chosen_variant, rng, variants

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-axi 0.1.28 uses names that cocotb 2 deprecates
    from cocotbext.axi import (
        AxiBus,
        AxiLiteBus,
        AxiLiteMaster,
        AxiMaster,
        AxiMasterRead,
        AxiReadBus,
        AxiResp,
    )

SIZE = 20480
ADDRESS_BITS = 32
PORT_PREFIX = {"read": "host_", "write": "host_", "second": "weight_", "lite": "lite_"}


class Rig(wiring.Component):
    """A board's memory with two AXI read ports, an AXI write port, and an AXI4-Lite port."""

    def __init__(self, *, data_bytes):
        self._sizes = {"address_bits": ADDRESS_BITS, "data_bytes": data_bytes}
        super().__init__(
            {
                "read": In(ReadSignature(**self._sizes)),
                "write": In(WriteSignature(**self._sizes)),
                "second": In(ReadSignature(**self._sizes)),
                "lite": In(LiteSignature(address_bits=ADDRESS_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = BoardMemory(size=SIZE, ports=4, **self._sizes)
        for number, (bus, kind) in enumerate(
            (
                (self.read, BurstReadPort),
                (self.write, BurstWritePort),
                (self.second, BurstReadPort),
                (self.lite, LiteMemoryPort),
            )
        ):
            port = m.submodules[f"port_{number}"] = kind(**self._sizes)
            connect(m, flipped(bus), port.bus)
            connect(m, port.access, memory.ports[number])
        return m


def generate(data_bytes):
    """Return Verilog of the memory, with the port names that the AXI models expect."""
    rig = Rig(data_bytes=data_bytes)
    return convert(rig, TOP, ports=flat_ports(rig, lambda path: PORT_PREFIX[path[0]] + path[1]))


class Bench:
    """A bench of the memory, with AXI masters that pause at random in a fraction of the cycles."""

    def __init__(self, dut, pauses):
        self.dut = dut
        begin_reset(dut.rst)
        Clock(dut.clk, 10, unit="ns").start()
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
        self.host = AxiMaster(AxiBus.from_prefix(dut, "host"), dut.clk, dut.rst)
        weight = AxiReadBus.from_prefix(dut, "weight")
        self.weight = AxiMasterRead(weight, dut.clk, dut.rst)
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "lite"), dut.clk, dut.rst)
        random = rng("pauses", pauses)
        read, write = self.host.read_if, self.host.write_if
        for channel in (
            *(read.ar_channel, read.r_channel),
            *(write.aw_channel, write.w_channel, write.b_channel),
            *(self.weight.ar_channel, self.weight.r_channel),
            *(self.lite.read_if.r_channel, self.lite.write_if.b_channel),
        ):
            channel.set_pause_generator(
                itertools.cycle([random.random() < pauses for _ in range(997)])
            )

    async def start(self):
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)


@cocotb.test
@cocotb.parametrize(pauses=[0.0, 0.4])
async def all_at_once(dut, pauses):
    """Check all ports at once: each writes and reads back its own quarter of the memory."""
    bench = Bench(dut, pauses)
    await bench.start()
    random = rng("memory", pauses)
    content = random.randbytes(SIZE)
    quarter = SIZE // 4
    await bench.host.write(0, content)

    async def host():
        mine = bytearray(content[:quarter])
        for _ in range(30):
            first = random.randrange(quarter)
            data = random.randbytes(random.randrange(1, min(300, quarter - first) + 1))
            await bench.host.write(first, data)
            mine[first : first + len(data)] = data
            start = random.randrange(quarter)
            length = random.randrange(1, min(2000, quarter - start) + 1)
            assert (await bench.host.read(start, length)).data == mine[start : start + length]

    async def weight():
        for _ in range(40):
            start = random.randrange(quarter, 2 * quarter)
            length = random.randrange(1, min(2000, 2 * quarter - start) + 1)
            assert (await bench.weight.read(start, length)).data == content[start : start + length]

    async def lite():
        mine = bytearray(content)
        for _ in range(100):
            start = random.randrange(2 * quarter, SIZE - 8)
            data = random.randbytes(random.randrange(1, 9))
            await bench.lite.write(start, data)
            mine[start : start + len(data)] = data
            start = random.randrange(2 * quarter, SIZE - 8)
            assert (await bench.lite.read(start, 8)).data == mine[start : start + 8]

    tasks = [cocotb.start_soon(each()) for each in (host, weight, lite)]
    for task in tasks:
        await task


@cocotb.test
async def beyond_the_memory(dut):
    """Check that addresses beyond the memory give errors, and that the memory works afterwards."""
    bench = Bench(dut, 0.0)
    await bench.start()
    random = rng("beyond")
    content = random.randbytes(SIZE)
    await bench.host.write(0, content)
    for address in (SIZE, SIZE + 4096, 1 << 31):
        assert (await bench.host.write(address, bytes(64))).resp == AxiResp.DECERR
        assert (await bench.host.read(address, 64)).resp == AxiResp.DECERR
        assert (await bench.weight.read(address, 64)).resp == AxiResp.DECERR
        assert (await bench.lite.write(address, bytes(4))).resp == AxiResp.DECERR
        assert (await bench.lite.read(address, 4)).resp == AxiResp.DECERR
    whole = await bench.host.read(0, SIZE)
    assert (whole.data, whole.resp) == (content, AxiResp.OKAY)


@cocotb.test
async def a_beat_a_cycle(dut):
    """Check that a long burst takes hardly more cycles than it has beats."""
    bench = Bench(dut, 0.0)
    await bench.start()
    data_bytes = int(chosen_variant())
    beats = 128
    content = rng("burst").randbytes(beats * data_bytes)
    await bench.host.write(0, content)
    before = get_sim_time("ns")
    assert (await bench.host.read(0, len(content))).data == content
    assert (get_sim_time("ns") - before) / 10 < beats + 25


@pytest.mark.thorough
@pytest.mark.parametrize(("simulator", "variant"), variants("4", "16"))
def test_board_memory(simulator, variant):
    run_module(
        "boards.test_board_memory",
        simulator,
        verilog=generate(int(variant)),
        top=TOP,
        extra_env={"TPU_UNIT_VARIANT": variant},
    )
