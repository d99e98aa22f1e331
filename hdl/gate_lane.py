# SPDX-License-Identifier: Apache-2.0
"""One lane of the functions SIGMOID and TANH: a multiplier that works off a microprogram."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

FACTORS = 7
"""Conditions 0 to 6: the factors exp(-2^-2), exp(-2^-1), ... exp(-2^4) that the argument needs."""
ZERO, NEGATIVE, ALWAYS = 7, 8, 9
"""Conditions of the argument itself, and none."""


class First(enum.Enum, shape=2):
    """What the first operand of the multiplier becomes."""

    HOLD = 0
    VALUE = 1
    ARGUMENT = 2
    SPARE = 3


class Second(enum.Enum, shape=2):
    """What the second operand of the multiplier becomes."""

    HOLD = 0
    VALUE = 1
    ARGUMENT = 2
    CONSTANT = 3


class GateControl(data.StructLayout):
    """What all lanes do in one cycle; all bits zero: nothing.

    value = base + p, where base is register `saved` with `from_saved`, else `constant`, and p the
    product of the operands as they were one cycle ago, rounded to 15 fewer bits, negated with
    `negate`, times 4 with `quadruple`. A value of 32768 becomes 32767.

    At the end of the cycle the operands become what `first` and `second` say, `saved` the value
    with `save`, `spare` the value with `keep`; `first` and `save` only where `condition` holds.
    `shift` doubles the argument, `load` takes a new one.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "load": 1,
                "shift": 1,
                "first": First,
                "second": Second,
                "save": 1,
                "keep": 1,
                "condition": 4,
                "from_saved": 1,
                "negate": 1,
                "quadruple": 1,
                "constant": signed(16),
            }
        )


class GateLane(wiring.Component):
    """SIGMOID or TANH of `argument`, step by step as `control` of a GateSequencer says.

    `argument` is taken in the cycle of the sequencer's `start`; `result` holds the function of it
    from GateSequencer.LATENCY cycles later until two cycles after the next start, at least.
    """

    control: In(GateControl())
    argument: In(signed(16))
    result: Out(signed(16))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control

        # The argument made negative, a: that is what the exponential takes. Once shifted by its
        # integer bits, bits 12:0 are a modulo 1/4 with 15 fractional bits; bits 19:13, inverted,
        # are the whole quarters between that and a. Bit 20 is the sign: 0 for a = 0 only.
        argument = Signal(signed(21), reset_less=True)
        negative = Signal(reset_less=True)
        with m.If(control.load):
            m.d.sync += [
                argument.eq(Mux(self.argument < 0, self.argument, -self.argument)),
                negative.eq(self.argument < 0),
            ]
        with m.Elif(control.shift):
            m.d.sync += argument.eq(argument << 1)
        # a modulo 1/4, less 1/8: from -1/8 to 1/8, with 15 fractional bits.
        centred = Signal(signed(13))
        m.d.comb += centred.eq(argument[:13] ^ 1 << 12)
        conditions = Cat(~argument[13 : 13 + FACTORS], ~argument[20], negative, 1)
        holds = Signal()
        m.d.comb += holds.eq(conditions.bit_select(control.condition, 1))

        first = Signal(signed(16), reset_less=True)
        second = Signal(signed(16), reset_less=True)
        product = Signal(signed(32), reset_less=True)
        m.d.sync += product.eq(first * second)

        # One adder rounds, negates and adds: -p is ~p and a carry.
        value = Signal(signed(16))
        saved = Signal(signed(16), reset_less=True)
        spare = Signal(signed(16), reset_less=True)
        half = product[14]
        rounded = Mux(control.quadruple, Cat(half, half, product[15:30]), product[15:])
        base = Signal(signed(17))
        addend = Signal(17)
        carry = Signal()
        total = Signal(18)
        m.d.comb += [
            base.eq(Mux(control.from_saved, saved, control.constant)),
            addend.eq(rounded ^ control.negate.replicate(17)),
            carry.eq(half ^ control.negate),
            total.eq(Cat(1, base) + Cat(carry, addend)),
            value.eq(Mux(total[16] & ~total[17], 0x7FFF, total[1:17])),
        ]

        with m.If(holds):
            with m.Switch(control.first):
                with m.Case(First.VALUE):
                    m.d.sync += first.eq(value)
                with m.Case(First.ARGUMENT):
                    m.d.sync += first.eq(centred)
                with m.Case(First.SPARE):
                    m.d.sync += first.eq(spare)
            with m.If(control.save):
                m.d.sync += saved.eq(value)
        with m.Switch(control.second):
            with m.Case(Second.VALUE):
                m.d.sync += second.eq(value)
            with m.Case(Second.ARGUMENT):
                m.d.sync += second.eq(centred)
            with m.Case(Second.CONSTANT):
                m.d.sync += second.eq(control.constant)
        with m.If(control.keep):
            m.d.sync += spare.eq(value)
        m.d.comb += self.result.eq(saved)
        return m
