# SPDX-License-Identifier: Apache-2.0
"""The machine on Amaranth's own simulator, without Verilog: some hundred cycles a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.hdl import Signal
from amaranth.sim import Simulator

from systola.arch.config import Config
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
from systola.hdl.tpu import TPU
from systola.hdl.transfers.axi import Response
from systola.sim.library import HOST_BASE, POLL_CYCLES, WEIGHT_BASE, RunResult
from systola.sim.memory import Burst, Inputs, MemoryModel, WriteBeat

_PERIOD = 1e-6
_Channel = tuple[Signal, Signal]


class AmaranthMachine:
    """A machine on Amaranth's simulator that runs programs, with memories of systola.sim.memory."""

    def __init__(self, config: Config, *, latency: int = 0, stall: float = 0.0, seed: int = 0):
        self.config = config
        self._tpu = TPU(config=config)

        def memory(port: int, base: int, bus_bytes: int) -> MemoryModel:
            return MemoryModel(
                data=np.zeros(0, np.uint8),
                bus_bytes=bus_bytes,
                port=port,
                base=base,
                latency=latency,
                stall=stall,
                seed=seed,
            )

        self._host = memory(0, HOST_BASE, config.host_bus_bytes)
        self._weights = memory(1, WEIGHT_BASE, config.weight_bus_bytes)
        self._now = 0
        self._started: int | None = None
        self._duration = 0
        self._starting = False
        self._ctx: Any = None

    def run(self, images: list[Image], *, limit: int = 200_000) -> list[RunResult]:
        """Run programs one after the other after a reset, and return their results.

        Fails if a program has not ended after `limit` cycles.
        """
        results: list[RunResult] = []

        async def bench(ctx: Any) -> None:
            self._ctx = ctx
            for image in images:
                results.append(await self._program(image, limit))

        simulator = Simulator(self._tpu)
        simulator.add_clock(_PERIOD)
        simulator.add_testbench(bench)
        simulator.run()
        return results

    async def _program(self, image: Image, limit: int) -> RunResult:
        self._host.data = image.host.copy()
        self._weights.data = image.weights.copy()
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
            await self._write(register, value)
        end = self._now + limit
        while self._started is not None:
            assert self._now < end, f"the program has not ended after {limit} cycles"
            if (self._now - self._started) % POLL_CYCLES:
                self._drive()
                await self._end_of_cycle()
            elif await self._read(Register.STATUS) & Status.WAITING:
                await self._write(Register.CONTROL, Control.RESUME)
        counters: dict[str, int] = {}
        for which in CycleClass:
            low = await self._read(counter_offset(which))
            counters[which.name.lower()] = low | await self._read(counter_offset(which) + 4) << 32
        count = await self._read(Register.TAGS)
        tags: list[tuple[int, int]] = []
        for number in range(max(0, count - TRACE_DEPTH), count):
            offset = trace_offset(number)
            tags.append((await self._read(offset), await self._read(offset + 4)))
        return RunResult(
            host=self._host.data,
            status=Status(await self._read(Register.STATUS)),
            fault_cause=Fault(await self._read(Register.FAULT_CAUSE)),
            fault_pc=await self._read(Register.FAULT_PC),
            fault_address=await self._read(Register.FAULT_ADDRESS),
            irq_status=Interrupt(await self._read(Register.IRQ_STATUS)),
            irq_code=await self._read(Register.IRQ_CODE),
            cycles=self._duration,
            counters=counters,
            tags=tuple(tags),
            missing_tags=count - len(tags),
            seconds=0.0,
        )

    async def _write(self, offset: int, value: int) -> None:
        bus = self._tpu.control
        self._starting = offset == Register.CONTROL and bool(value & Control.START)
        for signal, number in ((bus.awaddr, offset), (bus.wdata, value), (bus.wstrb, 0xF)):
            self._ctx.set(signal, number)
        address, content = (bus.awvalid, bus.awready), (bus.wvalid, bus.wready)
        await self._transfer((bus.bvalid, bus.bready), address, content)
        self._starting = False

    async def _read(self, offset: int) -> int:
        bus = self._tpu.control
        self._ctx.set(bus.araddr, offset)
        values: list[int] = []
        await self._transfer(
            (bus.rvalid, bus.rready),
            (bus.arvalid, bus.arready),
            look=lambda: values.append(self._ctx.get(bus.rdata)),
        )
        return values[-1]

    async def _transfer(
        self, answer: _Channel, *offers: _Channel, look: Callable[[], None] | None = None
    ) -> None:
        """Make a transfer on each channel of `offers`, and run until channel `answer` has one.

        The function `look` is called in the cycle of the answer.
        """
        ctx, (answered, ready) = self._ctx, answer
        for valid, _ in offers:
            ctx.set(valid, 1)
        ctx.set(ready, 1)
        done = False
        while not done:
            self._drive()
            done = bool(ctx.get(answered))
            if done and look:
                look()
            taken = [valid for valid, accepts in offers if ctx.get(valid) and ctx.get(accepts)]
            await self._end_of_cycle()
            for valid in taken:
                ctx.set(valid, 0)
        ctx.set(ready, 0)

    def _drive(self) -> None:
        """Drive the machine's inputs from the memories at the beginning of a cycle."""
        ctx, reads, writes = self._ctx, self._tpu.host_read, self._tpu.host_write
        for bus, memory in ((reads, self._host), (self._tpu.weight_read, self._weights)):
            out = memory.drive()
            ctx.set(bus.arready, out.ar_ready)
            ctx.set(bus.rvalid, out.r is not None)
            if out.r is not None:
                ctx.set(bus.rid, out.r.id)
                ctx.set(bus.rdata, out.r.data)
                ctx.set(bus.rresp, Response(out.r.response))
                ctx.set(bus.rlast, out.r.last)
        out = self._host.outputs
        ctx.set(writes.awready, out.aw_ready)
        ctx.set(writes.wready, out.w_ready)
        ctx.set(writes.bvalid, out.b is not None)
        if out.b is not None:
            ctx.set(writes.bid, out.b.id)
            ctx.set(writes.bresp, Response(out.b.response))

    async def _end_of_cycle(self) -> None:
        """Read the machine's outputs when all signals are settled, and pass the clock edge."""
        get, tpu = self._ctx.get, self._tpu
        host, weights = Inputs(), Inputs()
        for bus, now in ((tpu.host_read, host), (tpu.weight_read, weights)):
            if get(bus.arvalid):
                now.ar = Burst(get(bus.araddr), get(bus.arlen), get(bus.arid))
            now.r_ready = bool(get(bus.rready))
        bus = tpu.host_write
        if get(bus.awvalid):
            host.aw = Burst(get(bus.awaddr), get(bus.awlen), get(bus.awid))
        if get(bus.wvalid):
            host.w = WriteBeat(get(bus.wdata), get(bus.wstrb), bool(get(bus.wlast)))
        host.b_ready = bool(get(bus.bready))
        self._host.sample(host)
        self._weights.sample(weights)
        accepted = get(tpu.control.wvalid) and get(tpu.control.wready)
        if self._started is not None:
            if get(tpu.irq):
                self._duration = self._now - self._started
                self._started = None
        elif self._starting and accepted:
            self._started = self._now
            self._host.restart()
            self._weights.restart()
        await self._ctx.tick()
        self._now += 1
