# SPDX-License-Identifier: Apache-2.0
"""Checkers of valid/ready streams and of AXI buses; a broken rule in any cycle fails the test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cocotb.triggers import RisingEdge

from systola.arch.config import HOST_PAGE_BYTES
from systola.arch.registers import FETCH_ID
from systola.verif.kit.signals import read_bit

_INCR = 1


class StreamRules:
    """A checker of the rule of streams: VALID and payload stay unchanged until READY."""

    def __init__(self, name: str):
        self._name = name
        self._held: object | None = None

    def observe(self, payload: object | None, ready: bool) -> None:
        """Check one cycle of the stream; `payload` is None in a cycle in which VALID is low."""
        if self._held is not None:
            assert payload is not None, f"{self._name}: VALID fell before READY"
            assert payload == self._held, f"{self._name}: payload changed before READY"
        self._held = None if ready else payload


class StreamChecker:
    """A checker of StreamRules on stream `name` of `dut`.

    The stream's ports are called name__valid, name__ready and name__payload.
    """

    def __init__(self, dut: Any, name: str):
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self._rules = StreamRules(name)

    async def run(self, clock: Any) -> None:
        """Check every cycle for ever; start this with cocotb.start_soon after the reset."""
        while True:
            await RisingEdge(clock)
            valid = read_bit(self._valid)
            self._rules.observe(str(self._payload.value) if valid else None, read_bit(self._ready))


@dataclass(frozen=True)
class Address:
    """A record of the signals of one address on the AXI channels AR or AW."""

    address: int
    length: int
    size: int
    burst: int
    id: int

    @property
    def end(self) -> int:
        """The address after the last byte of the burst."""
        return self.address + ((self.length + 1) << self.size)


def _overlap(one: Address, other: Address) -> bool:
    return one.address < other.end and other.address < one.end


class AxiRules:
    """A checker of one of the machine's AXI masters, which make INCR bursts at full bus width.

    There are further rules beside AXI's own. No burst leaves `window` (bus addresses [low, high)).
    No data is read before a write to it has been answered, or written while it is being read.
    """

    def __init__(self, name: str, bus_bytes: int, window: tuple[int, int]):
        self._name = name
        self._bus_bytes = bus_bytes
        self.window = window
        self._streams = {part: StreamRules(f"{name} {part}") for part in ("AR", "AW", "W")}
        self._reads: list[Address] = []
        self._writes: list[Address] = []
        self._lengths: list[int] = []
        self._bursts: list[int] = []
        self._beats = 0

    def address(self, part: str, address: Address | None, ready: bool) -> None:
        """Check one cycle of the address channel AR or AW; `address` is None if VALID is low."""
        self._streams[part].observe(address, ready)
        if address is None or not ready:
            return
        what = f"{self._name} {part} 0x{address.address:x}"
        assert address.burst == _INCR, f"{what}: BURST is not INCR"
        assert 1 << address.size == self._bus_bytes, f"{what}: SIZE is not the full bus width"
        assert address.address % self._bus_bytes == 0, f"{what}: not aligned to the bus"
        pages = address.address // HOST_PAGE_BYTES, (address.end - 1) // HOST_PAGE_BYTES
        assert pages[0] == pages[1], f"{what}: crosses 4 KiB"
        low, high = self.window
        assert low <= address.address and address.end <= high, f"{what}: leaves the window"
        if part == "AW":
            others = [read for read in self._reads if read.id != FETCH_ID]
            self._writes.append(address)
            self._lengths.append(address.length + 1)
            self._match()
        else:
            others = self._writes if address.id != FETCH_ID else []
            self._reads.append(address)
        for other in others:
            assert not _overlap(address, other), f"{what}: read and write of the same bytes"

    def write_beat(self, beat: tuple[int, int, bool] | None, ready: bool) -> None:
        """Check one cycle of the write data channel W.

        `beat` is a tuple of data, strobe and last, or None in a cycle in which VALID is low.
        """
        self._streams["W"].observe(beat, ready)
        if beat is None or not ready:
            return
        self._beats += 1
        if beat[2]:
            self._bursts.append(self._beats)
            self._beats = 0
            self._match()

    def read_ended(self) -> None:
        """Note that the master has accepted the last beat of the oldest read burst."""
        self._reads.pop(0)

    def write_answered(self) -> None:
        """Note that the master has accepted the answer to the oldest write burst."""
        self._writes.pop(0)

    @property
    def writing(self) -> bool:
        """Whether some write burst has begun and has not been answered yet."""
        return bool(self._writes or self._bursts or self._beats)

    def _match(self) -> None:
        while self._lengths and self._bursts:
            length, beats = self._lengths.pop(0), self._bursts.pop(0)
            assert length == beats, f"{self._name} W: WLAST at beat {beats} of {length}"
