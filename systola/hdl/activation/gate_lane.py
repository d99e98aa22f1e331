# SPDX-License-Identifier: Apache-2.0
"""The lane that computes SIGMOID and TANH by a microprogram, with one multiplier."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.parts.turns import registers_in_turn

HIGHEST = (1 << 15) - 1
"""The largest int16."""
FACTORS = 7
"""Number of factors exp(-2^-2), exp(-2^-1), ... exp(-2^4), from which an exponential is made.

A condition decides if a sum updates the value. Condition n, from 0 to 6, holds if the exponential
of the argument needs factor n.
"""
ZERO, POSITIVE, ALWAYS = 7, 8, 9
"""Numbers of three conditions: the argument is 0, the argument is not negative, always true."""
PRODUCT_LATENCY = 2
"""Cycles from the operands of the multiplier to the product."""


def slots(turns: int) -> int:
    """Return the number of steps, of `turns` cycles each, from a product of a vector to the next.

    The next product has a sum with the first product as a factor. In the steps between, the
    multiplier is free for other vectors. So this number of vectors can share a lane.
    """
    return -(-(PRODUCT_LATENCY + 1) // turns)


def sum_steps(turns: int) -> int:
    """Return the number of steps, of `turns` cycles each, from a product's operands to its sum."""
    return PRODUCT_LATENCY // turns


class First(enum.Enum, shape=1):
    """A choice of the first operand of the multiplier."""

    VALUE = 0
    ARGUMENT = 1


class Second(enum.Enum, shape=2):
    """A choice of the second operand of the multiplier."""

    CONSTANT = 0
    ARGUMENT = 1
    SAVED = 2
    SPARE = 3


class Addend(enum.Enum, shape=2):
    """A choice of the first operand of the adder."""

    OFFSET = 0
    ARGUMENT = 1
    SAVED = 2
    VALUE = 3


class ProductTerm(enum.Enum, shape=2):
    """A choice of the second operand of the adder, which is made from the product.

    ROUNDED is the product divided by 2^15 and rounded. QUADRUPLE is four times this number, and
    NEGATED is this number with the opposite sign.
    """

    NONE = 0
    ROUNDED = 1
    QUADRUPLE = 2
    NEGATED = 3


class FactorControl(data.StructLayout):
    """A control that chooses the operands of the multiplier, valid if `multiply` is set."""

    def __init__(self) -> None:
        super().__init__({"multiply": 1, "first": First, "second": Second, "constant": signed(16)})


class TermControl(data.StructLayout):
    """A control that chooses the operands of the adder.

    | field       | meaning |
    |---|---|
    | `update`    | the value becomes the sum if `condition` holds; else the value stays as it is |
    | `condition` | number of the condition |
    | `addend`    | first operand |
    | `product`   | second operand |
    | `doubles`   | the value itself is the second operand |
    """

    def __init__(self) -> None:
        super().__init__(
            {"update": 1, "condition": 4, "addend": Addend, "product": ProductTerm, "doubles": 1}
        )


class SumControl(data.StructLayout):
    """A control that is used in the cycle of a sum.

    | field    | meaning |
    |---|---|
    | `offset` | the addend if Addend.OFFSET is chosen |
    | `save`   | the sum also goes into the register `saved` |
    | `keep`   | the sum also goes into the register `spare` |
    """

    def __init__(self) -> None:
        super().__init__({"offset": signed(16), "save": 1, "keep": 1})


