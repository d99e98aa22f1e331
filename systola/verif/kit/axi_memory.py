# SPDX-License-Identifier: Apache-2.0
"""A memory model on an AXI port of a cocotb test."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import RisingEdge

from systola.sim.memory import Burst, Inputs, MemoryModel, WriteBeat
from systola.verif.kit.checker import Address, AxiRules
from systola.verif.kit.signals import Driven, read, read_bit


class AxiMemory:
    """A memory that connects `model` to the AXI ports `<prefix>_*` of `dut`, and checks `rules`.

    Either `run` or the bench calls `step` once in each cycle, after the rising edge. A port without
    write channels is only read from.
    """

    def __init__(self, dut: Any, prefix: str, model: MemoryModel, rules: AxiRules):
        def port(name: str) -> Any:
            return getattr(dut, f"{prefix}_{name}")

        self.model = model
        self.rules = rules
        self._arvalid, self._rready = port("arvalid"), port("rready")
        self._ar = [port(f"ar{part}") for part in ("addr", "len", "size", "burst", "id")]
        self._arready, self._rvalid = Driven(port("arready")), Driven(port("rvalid"))
        self._rid, self._rdata = Driven(port("rid")), Driven(port("rdata"))
        self._rresp, self._rlast = Driven(port("rresp")), Driven(port("rlast"))
        self._writes = hasattr(dut, f"{prefix}_awvalid")
        if self._writes:
            self._awvalid, self._wvalid, self._bready = map(port, ("awvalid", "wvalid", "bready"))
            self._aw = [port(f"aw{part}") for part in ("addr", "len", "size", "burst", "id")]
            self._w = [port(f"w{part}") for part in ("data", "strb", "last")]
            self._awready, self._wready = Driven(port("awready")), Driven(port("wready"))
            self._bvalid, self._bid = Driven(port("bvalid")), Driven(port("bid"))
            self._bresp = Driven(port("bresp"))
        self._drive()

    async def run(self, clock: Any) -> None:
        """Call `step` in every cycle for ever; this is for benches without a loop of their own."""
        while True:
            await RisingEdge(clock)
            self.step()

    def step(self, restart: bool = False) -> None:
        """Sample the cycle that the rising edge has just ended, and drive the next cycle.

        With `restart` the model's sequence of stalls begins again between the two cycles.
        """
        out, now = self.model.outputs, Inputs()
        if read_bit(self._arvalid):
            now.ar = self._address("AR", self._ar, out.ar_ready)
        else:
            self.rules.address("AR", None, out.ar_ready)
        now.r_ready = out.r is not None and read_bit(self._rready)
        if now.r_ready and out.r is not None and out.r.last:
            self.rules.read_ended()
        if self._writes:
            self._sample_writes(now)
        self.model.sample(now)
        if restart:
            self.model.restart()
        self._drive()

    def _sample_writes(self, now: Inputs) -> None:
        out = self.model.outputs
        now.b_ready = out.b is not None and read_bit(self._bready)
        if read_bit(self._awvalid):
            now.aw = self._address("AW", self._aw, out.aw_ready)
        else:
            self.rules.address("AW", None, out.aw_ready)
        if read_bit(self._wvalid):
            strobe = read(self._w[1])
            data, last = _strobed(self._w[0], strobe), read_bit(self._w[2])
            self.rules.write_beat((data, strobe, last), out.w_ready)
            now.w = WriteBeat(data, strobe, last)
        else:
            self.rules.write_beat(None, out.w_ready)
        if now.b_ready:
            self.rules.write_answered()

    def _address(self, part: str, ports: list[Any], ready: bool) -> Burst:
        address = Address(*map(read, ports))
        self.rules.address(part, address, ready)
        return Burst(address.address, address.length, address.id)

    def _drive(self) -> None:
        out = self.model.drive()
        self._arready.set(out.ar_ready)
        self._rvalid.set(out.r is not None)
        if out.r is not None:
            self._rid.set(out.r.id)
            self._rdata.set(out.r.data)
            self._rresp.set(out.r.response)
            self._rlast.set(out.r.last)
        if not self._writes:
            return
        self._awready.set(out.aw_ready)
        self._wready.set(out.w_ready)
        self._bvalid.set(out.b is not None)
        if out.b is not None:
            self._bid.set(out.b.id)
            self._bresp.set(out.b.response)


def _strobed(port: Any, strobe: int) -> int:
    """Return the number on port WDATA; a byte lane without its strobe may be unknown, and counts as
    0.
    """
    text = str(port.value)
    lanes = len(text) // 8
    for lane in range(lanes):
        if not strobe >> lane & 1:
            start = 8 * (lanes - 1 - lane)
            text = text[:start] + "0" * 8 + text[start + 8 :]
    return int(text, 2)
