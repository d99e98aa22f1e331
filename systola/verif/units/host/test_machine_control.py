# SPDX-License-Identifier: Apache-2.0
"""The test of the control of programs: Halt, faults, bus errors and soft resets, in every state."""

import cocotb
import pytest

from systola.arch.isa import Fault
from systola.arch.registers import BusPort, CheckedMemory, Status
from systola.hdl.host.machine_control import MachineControl
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, run_unit

UNITS = ("first", "second")
QUIET = (1 << len(BusPort)) - 1
STATES = {
    "idle": {"running": 0, "draining": 0, "busy": 0, "stop": 0, "clear": 0},
    "run": {"running": 1, "draining": 0, "busy": 1, "stop": 0, "clear": 0},
    "drain": {"running": 0, "draining": 1, "busy": 1, "stop": 0, "clear": 0},
    "stop": {"running": 0, "draining": 1, "busy": 1, "stop": 1, "clear": 0},
    "clear": {"running": 0, "draining": 0, "busy": 0, "stop": 1, "clear": 1},
}
PORTS = {
    "halted": "program_status__halted",
    "rejected": "program_status__rejected",
    "waiting": "program_status__waiting",
    "error": "error__found",
}
"""Ports that are inputs of the unit, by the short names that the tests use."""
PULSES = ("begins", "finished", "faulted", "forget")
"""Outputs that are high for one cycle: `begins` in the cycle of its cause, others a cycle later."""
REJECTION = {"cause": int(Fault.BUFFER_RANGE), "pc": 12, "address": 0x1234}
NOTHING = (0, 0, 0)


def unit():
    return MachineControl(units=UNITS)


