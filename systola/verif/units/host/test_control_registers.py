# SPDX-License-Identifier: Apache-2.0
"""The test of the AXI4-Lite registers: values, masks, strobes, interrupts, handshakes."""

import cocotb
import pytest

from systola.arch.registers import Control, CycleClass, Interrupt, Register, Status
from systola.hdl.host.control_registers import ControlRegisters
from systola.hdl.transfers.axi import Response
from systola.verif.kit.checker import StreamRules
from systola.verif.kit.register_bits import writable_bits
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    rng,
    run_unit,
    small_config,
    variants,
)

FEATURES = {
    "bare": (0, {"tables": 0, "depthwise": False, "wide": False}),
    "tables": (1, {"tables": 1, "depthwise": False, "wide": False}),
    "depthwise": (2, {"tables": 0, "depthwise": True, "wide": False}),
    "wide": (4, {"tables": 0, "depthwise": False, "wide": True}),
}
"""For each variant, the value of register FEATURES, and the options of the configuration."""
TRACE_DEPTH = 64
PULSES = ("start", "soft_reset", "resume")


def unit(variant=None):
    _, features = FEATURES[variant or chosen_variant()]
    config = small_config(
        rows=5, cols=7, columns_per_stage=1, host_bus_bytes=8, weight_bus_bytes=8, **features
    )
    return ControlRegisters(config=config)


class Registers(Bench):
    """A bench of the control registers with a host that waits at random, by `patience`."""

    def __init__(self, dut, patience=0.0):
        super().__init__(dut, unit())
        self.random = rng("control_registers", patience)
        self.patience = patience
        self._rules = StreamRules("B"), StreamRules("R")
        self.pulses = []
        self.accepted = False

    async def step(self, **inputs):
        """Run one cycle, and check that pulses come only with an accepted write.

        SOFT_RESET is high in the cycle after the write is accepted, START and RESUME in the same.
        """
        await self.cycle(**inputs)
        accepted = self.get("bus__awready") and self.get("bus__wready")
        for name in PULSES:
            if self.get(name):
                assert self.accepted if name == "soft_reset" else accepted
                self.pulses.append(name)
        self.accepted = accepted
        for rules, channel, payload in zip(
            self._rules, "br", (("bresp",), ("rdata", "rresp")), strict=True
        ):
            valid = self.get(f"bus__{channel}valid")
            values = self.gets(*(f"bus__{name}" for name in payload)) if valid else None
            rules.observe(values, bool(self._driven[f"bus__{channel}ready"]))

    def late(self):
        return self.random.random() < self.patience

    async def write(self, address, value, strobe=0xF):
        """Write a register; address and data may come at different times."""
        first = self.random.choice(("aw", "w")) if self.late() else None
        self.set(bus__awaddr=address, bus__wdata=value, bus__wstrb=strobe)
        if first:
            for _ in range(3):
                await self.step(**{f"bus__{first}valid": 1})
                assert not self.get("bus__awready") and not self.get("bus__wready")
        await self.step(bus__awvalid=1, bus__wvalid=1)
        assert not self.get("bus__awready") and not self.get("bus__wready")
        await self.step()
        assert self.get("bus__awready") and self.get("bus__wready"), "taken when both were there"
        self.set(bus__awvalid=0, bus__wvalid=0)
        while self.late():
            await self.step()
        await self.step(bus__bready=1)
        assert self.gets("bus__bvalid", "bus__bresp") == (1, Response.OKAY)
        self.set(bus__bready=0)

    async def read(self, address):
        """Read a register, and check that the answer comes in the third cycle after the address."""
        await self.step(bus__araddr=address, bus__arvalid=1)
        assert self.get("bus__arready")
        # the address has been accepted, so it may change
        self.set(bus__arvalid=0, bus__araddr=address ^ 0x7C)
        for _ in range(2):
            await self.step()
            assert not self.get("bus__rvalid")
        while self.late():
            await self.step()
        await self.step(bus__rready=1)
        assert self.gets("bus__rvalid", "bus__rresp") == (1, Response.OKAY)
        self.set(bus__rready=0)
        return self.get("bus__rdata")


