# SPDX-License-Identifier: Apache-2.0
"""One lane of the functions SIGMOID and TANH: it works off a microprogram with one multiplier."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.parts.turns import registers_in_turn

FACTORS = 7
"""Conditions 0 to 6: the factors exp(-2^-2), exp(-2^-1), ... exp(-2^4) that the argument needs."""
ZERO, NEGATIVE, ALWAYS = 7, 8, 9
"""Conditions of the argument itself, and none."""
PRODUCT_LATENCY = 2
"""Cycles from the operands of the multiplier to the product."""


class First(enum.Enum, shape=1):
    """What the first operand of the multiplier is."""

    VALUE = 0
    ARGUMENT = 1


class Second(enum.Enum, shape=2):
    """What the second operand of the multiplier is, and what the adder adds to."""

    CONSTANT = 0
    ARGUMENT = 1
    SAVED = 2
    SPARE = 3


class ProductTerm(enum.Enum, shape=2):
    """What the adder adds of the product: it rounded to 15 fewer bits, that times 4, or negated."""

    NONE = 0
    ROUNDED = 1
    QUADRUPLE = 2
    NEGATED = 3


class ValueTerm(enum.Enum, shape=2):
    """What the adder adds of the value: half of it, or twice it, or it negated."""

    NONE = 0
    HALF = 1
    DOUBLE = 2
    NEGATED = 3


class GateControl(data.StructLayout):
    """What all lanes do in one cycle; all bits zero: nothing.

    With `multiply` the multiplier starts with operands `first` and `second`; the product is there
    PRODUCT_LATENCY cycles later. With `update` the value becomes `second` + `product` or `second` +
    `value`, where `condition` holds; half of the value is rounded half up with `upwards`, else
    down. `save` and `keep` put the value, as it is before that, into registers `saved` and `spare`.
    `shift` doubles the argument, `load` takes a new one.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "load": 1,
                "shift": 1,
                "multiply": 1,
                "first": First,
                "second": Second,
                "product": ProductTerm,
                "value": ValueTerm,
                "upwards": 1,
                "update": 1,
                "condition": 4,
                "save": 1,
                "keep": 1,
                "constant": signed(16),
            }
        )


class GateLane(wiring.Component):
    """SIGMOID or TANH of `argument`, step by step as `control` of a GateSequencer says.

    `argument` is taken in the cycle behind the sequencer's `start`; `result` holds the function of
    it from GateSequencer.LATENCY cycles later until a cycle after the next argument, at least.
    Where columns take turns, control stays for a cycle a turn, and cycles are those of control.
    The multiplier is not in here: it takes `first` and `second` when control says `multiply`, and
    `product` comes PRODUCT_LATENCY cycles later.
    """

    def __init__(self, *, turns: int = 1) -> None:
        self._turns = turns
        super().__init__(
            {
                "control": In(GateControl()),
                "argument": In(signed(16)),
                "result": Out(signed(16)),
                "first": Out(signed(16)),
                "second": Out(signed(16)),
                "product": In(signed(32)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control

        def registers(name: str, shape: Shape) -> list[Signal]:
            return registers_in_turn(m, shape, turns=self._turns, name=name)

        # The argument made negative, a: that is what the exponential takes. Once shifted by its
        # integer bits, bits 12:0 are a modulo 1/4 with 15 fractional bits; bits 19:13, inverted,
        # are the whole quarters between that and a. Bit 20 is the sign: 0 for a = 0 only.
        arguments = registers("argument", signed(21))
        argument = arguments[-1]
        negatives = registers("negative", unsigned(1))
        positive = ~self.argument[-1]
        m.submodules.start = start = SelectingAdder(width=21)
        m.d.comb += [
            start.choose_b.eq(control.load.replicate(21)),
            start.b.eq((self.argument.as_unsigned() ^ positive.replicate(16)).as_signed()),
            start.c.eq(argument << 1),
            start.carry.eq(control.load & positive),
        ]
        with m.If(control.load):
            m.d.sync += negatives[0].eq(~positive)
        with m.If(control.load | control.shift):
            m.d.sync += arguments[0].eq(start.total)
        # a modulo 1/4, less 1/8: from -1/8 to 1/8, with 15 fractional bits.
        centred = Signal(signed(13))
        m.d.comb += centred.eq(argument[:13] ^ 1 << 12)
        conditions = Cat(~argument[13 : 13 + FACTORS], ~argument[20], negatives[-1], 1)
        holds = Signal()
        m.d.comb += holds.eq(conditions.bit_select(control.condition, 1))

        # A value of 2^15 counts as 2^15 - 1, except in the adder, which never meets one.
        values = registers("value", signed(17))
        value = values[-1]
        number = Signal(signed(16))
        saved, spare = registers("saved", signed(16)), registers("spare", signed(16))
        m.d.comb += [
            number.eq(Mux(value[15] & ~value[16], 0x7FFF, value)),
            self.result.eq(number),
        ]
        with m.If(control.save):
            m.d.sync += saved[0].eq(number)
        with m.If(control.keep):
            m.d.sync += spare[0].eq(number)

        # Rounded by the adder. A step takes a cycle a turn, the multiplier takes as long as ever.
        product: Value = self.product[14:]
        for cycle in range(PRODUCT_LATENCY * (self._turns - 1)):
            waiting = Signal(len(product), name=f"product_{cycle}", reset_less=True)
            m.d.sync += waiting.eq(product)
            product = waiting
        m.d.comb += self.first.eq(Mux(control.first == First.ARGUMENT, centred, number))
        with m.Switch(control.second):
            with m.Case(Second.CONSTANT):
                m.d.comb += self.second.eq(control.constant)
            with m.Case(Second.ARGUMENT):
                m.d.comb += self.second.eq(centred)
            with m.Case(Second.SAVED):
                m.d.comb += self.second.eq(saved[-1])
            with m.Case(Second.SPARE):
                m.d.comb += self.second.eq(spare[-1])

        # One adder rounds, negates and adds: -x is ~x and a carry. One of the two terms is NONE; a
        # bit of either takes one look-up table.
        of_product = Signal(18)  # from the carry on
        with m.Switch(control.product):
            with m.Case(ProductTerm.ROUNDED):
                m.d.comb += of_product.eq(product)
            with m.Case(ProductTerm.QUADRUPLE):
                m.d.comb += of_product.eq(Cat(product[0].replicate(3), product[1:16]))
            with m.Case(ProductTerm.NEGATED):
                m.d.comb += of_product.eq(~product)
        of_value = Signal(18)
        with m.Switch(control.value):
            with m.Case(ValueTerm.HALF):
                m.d.comb += of_value.eq(Cat(value[0] & control.upwards, value[1:], value[-1]))
            with m.Case(ValueTerm.DOUBLE):
                m.d.comb += of_value.eq(Cat(0, 0, value))
            with m.Case(ValueTerm.NEGATED):
                m.d.comb += of_value.eq(~Cat(0, value))
        m.submodules.adder = adder = SelectingAdder(width=17)
        m.d.comb += [
            adder.a.eq(self.second),
            adder.choose_b.eq(of_product[1:]),
            adder.b.eq(-1),
            adder.c.eq(of_value[1:]),
            adder.carry.eq(of_product[0] | of_value[0]),
        ]
        with m.If(control.update & holds):
            m.d.sync += values[0].eq(adder.total)
        return m
