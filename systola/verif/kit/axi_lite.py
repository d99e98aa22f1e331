# SPDX-License-Identifier: Apache-2.0
"""A model of a host on AXI4-Lite, for cocotb tests."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import Event, RisingEdge

from systola.arch.registers import Control, Register
from systola.verif.kit.signals import Driven, read, read_bit


class AxiLiteMaster:
    """A host that accesses registers, one at a time, through the ports `<prefix>_*` of `dut`.

    Either `run` or the bench calls `step` once in each cycle, after the rising edge.
    """

    def __init__(self, dut: Any, prefix: str = "s_axil"):
        def port(name: str) -> Any:
            return getattr(dut, f"{prefix}_{name}")

        def driven(name: str) -> Driven:
            return Driven(port(name))

        self._awaddr, self._awvalid = driven("awaddr"), driven("awvalid")
        self._wdata, self._wvalid, self._wstrb = driven("wdata"), driven("wvalid"), driven("wstrb")
        self._araddr, self._arvalid = driven("araddr"), driven("arvalid")
        self._bready, self._rready = driven("bready"), driven("rready")
        for name in ("awprot", "arprot"):
            driven(name)
        self._awready, self._wready, self._arready = (
            port("awready"),
            port("wready"),
            port("arready"),
        )
        self._bvalid, self._bresp = port("bvalid"), port("bresp")
        self._rvalid, self._rresp, self._rdata = port("rvalid"), port("rresp"), port("rdata")
        self._answer = 0
        self._finished = Event()
        self.start_accepted = False
        """Whether a write of START was accepted in the cycle that `step` saw last."""

    async def run(self, clock: Any) -> None:
        """Call `step` in every cycle for ever; this is for benches without a loop of their own."""
        while True:
            await RisingEdge(clock)
            self.step()

    async def write(self, offset: int, value: int) -> None:
        """Write a register, and fail if the unit answers anything other than OKAY."""
        self._awaddr.set(offset)
        self._wdata.set(value)
        self._wstrb.set(0xF)
        self._finished.clear()
        for port in (self._awvalid, self._wvalid, self._bready):
            port.set(1)
        await self._finished.wait()
        assert self._answer == 0, f"write to register 0x{offset:03x}: response {self._answer}"

    async def read(self, offset: int) -> int:
        """Read a register, and fail if the unit answers anything other than OKAY."""
        self._araddr.set(offset)
        self._finished.clear()
        for port in (self._arvalid, self._rready):
            port.set(1)
        await self._finished.wait()
        assert self._answer == 0, f"read of register 0x{offset:03x}: response {self._answer}"
        return self._data

    def step(self) -> None:
        """Read the bus signals of the cycle that the rising edge has just ended, and drive the next
        cycle.
        """
        waited = self._awvalid.value or self._wvalid.value
        for valid, ready in (
            (self._awvalid, self._awready),
            (self._wvalid, self._wready),
            (self._arvalid, self._arready),
        ):
            if valid.value and read_bit(ready):
                valid.set(0)
        self.start_accepted = bool(
            waited
            and not (self._awvalid.value or self._wvalid.value)
            and self._awaddr.value == Register.CONTROL
            and self._wdata.value & Control.START
        )
        if self._bready.value and read_bit(self._bvalid):
            self._bready.set(0)
            self._answer = read(self._bresp)
            self._finished.set()
        if self._rready.value and read_bit(self._rvalid):
            self._rready.set(0)
            self._answer, self._data = read(self._rresp), read(self._rdata)
            self._finished.set()
