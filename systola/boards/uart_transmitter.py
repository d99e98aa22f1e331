# SPDX-License-Identifier: Apache-2.0
"""The sending half of a UART: 8 data bits, no parity, one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

FRAME_BITS = 10


class UartTransmitter(wiring.Component):
    """A transmitter of bytes to a serial line.

    | port   | meaning |
    |---|---|
    | `byte` | stream of bytes |
    | `tx`   | the line; each bit lasts `divisor` cycles |

    Throughput: a byte in 10 * `divisor` cycles. The start bit begins in the cycle after the byte is
    accepted.
    """

    def __init__(self, *, divisor: int):
        self._divisor = divisor
        super().__init__({"byte": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = Signal(FRAME_BITS, init=1, reset_less=True)
        left = Signal(range(FRAME_BITS + 1))
        count = Signal(range(self._divisor))
        last = Signal()
        m.d.comb += [
            last.eq(count == self._divisor - 1),
            self.byte.ready.eq((left == 0) | ((left == 1) & last)),
        ]
        idle = Signal()
        m.d.comb += idle.eq(left == 0)
        # Idle and the stop bit are ones; the line is a register, so that it has no glitches.
        line = Signal(init=1)
        m.d.sync += line.eq(shift[0] | idle)
        m.d.comb += self.tx.eq(line)
        with m.If(~idle):
            m.d.sync += count.eq(count + 1)
            with m.If(last):
                m.d.sync += [
                    count.eq(0),
                    left.eq(left - 1),
                    shift.eq(Cat(shift[1:], Const(1, 1))),
                ]
        with m.If(self.byte.valid & self.byte.ready):
            m.d.sync += [
                count.eq(0),
                left.eq(FRAME_BITS),
                shift.eq(Cat(Const(0, 1), self.byte.payload, Const(1, 1))),
            ]
        return m
