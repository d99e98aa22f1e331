# SPDX-License-Identifier: Apache-2.0
"""The test of a pod's pages of registers and its control, with cores that only have a status."""

from __future__ import annotations

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2
from cocotb.triggers import RisingEdge

from systola.arch.isa import Fault
from systola.arch.registers import (
    POD_IDENTITY,
    Control,
    PodInterrupt,
    PodRegister,
    Status,
    core_page,
    pod_space_bits,
)
from systola.hdl.pod.page_router import PageRouter
from systola.hdl.pod.pod_control import PodControl
from systola.hdl.pod.pod_registers import PodRegisters
from systola.hdl.transfers.axi import LiteSignature
from systola.verif.kit.axi_lite import AxiLiteMaster
from systola.verif.units.unit import Bench, run_unit, variants

CORES, SETTLE = 2, 10
STANDS_IN = 7
"""The value of register CORES in the page of core 0, which has the registers of another pod."""
PULSES = ("clear_links", "core_start", "finished", "faulted", "stop", "in_vain", "forget")


class Rig(wiring.Component):
    """A unit for tests that has the page router of a pod, the pod's registers and control, and a
    core.

    Registers of another pod stand in for the core's registers. Status, cause and interrupt of the
    cores are ports.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(LiteSignature(address_bits=pod_space_bits(CORES))),
                "statuses": In(data.ArrayLayout(len(Status), CORES)),
                "causes": In(data.ArrayLayout(ceil_log2(len(Fault)), CORES)),
                "cores_irq": In(1),
                "irq": Out(1),
                **dict.fromkeys(PULSES, Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        router = m.submodules.router = PageRouter(cores=CORES)
        registers = m.submodules.registers = PodRegisters(cores=CORES)
        core = m.submodules.core = PodRegisters(cores=STANDS_IN)
        control = m.submodules.control = PodControl(cores=CORES, settle=SETTLE)
        connect(m, flipped(self.bus), router.bus)
        connect(m, router.pages[0], registers.bus)
        connect(m, router.pages[1], core.bus)
        for name in ("status", "first", "cause", "finished", "faulted", "forget"):
            m.d.comb += getattr(registers, name).eq(getattr(control, name))
        m.d.comb += [
            control.start.eq(registers.start),
            control.soft_reset.eq(registers.soft_reset),
            control.statuses.eq(self.statuses),
            control.causes.eq(self.causes),
            registers.cores_irq.eq(self.cores_irq),
            self.irq.eq(registers.irq),
            *(getattr(self, name).eq(getattr(control, name)) for name in PULSES),
        ]
        return m


class Pod(Bench):
    """A bench with a host at the pod's registers, that records the pulses of the pod's control."""

    def __init__(self, dut):
        super().__init__(dut, Rig())
        self.seen = []
        self.states = [Status(0)] * CORES

    async def begin(self):
        await self.start()
        self.host = AxiLiteMaster(self.dut, "bus_")
        cocotb.start_soon(self.host.run(self.clock))
        cocotb.start_soon(self._watch())
        await self.host.write(PodRegister.IRQ_ENABLE, PodInterrupt.DONE | PodInterrupt.FAULT)

    async def _watch(self):
        """Record pulses in every cycle, and make the cores busy in the cycle after their start."""
        while True:
            await RisingEdge(self.clock)
            self.seen += [name for name in PULSES if self.get(name)]
            if self.get("core_start"):
                self.become(*[Status.BUSY] * CORES)

    def become(self, *states):
        self.states = list(states)
        self.set(statuses=states)

    async def idle(self, cycles=12):
        for _ in range(cycles):
            await RisingEdge(self.clock)

    async def started(self):
        """Start the pod, wait until the cores are busy, and forget the pulses up to then."""
        await self.host.write(PodRegister.CONTROL, Control.START)
        assert await self.host.read(PodRegister.STATUS) == Status.BUSY
        await self.idle(SETTLE + 12)
        assert self.states == [Status.BUSY] * CORES
        assert self.seen.count("core_start") == self.seen.count("clear_links") == 1
        assert self.seen.index("clear_links") < self.seen.index("core_start")
        self.seen.clear()


@cocotb.test
async def pages(dut):
    """Check that each address reaches its page, and that addresses beyond the pages have no
    register.
    """
    pod = Pod(dut)
    await pod.begin()
    read = pod.host.read
    assert await read(PodRegister.ID) == await read(core_page(0)) == POD_IDENTITY
    assert await read(PodRegister.CORES) == CORES
    assert await read(core_page(0) + PodRegister.CORES) == STANDS_IN
    assert await read(core_page(2) + PodRegister.CORES) == 0
    await pod.host.write(core_page(2) + PodRegister.IRQ_ENABLE, 1)
    await pod.host.write(core_page(0) + PodRegister.IRQ_ENABLE, 4)
    assert await read(PodRegister.IRQ_ENABLE) == 3
    assert await read(core_page(0) + PodRegister.IRQ_ENABLE) == 4


@cocotb.test
async def all_done(dut):
    """Check that the pod is DONE after the last core has ended, also for a second program."""
    pod = Pod(dut)
    await pod.begin()
    for _ in range(2):
        await pod.started()
        # a START while the pod is busy is ignored
        await pod.host.write(PodRegister.CONTROL, Control.START)
        pod.become(Status.DONE, Status.BUSY)
        await pod.idle(SETTLE + 12)
        assert await pod.host.read(PodRegister.STATUS) == Status.BUSY and not pod.seen
        pod.become(Status.DONE, Status.DONE)
        await pod.idle()
        assert pod.seen == ["finished"] and pod.get("irq")
        assert await pod.host.read(PodRegister.STATUS) == Status.DONE
        assert await pod.host.read(PodRegister.IRQ_STATUS) == PodInterrupt.DONE
        await pod.host.write(PodRegister.IRQ_STATUS, PodInterrupt.DONE)
        assert not pod.get("irq")
        pod.seen.clear()


@cocotb.test
@cocotb.parametrize(cause=[Fault.LINK_TIMEOUT, Fault.OVERLAP])
async def a_fault_stops_all(dut, cause):
    """Check that a core's fault raises `stop` until no core is busy.

    The core's status has FAULT a cycle before the cause of the fault is known.
    """
    pod = Pod(dut)
    await pod.begin()
    await pod.started()
    pod.become(Status.BUSY, Status.FAULT)
    await RisingEdge(pod.clock)
    pod.set(causes=[Fault.NONE, cause])
    await pod.idle()
    assert pod.seen.count("faulted") == 1 and "stop" in pod.seen and pod.get("stop")
    assert pod.get("in_vain") == (cause == Fault.LINK_TIMEOUT)
    assert await pod.host.read(PodRegister.STATUS) == Status.BUSY | Status.FAULT
    assert await pod.host.read(PodRegister.FIRST_FAULT) == 1 << 8 | cause
    assert pod.get("irq")
    pod.become(Status.FAULT, Status.FAULT)
    await pod.idle()
    assert not pod.get("stop") and "finished" not in pod.seen
    assert await pod.host.read(PodRegister.STATUS) == Status.FAULT
    await pod.host.write(PodRegister.CONTROL, Control.SOFT_RESET)
    await pod.idle()
    assert await pod.host.read(PodRegister.STATUS) == 0
    assert await pod.host.read(PodRegister.FIRST_FAULT) == 0
    assert not pod.get("irq")


@cocotb.test
@cocotb.parametrize(after=[*range(SETTLE + 3), 40])
async def soft_reset(dut, after):
    """Check a soft reset before, during and after the cores' start: no core starts after it."""
    pod = Pod(dut)
    await pod.begin()
    await pod.host.write(PodRegister.CONTROL, Control.START)
    await pod.idle(after)
    await pod.host.write(PodRegister.CONTROL, Control.SOFT_RESET)
    pod.seen.clear()
    pod.become(*[Status(0)] * CORES)
    await pod.idle(40)
    assert "core_start" not in pod.seen and "finished" not in pod.seen
    assert await pod.host.read(PodRegister.STATUS) == 0
    await pod.started()


@cocotb.test
async def the_interrupt_of_a_core(dut):
    """Check that IRQ_STATUS shows a core's interrupt while it lasts, and `irq` if it is enabled."""
    pod = Pod(dut)
    await pod.begin()
    pod.set(cores_irq=1)
    await pod.idle()
    assert await pod.host.read(PodRegister.IRQ_STATUS) == PodInterrupt.CORE and not pod.get("irq")
    await pod.host.write(PodRegister.IRQ_ENABLE, PodInterrupt.CORE)
    await pod.idle()
    assert pod.get("irq")
    pod.set(cores_irq=0)
    await pod.idle()
    assert not pod.get("irq")


@pytest.mark.parametrize(("simulator", "variant"), variants("two cores"))
def test_pod_registers(simulator, variant):
    run_unit("test_pod_registers", simulator, Rig(), variant=variant)
