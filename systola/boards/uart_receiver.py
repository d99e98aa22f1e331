# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a UART: 8 data bits, no parity, one stop bit."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

MIN_DIVISOR = 8
"""Least number of cycles of a bit: with fewer, the bit's edge and its three samples would be too
close.
"""


class UartReceiver(wiring.Component):
    """A receiver of bytes from a serial line.

    | port    | meaning |
    |---|---|
    | `rx`    | the line; each bit lasts `divisor` cycles |
    | `valid` | high for one cycle with each byte, in the middle of its stop bit |
    | `data`  | with `valid`: the byte |
    | `error` | high instead of `valid` if there is no stop bit |

    The value of a bit is the majority of three samples up to its middle. Later samples could miss
    the next start bit of a line that is too fast. A start bit that has ended by its middle was a
    glitch, and is ignored. Nothing can stall the receiver. The line may be a few per cent faster or
    slower.
    """

    def __init__(self, *, divisor: int):
        if divisor < MIN_DIVISOR:
            raise ValueError(f"a bit takes at least {MIN_DIVISOR} cycles, not {divisor}")
        self._divisor = divisor
        super().__init__(
            {
                "rx": In(1, init=1),
                "data": Out(8),
                "valid": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = FFSynchronizer(self.rx, line, init=1)

        step = self._divisor // 8
        middle = self._divisor // 2
        count = Signal(range(self._divisor))
        samples = Signal(2)
        decided = Signal()
        value = Signal()
        m.d.comb += [
            decided.eq(count == middle),
            value.eq(Mux(line, samples.any(), samples.all())),
        ]
        with m.If((count == middle - 2 * step) | (count == middle - step)):
            m.d.sync += samples.eq(Cat(line, samples))
        with m.If(count == self._divisor - 1):
            m.d.sync += count.eq(0)
        with m.Else():
            m.d.sync += count.eq(count + 1)

        # A one moves down through the register; the start bit and the data follow it.
        bits = Signal(9)
        m.d.comb += self.data.eq(bits[1:])
        with m.FSM():
            with m.State("IDLE"):
                # The edge was seen one cycle before the start bit begins to count.
                m.d.sync += [count.eq(1), bits.eq(1 << 8)]
                with m.If(~line):
                    m.next = "START"
            with m.State("START"):
                with m.If(decided):
                    m.next = "DATA"
                    with m.If(value):
                        m.next = "IDLE"
            with m.State("DATA"):
                with m.If(decided):
                    m.d.sync += bits.eq(Cat(bits[1:], value))
                    with m.If(bits[1]):
                        m.next = "STOP"
            with m.State("STOP"):
                with m.If(decided):
                    m.d.comb += [self.valid.eq(value), self.error.eq(~value)]
                    m.next = "IDLE"
                    with m.If(~value):
                        m.next = "BREAK"
            with m.State("BREAK"):
                with m.If(line):
                    m.next = "IDLE"
        return m