@cocotb.test
@cocotb.parametrize(patience=[0.0, 0.5])
async def read_and_write(dut, patience):
    """Check random writes, whole and partial, of known and unknown registers, against a dict."""
    bench = Registers(dut, patience)
    await bench.start()
    random = bench.random
    writable = writable_bits(small_config())
    held = dict.fromkeys(writable, 0)
    fixed = {Register.ID: 0x5450_5531, Register.VERSION: 5, Register.GEOMETRY: 7 << 16 | 5}
    fixed |= {Register.BUFFER_LINES: 64, Register.ACCUMULATOR_ROWS: 32, Register.TAGS: 0}
    fixed[Register.FEATURES] = FEATURES[chosen_variant()][0]
    ignored = [0x000, 0x004, 0x00C, 0x018, 0x02C, 0x03C, 0x040, 0x044, 0x048, 0x050]
    ignored += [0x05C, 0x060, 0x100, 0x154, 0x158, 0x200, 0x3FC, 0xFFC]
    for _ in range(300):
        address = random.choice((*writable, *ignored))
        value, strobe = random.getrandbits(32), random.choice((15, 15, random.randrange(15)))
        await bench.write(address, value, strobe)
        if address in held and strobe == 15:
            held[address] = value & writable[address]
        address = random.choice(list(held))
        assert await bench.read(address) == held[address]
        base = {name: held[Register[f"{name}_BASE_LO"]] for name in ("HOST", "WEIGHT")}
        high = {name: held[Register[f"{name}_BASE_HI"]] << 32 for name in ("HOST", "WEIGHT")}
        assert bench.gets("windows__program", "windows__weight_tiles", "windows__host_limit") == (
            held[Register.PROGRAM],
            held[Register.WEIGHT_TILES],
            held[Register.HOST_PAGES] * 4096,
        )
        bench.expect("windows__host_base", base["HOST"] | high["HOST"])
        bench.expect("windows__weight_base", base["WEIGHT"] | high["WEIGHT"])
    for address, value in fixed.items():
        assert await bench.read(address) == value
    for address in (0x02C, 0x03C, 0x064, 0x0FC, 0x158, 0x1FC, 0x400, 0x800, 0xA00, 0xFFC):
        assert await bench.read(address) == 0, "unknown registers read 0"
    assert not bench.pulses


@cocotb.test
async def what_the_machine_says(dut):
    bench = Registers(dut)
    await bench.start()
    counters = [(which + 1) * 0x1234_5678_9AB & (1 << 48) - 1 for which in CycleClass]
    fault = {"cause": 9, "pc": 0xABC_DEF0, "address": 0xFEDC_BA98}
    for status in Status:
        await bench.step(status=status, fault=fault)
        assert await bench.read(Register.STATUS) == status
    assert await bench.read(Register.FAULT_CAUSE) == 9
    assert await bench.read(Register.FAULT_PC) == 0xABC_DEF0
    assert await bench.read(Register.FAULT_ADDRESS) == 0xFEDC_BA98
    for which in CycleClass:
        for part in (0, 1):
            word = counters[which] >> 32 * part & 0xFFFF_FFFF
            bench.set(counted=word)
            assert await bench.read(0x100 + 8 * which + 4 * part) == word
            bench.expect("counter", 2 * which + part)
    assert await bench.read(Register.FAULT_CAUSE) == 9


@cocotb.test
async def control(dut):
    """Check that START and RESUME are high in the cycle of their write, SOFT_RESET in the next."""
    bench = Registers(dut)
    await bench.start()
    for value, strobe, expected in (
        (Control.START, 15, ["start"]),
        (Control.SOFT_RESET, 15, ["soft_reset"]),
        (3, 15, ["soft_reset"]),
        (Control.RESUME, 15, ["resume"]),
        (7, 15, ["resume", "soft_reset"]),
        (0xFFFF_FFF8, 15, []),
        (7, 7, []),
        (7, 1, []),
        (7, 0, []),
    ):
        bench.pulses.clear()
        await bench.write(Register.CONTROL, value, strobe)
        await bench.step()
        assert bench.pulses == expected
    assert await bench.read(Register.CONTROL) == 0
    bench.pulses.clear()
    for address in set(range(0, 0x400, 4)) - {Register.CONTROL}:
        await bench.write(address, 7)
    assert not bench.pulses


async def trace_of(bench):
    """Read the trace as a host does; return the number of all tags, and pairs (cycle, tag).

    The pairs are for the last TRACE_DEPTH tags, the oldest first.
    """
    count = await bench.read(Register.TAGS)
    pairs = []
    for number in range(max(0, count - TRACE_DEPTH), count):
        offset = 0x200 + 8 * (number % TRACE_DEPTH)
        pairs.append((await bench.read(offset), await bench.read(offset + 4)))
    return count, pairs


@cocotb.test
@cocotb.parametrize(patience=[0.0, 0.5])
async def trace(dut, patience):
    """Check the trace for programs with no tags, with some, and with more than fit.

    The cycle of the program's start has the number 0.
    """
    bench = Registers(dut, patience)
    await bench.start()
    random = bench.random
    for number in (5, 0, 64, 65, 200):
        await bench.step(begins=1, tag=random.getrandbits(16))
        await bench.step(begins=0)
        tags, cycle = [], 2
        while len(tags) < number:
            tagged = random.random() < 0.5
            tag = random.choice((0, 0xFFFF, random.getrandbits(16)))
            await bench.step(tagged=tagged, tag=tag)
            if tagged:
                tags.append((cycle, tag))
            cycle += 1
        bench.set(tagged=0)
        for _ in range(2):
            assert await trace_of(bench) == (number, tags[-TRACE_DEPTH:])
    for address in (0x000, 0x1FC, 0x400, 0x600, 0xA00, 0xE00):
        assert await bench.read(address) == (0x5450_5531 if address == Register.ID else 0)