class GateControl(data.StructLayout):
    """A control of all lanes for one step; a lane keeps its state if all bits are zero.

    | field     | meaning |
    |---|---|
    | `load`    | take a new argument |
    | `shift`   | double the argument |
    | `take`    | derive the conditions of the vector that adds in this step from the argument |
    | `factors` | operands of the multiplier, for the vector that multiplies in this step |
    | `terms`   | operands of the adder, one step before the sum |
    | `sum`     | control of the sum, `sum_steps` after the `factors` of the same row |
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "load": 1,
                "shift": 1,
                "take": 1,
                "factors": FactorControl(),
                "terms": TermControl(),
                "sum": SumControl(),
            }
        )


class GateLane(wiring.Component):
    """A lane that computes SIGMOID or TANH of an argument, controlled by a GateSequencer.

    | port       | meaning |
    |---|---|
    | `control`  | control of the present step |
    | `argument` | the argument, in the cycle after the sequencer's `start` |
    | `result`   | value of the function, for one step, GateSequencer.latency() steps after
                   `argument` |
    | `first`    | a factor, if `control.factors.multiply` is set |
    | `second`   | the other factor |
    | `product`  | the product, PRODUCT_LATENCY cycles after its factors |

    The multiplier lies outside of this unit. Up to `slots` vectors are in the lane at a time, each
    in a step of its own. A vector multiplies in one step, adds in a later step, and multiplies its
    sum when its turn comes again. So the registers of the vectors move round in a ring. If
    several columns share the lane, a step has one cycle for each of them. All vectors share the
    register `spare`, and the conditions of the factors.
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
        control, turns = self.control, self._turns
        # A sum enters its ring at place 0. The vector that adds is at the last place of the ring,
        # the vector that multiplies at place `multiplies`.
        period = slots(turns) * turns
        multiplies = period - 1 - PRODUCT_LATENCY

        def registers(name: str, shape: Shape, *, places: int = turns) -> list[Signal]:
            return registers_in_turn(m, shape, turns=places, name=name)

        # The exponential has the argument a, the negated absolute value of the lane's argument.
        # `argument` is a, shifted by the integer bits. Bits 12:0 are a modulo 1/4 with 15
        # fractional bits. Bits 19:13, inverted, are the number of whole quarters from a up to
        # (a modulo 1/4) - 1/4. Bit 20 is the sign, which is 0 only for a = 0.
        arguments = registers("argument", signed(21))
        argument = arguments[-1]
        positives = registers("positive", unsigned(1))
        positive = ~self.argument[-1]
        m.submodules.start = start = SelectingAdder(width=21)
        m.d.comb += [
            start.choose_b.eq(control.load.replicate(21)),
            start.b.eq((self.argument.as_unsigned() ^ positive.replicate(16)).as_signed()),
            start.c.eq(argument << 1),
            start.carry.eq(control.load & positive),
        ]
        with m.If(control.load):
            m.d.sync += positives[0].eq(positive)
        with m.If(control.load | control.shift):
            m.d.sync += arguments[0].eq(start.total)
        # (a modulo 1/4) - 1/8, a number from -1/8 to 1/8, with 15 fractional bits.
        centred = Signal(signed(13))
        m.d.comb += centred.eq(argument[:13] ^ 1 << 12)

        # The operands of the next sum. With `update` low the adder adds 0 to the value of the
        # vector, so the value does not change.
        factors = registers("factors", unsigned(FACTORS))
        ends = registers("ends", unsigned(ALWAYS - FACTORS), places=period)
        with m.If(control.take):
            m.d.sync += [
                factors[0].eq(~argument[13 : 13 + FACTORS]),
                ends[0].eq(Cat(~argument[20], positives[-1])),
            ]
        conditions = Cat(factors[-1], ends[-1 - turns], 1)
        terms = control.terms
        holds = terms.update & conditions.bit_select(terms.condition, 1)
        addends = registers("addend", Shape.cast(Addend))
        products = registers("product_term", Shape.cast(ProductTerm))
        doubling = registers("doubles", unsigned(1))
        m.d.sync += [
            addends[0].eq(Mux(holds, terms.addend, Addend.VALUE)),
            products[0].eq(Mux(holds, terms.product, ProductTerm.NONE)),
            doubling[0].eq(holds & terms.doubles),
        ]

        # Factors have 16 bits, so a value of 2^15 enters a product as 2^15 - 1. No result is 2^15.
        values = registers("value", signed(17), places=period)
        saved = registers("saved", signed(16), places=period)
        spare = registers("spare", signed(16))
        value = values[multiplies]
        number = Signal(signed(16))
        m.d.comb += [
            number.eq(Mux(value[15] & ~value[16], HIGHEST, value)),
            self.result.eq(value),
            self.first.eq(Mux(control.factors.first == First.ARGUMENT, centred, number)),
        ]
        with m.Switch(control.factors.second):
            with m.Case(Second.CONSTANT):
                m.d.comb += self.second.eq(control.factors.constant)
            with m.Case(Second.ARGUMENT):
                m.d.comb += self.second.eq(centred)
            with m.Case(Second.SAVED):
                m.d.comb += self.second.eq(saved[multiplies])
            with m.Case(Second.SPARE):
                m.d.comb += self.second.eq(spare[multiplies % turns])

        # One adder rounds, negates and adds: -x is ~x and a carry.
        product = self.product[14:]
        addend = Signal(signed(17))
        of_product = Signal(18)  # second operand; bit 0 is the carry into the adder
        with m.Switch(addends[-1]):
            with m.Case(Addend.OFFSET):
                m.d.comb += addend.eq(control.sum.offset)
            with m.Case(Addend.ARGUMENT):
                m.d.comb += addend.eq(centred)
            with m.Case(Addend.SAVED):
                m.d.comb += addend.eq(saved[-1])
            with m.Case(Addend.VALUE):
                m.d.comb += addend.eq(values[-1])
        with m.Switch(products[-1]):
            with m.Case(ProductTerm.ROUNDED):
                m.d.comb += of_product.eq(product)
            with m.Case(ProductTerm.QUADRUPLE):
                m.d.comb += of_product.eq(Cat(product[0].replicate(3), product[1:16]))
            with m.Case(ProductTerm.NEGATED):
                m.d.comb += of_product.eq(~product)
        m.submodules.adder = adder = SelectingAdder(width=17)
        m.d.comb += [
            adder.a.eq(addend),
            adder.choose_b.eq(doubling[-1].replicate(17)),
            adder.b.eq(values[-1]),
            adder.c.eq(of_product[1:]),
            adder.carry.eq(of_product[0]),
        ]
        m.d.sync += values[0].eq(adder.total)
        with m.If(control.sum.save):
            m.d.sync += saved[0].eq(adder.total)
        with m.If(control.sum.keep):
            m.d.sync += spare[0].eq(adder.total)
        return m
