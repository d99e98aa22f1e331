# SPDX-License-Identifier: Apache-2.0
"""The cocotb bench of the whole machine: clock, reset, AXI4-Lite host, host and weight memories."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import ClockCycles, Event, Lock, RisingEdge, SimTimeoutError, with_timeout
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config, preset
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.arch.registers import (
    TRACE_DEPTH,
    Control,
    CycleClass,
    Interrupt,
    Register,
    Status,
    counter_offset,
    program_registers,
    trace_offset,
)
from systola.golden.machine import Machine
from systola.sim.library import HOST_BASE, POLL_CYCLES, WEIGHT_BASE, RunResult
from systola.sim.memory import MemoryModel
from systola.sim.state import PORT, described
from systola.sim.waves import MARKER
from systola.verif.kit import scoreboard
from systola.verif.kit.axi_lite import AxiLiteMaster
from systola.verif.kit.axi_memory import AxiMemory
from systola.verif.kit.blame import blame
from systola.verif.kit.checker import AxiRules
from systola.verif.kit.reset import begin_reset
from systola.verif.kit.signals import Driven, read_bit

PERIOD_NS = 10
_GUARD = HOST_PAGE_BYTES
_FENCE = 0xA5
"""The value of each byte in the pages just below and above the host window.

The machine must not touch these pages.
"""


def config_under_test() -> Config:
    """Return the configuration that the running simulation was built for."""
    return preset(os.environ["TPU_PRESET"])


class TB:
    """A cocotb bench around the machine `dut`; a test must call `await start()` first.

    `latency`, `stall` and `seed` describe the memories, see systola.sim.memory. With the same
    values, a program takes the same cycles here as in systola.sim.library.
    """

    def __init__(
        self,
        dut: Any,
        *,
        config: Config | None = None,
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
    ):
        self.dut = dut
        self.config = config or config_under_test()
        self.golden = Machine(self.config)
        self._rst = Driven(dut.rst)
        self.registers = AxiLiteMaster(dut)
        bus = self.config.host_bus_bytes, self.config.weight_bus_bytes
        empty = np.zeros(0, np.uint8)
        self.host, self.weight = (
            AxiMemory(
                dut,
                f"m_axi_{name}",
                MemoryModel(
                    data=empty,
                    bus_bytes=bus[port],
                    port=port,
                    latency=latency,
                    stall=stall,
                    seed=seed,
                ),
                AxiRules(name, bus[port], (0, 0)),
            )
            for port, name in enumerate(("host", "weight"))
        )
        self._cycle = 0
        self._started: int | None = None
        self._duration = 0
        self._start_time = 0.0
        self._program = 0
        self._look = Event()
        """Event that is set when the program has ended, or when it is time to read STATUS."""
        self._port = Lock()

    async def start(self) -> None:
        """Start the clock and reset the machine."""
        begin_reset(self.dut.rst)
        Clock(self.dut.clk, PERIOD_NS, unit="ns").start(start_high=False)
        self._rst.set(1)
        await ClockCycles(self.dut.clk, 4)
        self._rst.set(0)
        await RisingEdge(self.dut.clk)
        cocotb.start_soon(self._run())

    async def write(self, register: int, value: int) -> None:
        """Write a control register of the machine."""
        async with self._port:
            await self.registers.write(register, value)

    async def read(self, register: int) -> int:
        """Read a control register of the machine."""
        async with self._port:
            return await self.registers.read(register)

    async def resume(self) -> None:
        """Write RESUME, so that the waiting Synchronize_Host, or else the next one, lets the
        program go on.
        """
        await self.write(Register.CONTROL, Control.RESUME)

    async def trace(self) -> tuple[tuple[int, int], ...]:
        """Return the trace: a pair (cycle since START, tag) for each recent tag, oldest first.

        There are TRACE_DEPTH pairs at most.
        """
        count = await self.read(Register.TAGS)
        pairs: list[tuple[int, int]] = []
        for number in range(max(0, count - TRACE_DEPTH), count):
            offset = trace_offset(number)
            pairs.append((await self.read(offset), await self.read(offset + 4)))
        return tuple(pairs)

    async def prepare(
        self,
        image: Image,
        *,
        host_errors: tuple[int, int] = (0, 0),
        weight_errors: tuple[int, int] = (0, 0),
    ) -> None:
        """Fill the memories and set all registers, so that a write of START runs `image`.

        `host_errors` and `weight_errors` are byte ranges of the host and the weight window.
        Accesses to these ranges are answered with SLVERR.
        """
        fence = np.full(_GUARD, _FENCE, np.uint8)
        for memory, content, base, errors in (
            (self.host, np.concatenate([fence, image.host, fence]), HOST_BASE, host_errors),
            (self.weight, image.weights.copy(), WEIGHT_BASE, weight_errors),
        ):
            size = image.host.size if memory is self.host else image.weights.size
            memory.model.data = content
            memory.model.base = base - (content.size - size) // 2
            memory.model.error_range = base + errors[0], base + errors[1]
            memory.rules.window = base, base + size
        self._program = image.program_offset
        for register, value in (
            *program_registers(
                host_base=HOST_BASE,
                host_bytes=image.host.size,
                weight_base=WEIGHT_BASE,
                tiles=image.weights.size // self.config.tile_bytes,
                program=image.program_offset,
            ),
            (Register.IRQ_ENABLE, Interrupt.DONE | Interrupt.FAULT),
        ):
            await self.write(register, value)

    async def run_program(
        self,
        image: Image,
        *,
        host_errors: tuple[int, int] = (0, 0),
        weight_errors: tuple[int, int] = (0, 0),
        fault: Fault | None = None,
        limit: int = 200_000,
        on_wait: Callable[[NDArray[np.uint8]], None] | None = None,
    ) -> RunResult:
        """Run the program of `image` to its Halt, or to `fault`; return the state the host sees.

        When the program waits for the host, `on_wait` is called with the content of the host
        window, which it may change. Then the host writes RESUME. The test fails if the program ends
        otherwise, or not within `limit` cycles. The test fails, too, if a rule of AXI is broken, or
        memory outside the window has changed.
        """
        await self.prepare(image, host_errors=host_errors, weight_errors=weight_errors)
        return await self.finish(fault=fault, limit=limit, on_wait=on_wait)

    async def finish(
        self,
        *,
        fault: Fault | None = None,
        limit: int = 200_000,
        on_wait: Callable[[NDArray[np.uint8]], None] | None = None,
    ) -> RunResult:
        """Start the program that `prepare` has loaded, and run it to its end.

        The arguments and the result are the same as for `run_program`.
        """
        result = await self.finish_anyhow(limit=limit, on_wait=on_wait)
        scoreboard.check_end(scoreboard.fault_of(result), scoreboard.ends_in(fault))
        return result

    async def finish_anyhow(
        self,
        *,
        limit: int = 200_000,
        on_wait: Callable[[NDArray[np.uint8]], None] | None = None,
    ) -> RunResult:
        """Run the prepared program to any end, also to a fault, for tests that check the end
        themselves.
        """
        begun = time.perf_counter()
        await self.write(Register.CONTROL, Control.START)
        await self.ended(limit=limit, on_wait=on_wait)
        seconds = time.perf_counter() - begun
        counters: dict[str, int] = {}
        for which in CycleClass:
            low = await self.read(counter_offset(which))
            counters[which.name.lower()] = low | await self.read(counter_offset(which) + 4) << 32
        tags = await self.trace()
        status = Status(await self.read(Register.STATUS))
        assert not status & Status.BUSY, "still busy after the interrupt"
        assert sum(counters.values()) == self._duration, (
            f"counters sum to {sum(counters.values())}, not {self._duration}: {counters}"
        )
        return RunResult(
            host=self.host_window(),
            status=status,
            fault_cause=Fault(await self.read(Register.FAULT_CAUSE)),
            fault_pc=await self.read(Register.FAULT_PC),
            fault_address=await self.read(Register.FAULT_ADDRESS),
            irq_status=Interrupt(await self.read(Register.IRQ_STATUS)),
            irq_code=await self.read(Register.IRQ_CODE),
            cycles=self._duration,
            counters=counters,
            tags=tags,
            missing_tags=await self.read(Register.TAGS) - len(tags),
            seconds=seconds,
        )

    async def ended(
        self,
        *,
        limit: int = 200_000,
        on_wait: Callable[[NDArray[np.uint8]], None] | None = None,
    ) -> None:
        """Wait for the interrupt at the end of the program that has been started, see
        `run_program`.
        """
        try:
            await with_timeout(self._attend(on_wait), limit * PERIOD_NS, "ns")
        except SimTimeoutError:
            raise AssertionError(
                f"the program has not ended after {limit} cycles{self._state()}"
            ) from None

    def _state(self) -> str:
        """Describe the machine's state; return an empty text for a netlist, which hides the
        state.
        """
        if not hasattr(self.dut, PORT):
            return ""
        program = self.host.model.data[_GUARD + self._program :].tobytes()
        bits = re.sub("[^01]", "0", str(getattr(self.dut, PORT).value))  # some bits may be unknown
        return f"\n{described(int(bits, 2), program)}"

    async def _attend(self, on_wait: Callable[[NDArray[np.uint8]], None] | None) -> None:
        # STATUS is read in the same cycles as in systola.sim.library.
        while self._started is not None:
            if (self._cycle - self._started) % POLL_CYCLES:
                self._look.clear()
                await self._look.wait()
                continue
            if await self.read(Register.STATUS) & Status.WAITING:
                if on_wait:
                    on_wait(self.host.model.data[_GUARD:-_GUARD])
                await self.resume()

    def host_window(self) -> NDArray[np.uint8]:
        """Return the content of the host window. Fails if the memory around it has changed."""
        data = self.host.model.data
        for side, fence in (("below", data[:_GUARD]), ("above", data[-_GUARD:])):
            assert (fence == _FENCE).all(), f"memory {side} the host window has changed"
        return data[_GUARD:-_GUARD].copy()

    async def check_program(
        self, image: Image, *, fault: Fault | None = None, limit: int = 200_000
    ) -> RunResult:
        """Run the program on the simulated machine and on the golden model, and compare the runs.

        Memory, fault, interrupts and tags must be equal. The program must end at Halt, or in
        `fault`: if both runs end in another fault, nothing was tested. The golden model
        keeps its on-chip memories between programs, as the machine does.
        """
        expected = image.host.copy()
        outcome = self.golden.run(expected, image.weights, image.program_offset)
        scoreboard.check_end(outcome.fault, scoreboard.ends_in(fault))
        await self.prepare(image)
        result = await self.finish_anyhow(limit=limit)

        def about(place: int) -> str:
            cycle = self.host.model.written_at(_GUARD + place)
            if cycle is not None:
                self._mark(cycle)
            return blame(self.config, image, place, cycle)

        scoreboard.check_result(result, expected, outcome, about)
        return result

    def _mark(self, cycle: int) -> None:
        """Write the simulation time of the first failure to a file, to show where to look in a
        waveform.
        """
        marker = Path(os.environ[MARKER])
        if not marker.exists():
            marker.write_text(f"{int(self._start_time + cycle * PERIOD_NS)}")

    async def soft_reset(self, *, limit: int = 10_000) -> None:
        """Abandon the running program with SOFT_RESET, and wait until the machine is idle."""
        self._started = None
        await self.write(Register.CONTROL, Control.SOFT_RESET)
        for _ in range(limit):
            if not await self.read(Register.STATUS) & Status.BUSY:
                assert not self.host.rules.writing, "idle with a write unanswered"
                return
        raise AssertionError("still busy long after the soft reset")

    async def _run(self) -> None:
        # One loop drives host and memories, so that events have the same order in each cycle.
        while True:
            await RisingEdge(self.dut.clk)
            if self._started is not None and read_bit(self.dut.irq):
                assert not self.host.rules.writing, "interrupt before the last write's answer"
                self._duration = self._cycle - self._started
                self._started = None
                self._look.set()
            self.registers.step()
            starts = self.registers.start_accepted and self._started is None
            if starts:
                self._started = self._cycle
                self._start_time = get_sim_time("ns")
            for memory in (self.host, self.weight):
                memory.step(restart=starts)
            self._cycle += 1
            if self._started is not None and (self._cycle - self._started) % POLL_CYCLES == 0:
                self._look.set()
