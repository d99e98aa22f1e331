# SPDX-License-Identifier: Apache-2.0
"""One lane of the activation unit: from a 32-bit sum to an int8 code."""

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Rounding


class Requantiser(wiring.Component):
    """Bias, multiplier, shifts, offset and clamp: the formula of Activate in arch/isa.py
    (source: LiteRT's MultiplyByQuantizedMultiplier, double and single rounding).

    Latency LATENCY cycles, one value a cycle, no back-pressure. `rounding`, `offset`, `low` and
    `high` (of `bits` bits, as the result) come as many cycles after the value as ROUNDING_STAGE and
    CLAMP_STAGE say. Every input is legal; nothing overflows.
    """

    LATENCY = 7
    ROUNDING_STAGE = 4
    """`rounding` belongs to the value that entered this many cycles ago."""
    CLAMP_STAGE = 6
    """`offset`, `low` and `high` belong to the value that entered this many cycles ago."""

    def __init__(self, *, bits: int):
        number = signed(bits)
        super().__init__(
            {
                "accumulator": In(signed(32)),
                "bias": In(signed(32)),
                "multiplier": In(unsigned(31)),
                "shift_right": In(5),
                "shift_left": In(3),
                "rounding": In(1),
                "offset": In(number),
                "low": In(number),
                "high": In(number),
                "result": Out(number),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def pipe(value: object, shape: object, cycles: int = 1) -> Signal:
            for _ in range(cycles):
                register = Signal(shape, reset_less=True)
                m.d.sync += register.eq(value)
                value = register
            return value

        multiplier = pipe(self.multiplier, 31, 2)
        biased = pipe(self.accumulator + self.bias, signed(32))
        shift_left = pipe(self.shift_left, 3)

        shifted = Signal(signed(39))
        m.d.comb += shifted.eq(biased << shift_left)
        fits = (shifted[31:] == 0) | shifted[31:].all()
        limit = Mux(shifted[38], -(1 << 31), (1 << 31) - 1)
        scaled = pipe(Mux(fits, shifted[:32].as_signed(), limit), signed(32))

        # Two partial products, then their sum: what DSP blocks of 18 bits can keep up with.
        product_low = pipe(scaled * multiplier[:16], signed(48))
        product_high = pipe(scaled * multiplier[16:], signed(47))
        product = pipe(product_low + (product_high << 16), signed(63))

        shift_right = pipe(self.shift_right, 5, self.ROUNDING_STAGE)
        single = self.rounding == Rounding.SINGLE
        half = Signal(62)
        m.d.comb += half.eq(Mux(single, 1 << (30 + shift_right), 1 << 30))
        high_word = pipe((product + half) >> 31, signed(33))

        shift_last = pipe(shift_right, 5)
        # Double rounding rounds a second time, half away from zero, where there is a shift.
        second = pipe((~single) & (shift_right != 0), 1)
        nudge = Signal(signed(33))
        m.d.comb += nudge.eq(Mux(second, ((1 << shift_last) >> 1) - (high_word < 0), 0))
        rounded = pipe((high_word + nudge) >> shift_last, signed(34))

        moved = Signal(signed(35))
        m.d.comb += moved.eq(rounded + self.offset)
        raised = Mux(moved < self.low, self.low, moved)
        m.d.sync += self.result.eq(Mux(raised > self.high, self.high, raised))
        return m