@cocotb.test
async def trace_of_a_running_program(dut):
    """Check that tags may come while the host reads the trace, and that a start clears it."""
    bench = Registers(dut)
    await bench.start()
    await bench.step(begins=1)
    await bench.step(begins=0)
    await bench.step(tagged=1, tag=0xA)
    bench.set(tag=0xB, bus__arvalid=1, bus__araddr=0x204)
    await bench.step()
    bench.set(tag=0xC, bus__arvalid=0)
    for _ in range(2):
        await bench.step()
    for _ in range(68):
        await bench.step()
        assert bench.gets("bus__rvalid", "bus__rdata") == (1, 0xA)
    await bench.step(tagged=0, bus__rready=1)
    bench.set(bus__rready=0)
    count, pairs = await trace_of(bench)
    assert count == 72 and pairs[-1] == (73, 0xC) and pairs[0] == (10, 0xC)
    await bench.step(begins=1)
    bench.set(begins=0)
    assert await trace_of(bench) == (0, [])


@cocotb.test
async def interrupts(dut):
    """Check that events set interrupt bits, and that a one that is written clears its bit.

    If event and write meet in one cycle, the bit is set.
    """
    bench = Registers(dut)
    await bench.start()
    bits = {"finished": 1, "faulted": 2, "program_status__interrupt": 4}
    assert list(bits.values()) == [Interrupt.DONE, Interrupt.FAULT, Interrupt.PROGRAM]
    for name, bit in bits.items():
        await bench.write(Register.IRQ_ENABLE, bit)
        await bench.step(**{name: 1}, program_status__code=0xBEEF)
        bench.expect(
            "irq", name != "program_status__interrupt", "the end of a program shows at once"
        )
        await bench.step(**{name: 0}, program_status__code=0x1234)
        assert bench.get("irq"), "one cycle later at the latest"
        assert await bench.read(Register.IRQ_STATUS) == bit
        await bench.write(Register.IRQ_ENABLE, 7 & ~bit)
        assert not bench.get("irq")
        await bench.write(Register.IRQ_ENABLE, 7)
        await bench.write(Register.IRQ_STATUS, 7 & ~bit)
        await bench.write(Register.IRQ_STATUS, bit, 3)
        assert await bench.read(Register.IRQ_STATUS) == bit and bench.get("irq")
        await bench.write(Register.IRQ_STATUS, bit)
        assert await bench.read(Register.IRQ_STATUS) == 0 and not bench.get("irq")
    assert await bench.read(Register.IRQ_CODE) == 0xBEEF, "only with Interrupt_Host"

    for name, bit in bits.items():
        bench.set(bus__awaddr=Register.IRQ_STATUS, bus__wdata=7, bus__wstrb=15)
        await bench.step(bus__awvalid=1, bus__wvalid=1)
        await bench.step(**{name: 1})
        await bench.step(**{name: 0}, bus__awvalid=0, bus__wvalid=0, bus__bready=1)
        bench.set(bus__bready=0)
        assert await bench.read(Register.IRQ_STATUS) == bit, "an event was lost"
        await bench.step(forget=1)
        bench.set(forget=0)
        assert await bench.read(Register.IRQ_STATUS) == 0
        assert await bench.read(Register.IRQ_CODE) == 0


@cocotb.test
async def answers_wait(dut):
    """Check that a second write or read is not accepted before the first one's answer is taken."""
    bench = Registers(dut)
    await bench.start()
    bench.set(bus__awaddr=Register.CONTROL, bus__wdata=Control.START, bus__wstrb=15)
    await bench.step(bus__awvalid=1, bus__wvalid=1, bus__arvalid=1)
    await bench.step()
    for cycle in range(4):
        await bench.step()
        assert not any(bench.gets("bus__awready", "bus__wready", "bus__arready", "start"))
        assert bench.get("bus__bvalid") and bench.get("bus__rvalid") == (cycle > 0)
    await bench.step(bus__bready=1, bus__rready=1)
    for _ in range(2):
        await bench.step()
    assert bench.pulses == ["start", "start"]


@cocotb.test
async def back_to_back(dut):
    """Check that a read is taken in every fourth cycle while the host takes the answers."""
    bench = Registers(dut)
    await bench.start()
    bench.set(bus__rready=1, bus__arvalid=1)
    for index in range(10):
        await bench.step(bus__araddr=Register.ID if index % 2 else Register.VERSION)
        assert bench.get("bus__arready")
        for valid in (0, 0, 1):
            await bench.step()
            assert not bench.get("bus__arready") and bench.get("bus__rvalid") == valid
        bench.expect("bus__rdata", 0x5450_5531 if index % 2 else 5)
    await bench.step(bus__arvalid=0)
    await bench.step()
    assert not bench.get("bus__rvalid")


@pytest.mark.parametrize(("simulator", "variant"), variants(*FEATURES))
def test_control_registers(simulator, variant):
    run_unit("test_control_registers", simulator, unit(variant), variant=variant)
