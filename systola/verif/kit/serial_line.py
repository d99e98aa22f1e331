# SPDX-License-Identifier: Apache-2.0
"""A model of the far end of a serial line, with bit times of its own, and noise."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Timer

CLOCK_NS = 10
"""The period of the clock of a simulated board, in nanoseconds."""


class SerialLine:
    """The far end of a serial line, which drives pin `rx` of `dut` and listens to pin `tx`.

    A bit takes `divisor` clock cycles of the board. The far end is faster by the fraction `faster`.
    Received bytes are in `received`; a byte without a stop bit counts in `broken`.
    """

    def __init__(self, dut: Any, *, divisor: int, faster: float = 0.0):
        self._rx, self._tx = dut.rx, dut.tx
        self._bit_ps = round(1000 * CLOCK_NS * divisor / (1 + faster))
        self.received = bytearray()
        self.broken = 0
        self._rx.value = 1
        cocotb.start_soon(self._listen())

    async def send(self, content: bytes) -> None:
        """Send bytes over the serial line, one right after the other."""
        for byte in content:
            await self.send_bits([0, *(byte >> number & 1 for number in range(8)), 1])

    async def send_bits(self, bits: list[int]) -> None:
        """Send bits one after the other; the line then keeps the value of the last bit."""
        for bit in bits:
            self._rx.value = bit
            await self.wait(1)

    async def glitch(self, bits: float) -> None:
        """Invert the serial line for as long as `bits` bits take."""
        self._rx.value = 1 - int(self._rx.value)
        await self.wait(bits)
        self._rx.value = 1 - int(self._rx.value)

    async def wait(self, bits: float) -> None:
        """Wait for as long as `bits` bits take on the serial line."""
        await Timer(max(1, round(bits * self._bit_ps)), unit="ps")

    async def _listen(self) -> None:
        await self.wait(1)  # wait until the reset is over
        while True:
            if self._tx.value != 0:
                await FallingEdge(self._tx)
            await self.wait(1.5)
            byte = 0
            for number in range(8):
                byte |= int(self._tx.value) << number
                await self.wait(1)
            if self._tx.value == 1:
                self.received.append(byte)
            else:
                self.broken += 1
                await self.wait(1)
