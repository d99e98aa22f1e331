# SPDX-License-Identifier: Apache-2.0
"""Tests of the two halves of the UART (receiver and sender), at their pins."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import RisingEdge

from systola.boards.uart_receiver import UartReceiver
from systola.boards.uart_transmitter import UartTransmitter
from systola.verif.kit.launch import run_module, simulators
from systola.verif.kit.serial_line import SerialLine
from systola.verif.units.unit import TOP, Bench, convert, rng

DIVISOR = 13


class Uart(wiring.Component):
    """A UART with its receiver and its sender side by side."""

    def __init__(self):
        super().__init__(
            {
                "rx": In(1, init=1),
                "data": Out(8),
                "valid": Out(1),
                "error": Out(1),
                "byte": In(stream.Signature(8)),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(divisor=DIVISOR)
        m.submodules.transmitter = transmitter = UartTransmitter(divisor=DIVISOR)
        connect(m, flipped(self.byte), transmitter.byte)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.data.eq(receiver.data),
            self.valid.eq(receiver.valid),
            self.error.eq(receiver.error),
            self.tx.eq(transmitter.tx),
        ]
        return m


class Rig:
    """A bench of the UART, with its clock and the bytes that it has received."""

    def __init__(self, dut, faster=0.0):
        self.bench = Bench(dut, Uart())
        self.received = bytearray()
        self.errors = 0
        self._dut, self._faster = dut, faster

    async def start(self):
        await self.bench.start()
        self.line = SerialLine(self._dut, divisor=DIVISOR, faster=self._faster)
        cocotb.start_soon(self._watch())
        await self.line.wait(3)
        await self.bench.cycle()

    async def _watch(self):
        while True:
            await RisingEdge(self.bench.clock)
            if self.bench.get("valid"):
                self.received.append(self.bench.get("data"))
            self.errors += self.bench.get("error")


@cocotb.test
@cocotb.parametrize(faster=[-0.03, 0.0, 0.03])
async def receives_every_byte(dut, faster):
    """Check received bytes, with and without pauses, also on a line too fast or too slow."""
    rig = Rig(dut, faster)
    await rig.start()
    random = rng("uart", faster)
    sent = bytes(random.sample(range(256), 64 if faster else 256))
    half = len(sent) // 2
    await rig.line.send(sent[:half])
    for byte in sent[half:]:
        await rig.line.wait(random.random())
        await rig.line.send(bytes([byte]))
    await rig.line.wait(2)
    assert rig.received == sent
    assert rig.errors == 0


@cocotb.test
async def glitches_are_nothing(dut):
    """Check that short pulses on the idle line, or in the middle of a bit, are ignored."""
    rig = Rig(dut)
    await rig.start()
    for _ in range(20):
        await rig.line.glitch(0.3)
        await rig.line.wait(2)
    assert (rig.received, rig.errors) == (b"", 0)
    for byte in (0x00, 0xFF, 0x5A):
        for number in range(10):
            bits = [0, *(byte >> n & 1 for n in range(8)), 1]
            await rig.line.send_bits(bits[:number])
            dut.rx.value = bits[number]
            await rig.line.wait(0.5)
            await rig.line.glitch(1 / DIVISOR)
            await rig.line.wait(0.5 - 1 / DIVISOR)
            await rig.line.send_bits([*bits[number + 1 :], 1])
            await rig.line.wait(1)
        assert rig.received == bytes([byte]) * 10
        rig.received.clear()
    assert rig.errors == 0


@cocotb.test
async def no_stop_bit(dut):
    """Check that a line which stays low for several bytes gives one error: no stop bit.

    Afterwards the UART receives bytes again.
    """
    rig = Rig(dut)
    await rig.start()
    await rig.line.send_bits([0] * 40 + [1, 1])
    assert (rig.received, rig.errors) == (b"", 1)
    await rig.line.send(b"ab")
    await rig.line.wait(2)
    assert (rig.received, rig.errors) == (b"ab", 1)


@cocotb.test
@cocotb.parametrize(faster=[-0.03, 0.0, 0.03])
async def sends_every_byte(dut, faster):
    """Check sent bytes at a receiver with its own clock; a byte takes ten bits."""
    rig = Rig(dut, faster)
    await rig.start()
    random = rng("uart", faster)
    sent = bytes(random.sample(range(256), 256))
    cycles = 0
    for byte in sent:
        rig.bench.set(byte__valid=1, byte__payload=byte)
        while True:
            await rig.bench.cycle()
            cycles += 1
            if rig.bench.get("byte__ready"):
                break
    rig.bench.set(byte__valid=0)
    await rig.line.wait(12)
    assert rig.line.received == sent
    assert rig.line.broken == 0
    assert cycles == 255 * 10 * DIVISOR + 1


@pytest.mark.parametrize("simulator", simulators())
def test_uart(simulator):
    run_module("boards.test_uart", simulator, verilog=convert(Uart()), top=TOP)