class Control(Bench):
    """A bench of the machine control, in which all outputs are checked in every cycle."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.following = set()

    async def step(self, state, *pulses, status=None, **inputs):
        """Run one cycle, and check that the unit is in `state`, and the cycle causes `pulses`."""
        names = ("start", "soft_reset", "expired", "idle", "quiet", "corrupt", *PORTS)
        await self.cycle(**{PORTS.get(name, name): inputs.get(name, 0) for name in names})
        shown = {name: self.get(name) for name in STATES["idle"] if name != "clear"}
        clear = self.get("clear")
        for unit in UNITS:
            shown["clear"] = clear[unit]
            assert shown == STATES[state], f"{state}, {unit}: {shown}"
        up = self.following | (set(pulses) & {"begins"})
        assert {name for name in PULSES if self.get(name)} == up, f"in {state}"
        self.following = set(pulses) - {"begins"}
        if status is None:
            status = 0 if state in ("idle", "clear") else Status.BUSY
        self.expect("status", status, f"status in {state}")

    def report(self):
        report = self.get("report")
        return report.cause, report.pc, report.address

    async def to(self, state):
        """Start a program, and run it until the unit is in `state`."""
        await self.step("idle", "begins", start=1)
        if state == "run":
            return
        await self.step("run", halted=1)
        if state == "drain":
            return
        await self.step("drain", idle=1)
        if state == "stop":
            return
        await self.step("stop", "finished", quiet=QUIET)


async def started(dut):
    bench = Control(dut)
    await bench.start()
    bench.set(
        program_status__rejection=REJECTION,
        error__cause=int(Fault.HOST_READ_ERROR),
        error__pc=5,
    )
    await bench.step("clear")
    await bench.step("idle")
    return bench


@cocotb.test
async def halt(dut):
    """Check that Halt waits for the units, then for the bus; `start` counts only in state idle."""
    bench = await started(dut)
    for previous in (0, Status.DONE):
        await bench.step("idle", "begins", start=1, status=previous)
        for _ in range(3):
            await bench.step("run", idle=1, quiet=QUIET, start=1)
        await bench.step("run", halted=1)
        for _ in range(3):
            await bench.step("drain", quiet=QUIET, start=1)
        await bench.step("drain", idle=1)
        for port in BusPort:
            await bench.step("stop", start=1, quiet=QUIET & ~port)
        await bench.step("stop", "finished", quiet=QUIET)
        await bench.step("clear", status=Status.DONE)
        await bench.step("idle", status=Status.DONE)
        assert bench.report() == NOTHING


@cocotb.test
async def rejection(dut):
    """Check that a fault at issue waits for the units as Halt does.

    The next program starts with an empty report.
    """
    bench = await started(dut)
    await bench.to("run")
    await bench.step("run", rejected=1)
    await bench.step("drain")
    await bench.step("drain", idle=1)
    await bench.step("stop", "faulted", quiet=QUIET)
    await bench.step("clear", status=Status.FAULT)
    assert bench.report() == (Fault.BUFFER_RANGE, 12, 0x1234)
    await bench.step("idle", "begins", start=1, status=Status.FAULT)
    await bench.step("run")
    await bench.step("run")
    assert bench.report() == NOTHING


@cocotb.test
async def bus_errors(dut):
    """Check that a bus error stops the machine at once, and replaces a report of a fault at issue.

    Later bus errors change nothing.
    """
    bench = await started(dut)
    for state in ("run", "drain after halt", "drain after fault", "with fault"):
        await bench.step("idle", "begins", start=1, status=bench.get("status"))
        if state.startswith("drain"):
            await bench.step("run", halted="halt" in state, rejected="fault" in state)
            await bench.step("drain")
            await bench.step("drain", error=1, idle=1)
        else:
            await bench.step("run", error=1, rejected=state == "with fault")
        bench.set(error__cause=int(Fault.WEIGHT_READ_ERROR), error__pc=6)
        await bench.step("stop", error=1)
        await bench.step("stop", "faulted", quiet=QUIET, error=1)
        await bench.step("clear", status=Status.FAULT, error=1)
        bench.set(error__cause=int(Fault.HOST_READ_ERROR), error__pc=5)
        await bench.step("idle", status=Status.FAULT, error=1)
        assert bench.report() == (Fault.HOST_READ_ERROR, 5, 0)
        await bench.step("idle", status=Status.FAULT)


@cocotb.test
async def memory_errors(dut):
    """Check that a parity flaw in an on-chip memory stops a running machine at once.

    Flaws do not matter while the machine is idle or waits for the bus to become quiet.
    """
    bench = await started(dut)
    await bench.step("idle", corrupt=1)
    for state in ("run", "drain"):
        await bench.to(state)
        await bench.step(state, corrupt=2)
        await bench.step("stop", corrupt=1)
        await bench.step("stop", "faulted", quiet=QUIET)
        await bench.step("clear", status=Status.FAULT)
        assert bench.report() == (Fault.MEMORY_ERROR, 0, CheckedMemory.ACCUMULATORS)
        await bench.step("idle", "forget", status=Status.FAULT, soft_reset=1)
        await bench.step("idle")
    await bench.to("stop")
    await bench.step("stop", "finished", corrupt=1, quiet=QUIET)
    await bench.step("clear", status=Status.DONE)
    assert bench.report() == NOTHING


@cocotb.test
async def soft_reset(dut):
    """Check that a soft reset in any state waits for the bus, and clears status and report.

    A soft reset raises no interrupt.
    """
    bench = await started(dut)
    for state in ("run", "drain", "stop"):
        for more in ({}, {"error": 1}, {"halted": 1}, {"rejected": 1}, {"idle": 1}):
            await bench.to(state)
            await bench.step(state, soft_reset=1, **more)
            await bench.step("stop", error=1)
            await bench.step("stop", "forget", quiet=QUIET)
            await bench.step("clear")
            await bench.step("idle")
            assert bench.report() == NOTHING
    # The soft reset comes in the last cycle of STOP, then in the cycle that clears the units.
    await bench.to("stop")
    await bench.step("stop", soft_reset=1, quiet=QUIET)
    await bench.step("stop", "forget", quiet=QUIET)
    await bench.step("clear")
    await bench.to("clear")
    await bench.step("clear", "forget", soft_reset=1, status=Status.DONE)
    await bench.step("idle")
    # In state idle, a soft reset clears status and report of the last program. A START in the same
    # cycle does not count.
    await bench.to("clear")
    await bench.step("clear", status=Status.DONE)
    await bench.step("idle", "forget", soft_reset=1, start=1, status=Status.DONE)
    await bench.step("idle")
    await bench.to("run")
    await bench.step("run", rejected=1)
    await bench.step("drain", idle=1)
    await bench.step("stop", "faulted", quiet=QUIET)
    await bench.step("clear", status=Status.FAULT)
    await bench.step("idle", "forget", soft_reset=1, status=Status.FAULT)
    await bench.step("idle")
    await bench.step("idle")
    assert bench.report() == NOTHING


@cocotb.test
async def no_answer(dut):
    """Check that a missing answer of a memory is one fault, reported at once, in every busy state.

    After the fault, the machine stays busy until the bus is quiet.
    """
    bench = await started(dut)
    bench.set(waits=int(BusPort.WEIGHT_READ))
    await bench.step("idle", expired=1)
    lost = Status.BUSY | Status.FAULT
    for state in ("run", "drain", "stop"):
        await bench.to(state)
        await bench.step(state, "faulted", expired=1)
        await bench.step("stop", status=lost)
        await bench.step("stop", status=lost, expired=1, error=1)
        assert bench.report() == (Fault.BUS_TIMEOUT, 0, BusPort.WEIGHT_READ)
        await bench.step("stop", status=lost, quiet=QUIET)
        await bench.step("clear", status=Status.FAULT)
        await bench.step("idle", "forget", status=Status.FAULT, soft_reset=1)
        await bench.step("idle")
        assert bench.report() == (Fault.BUS_TIMEOUT, 0, BusPort.WEIGHT_READ)
        await bench.step("idle")
        assert bench.report() == NOTHING
    # The last beat comes in the very cycle in which the watchdog expires.
    await bench.to("stop")
    await bench.step("stop", "finished", expired=1, quiet=QUIET)
    await bench.step("clear", "forget", status=Status.DONE, soft_reset=1)
    # One soft reset waits for the memory, and another comes after the fault.
    await bench.to("run")
    await bench.step("run", soft_reset=1)
    await bench.step("stop", "faulted", expired=1)
    await bench.step("stop", status=lost, soft_reset=1)
    await bench.step("stop", "forget", status=lost, quiet=QUIET)
    await bench.step("clear")
    await bench.step("idle")
    assert bench.report() == NOTHING


@cocotb.test
async def waiting(dut):
    """Check that input `waiting` only sets bit WAITING of STATUS, and only in a running program."""
    bench = await started(dut)
    await bench.step("idle", waiting=1)
    await bench.to("run")
    await bench.step("run", waiting=1, status=Status.BUSY | Status.WAITING)
    await bench.step("run", waiting=1, idle=1, quiet=QUIET, status=Status.BUSY | Status.WAITING)
    await bench.step("run", status=Status.BUSY)
    await bench.step("run", waiting=1, error=1, status=Status.BUSY | Status.WAITING)
    await bench.step("stop", waiting=1)
    await bench.step("stop", "faulted", waiting=1, quiet=QUIET)
    await bench.step("clear", waiting=1, status=Status.FAULT)
    await bench.step("idle", waiting=1, status=Status.FAULT)
    await bench.step("idle", "begins", start=1, waiting=1, status=Status.FAULT)
    await bench.step("run", soft_reset=1, waiting=1, status=Status.BUSY | Status.WAITING)
    await bench.step("stop", "forget", waiting=1, quiet=QUIET)
    await bench.step("clear", waiting=1)
    await bench.to("drain")
    await bench.step("drain", waiting=1)


@cocotb.test
async def reset_twice(dut):
    """Check that a second soft reset during the first changes nothing.

    The next program runs as usual.
    """
    bench = await started(dut)
    await bench.to("run")
    await bench.step("run", soft_reset=1)
    await bench.step("stop", soft_reset=1)
    await bench.step("stop", "forget", quiet=QUIET)
    await bench.step("clear", "forget", soft_reset=1)
    await bench.step("idle")
    await bench.to("clear")
    # The next program may begin in the cycle in which the units are cleared.
    await bench.step("clear", "begins", start=1, status=Status.DONE)
    await bench.step("run")


@pytest.mark.parametrize("simulator", simulators())
def test_machine_control(simulator):
    run_unit("test_machine_control", simulator, unit())
