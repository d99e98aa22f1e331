# SPDX-License-Identifier: Apache-2.0
"""The front of one lane: from the bytes of buffer lines to the sum that is requantised."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.parts.multiplier import Multiplier

BYTE_SHIFT, WIDE_SHIFT = 11, 16
"""Bits by which scaled products of int8 and of int16 are shifted in any case."""


class Coefficient(enum.Enum, shape=2):
    """What an element is multiplied by."""

    MULTIPLIER = 0
    TAP = 1
    FIRST = 2


class ElementControl(data.StructLayout):
    """Stage 0, with the byte: it is the `low` half of an int16, or completes an element.

    The element is the number less `zero`, but `zero` alone, negated, with `outside`. `coefficient`:
    its factor, where MULTIPLIER means `multiplier`. `keep`: it is the FIRST of those that follow.
    `addend`: it is what the result is added to.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "low": 1,
                "wide": 1,
                "outside": 1,
                "zero": signed(9),
                "addend": 1,
                "coefficient": Coefficient,
                "multiplier": 31,
                "keep": 1,
            }
        )


class ScalingControl(data.StructLayout):
    """Stages 3 to 5: `scaled` products are shifted right by 11 or, with `wide`, by 16, and then by
    `shift`, rounded each time."""

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "wide": 1, "shift": 5})


class SumControl(data.StructLayout):
    """Stage 6: the sum takes the number in (`update`), begins (`first`), leaves it out (`skip`).

    It is the largest number, from -128 on, with `maximum`: of int8 that are not `scaled`.
    """

    def __init__(self) -> None:
        super().__init__({"update": 1, "first": 1, "skip": 1, "maximum": 1, "subtract": 1})


def lane_bits(config: Config) -> int:
    """Bits of the numbers that the lanes take and give."""
    return 16 if config.wide else 8


def line_inputs(config: Config) -> dict[str, wiring.Member]:
    """The members of VectorLane that come with a buffer line."""
    members = {
        "byte": In(signed(8)),
        "element": In(ElementControl()),
        "product_scaling": In(ScalingControl()),
        "scaling": In(ScalingControl()),
        "shift": In(3),
        "longer": In(7),
        "summing": In(SumControl()),
    }
    if config.depthwise:
        members["tap"] = In(signed(8))
    return members


class VectorLane(wiring.Component):
    """Multiplies elements and adds them up, one byte a cycle: the formulas of Depthwise, Pool and
    Vector in arch/isa.py. No back-pressure.

    `sum` holds an element LATENCY cycles after its last `byte`. `element` and `tap` come with the
    byte, ScalingControl PRODUCT_STAGE cycles later as `product_scaling` and a cycle after that as
    `scaling`, the upper bits of its `shift` another cycle later with `longer`, whose bit n tells
    that they are more than n, SumControl after SUM_STAGE cycles.
    `addend` holds the element marked as such from the next cycle on.
    """

    PRODUCT_STAGE = 3
    SUM_STAGE = 6
    LATENCY = 7

    def __init__(self, *, config: Config):
        self._config = config
        members = {**line_inputs(config), "sum": Out(signed(32))}
        if config.wide:
            members["addend"] = Out(signed(16))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self._element(m)
        total = self._product(m, value)
        number, carry = self._scaled(m, total)
        self._sum(m, number, carry)
        return m

    def _element(self, m: Module) -> Signal:
        """Stage 0: the element."""
        element = self.element
        number = Signal(signed(lane_bits(self._config)))
        value = Signal(signed(len(number) + 1))
        m.d.comb += number.eq(self.byte)
        if self._config.wide:
            low = Signal(8, reset_less=True)
            with m.If(element.low):
                m.d.sync += low.eq(self.byte)
            with m.Elif(element.addend):
                m.d.sync += self.addend.eq(Cat(low, self.byte))
            with m.If(element.wide):
                m.d.comb += number.eq(Cat(low, self.byte))
        m.d.comb += value.eq(Mux(element.outside, 0, number) - element.zero)
        return value

    def _product(self, m: Module, value: Signal) -> Signal:
        """Stages 0 to 3: the product of element and coefficient, plus half a unit of what is left
        of it."""
        element = self.element
        kept = Signal.like(value, reset_less=True)
        coefficient = Signal(signed(32))
        with m.If(element.keep):
            m.d.sync += kept.eq(value)
        with m.Switch(element.coefficient):
            with m.Case(Coefficient.MULTIPLIER):
                m.d.comb += coefficient.eq(element.multiplier)
            with m.Case(Coefficient.FIRST):
                m.d.comb += coefficient.eq(kept)
            if self._config.depthwise:
                with m.Case(Coefficient.TAP):
                    m.d.comb += coefficient.eq(self.tap)

        # The blocks' own registers are far from the sum and the choice: these come before them.
        value_held = Signal.like(value, reset_less=True)
        coefficient_held = Signal.like(coefficient, reset_less=True)
        m.d.sync += [value_held.eq(value), coefficient_held.eq(coefficient)]
        products = []
        halves = {"low": coefficient_held[:16], "high": coefficient_held[16:].as_signed()}
        for name, half in halves.items():
            part = Multiplier(a=value_held.shape(), b=half.shape(), pipeline=False)
            m.submodules[name] = part
            m.d.comb += [part.a.eq(value_held), part.b.eq(half), part.enable.eq(1)]
            products.append(part.product)
        low, high = products

        # The upper product leaves room for the half.
        scaling = self.product_scaling
        half = Signal(16)
        with m.If(scaling.scaled):
            m.d.comb += half.eq(Mux(scaling.wide, 1 << (WIDE_SHIFT - 1), 1 << (BYTE_SHIFT - 1)))
        total = Signal(signed(len(high) + 16), reset_less=True)
        m.d.sync += total.eq(low + Cat(half, high).as_signed())
        return total

    def _scaled(self, m: Module, total: Signal) -> tuple[Signal, Signal]:
        """Stages 4 and 5: the number for the sum, and what rounding adds to it."""
        scaling = self.scaling
        number = Signal(signed(32))
        m.d.comb += number.eq(total)
        with m.If(scaling.scaled):
            m.d.comb += number.eq(total >> BYTE_SHIFT)
            if self._config.wide:
                with m.If(scaling.wide):
                    m.d.comb += number.eq(total >> WIDE_SHIFT)

        # Half away from zero: one more where, of the bits cut off, the first one is set and, below
        # zero, another one. The bit below the number is the first one of none.
        doubled = Cat(0, number).as_signed()
        fine = scaling.shift[:2]
        shifted = Signal(signed(33), reset_less=True)
        other = Signal(reset_less=True)
        m.d.sync += [
            shifted.eq(doubled >> fine),
            other.eq(Cat(number[n] & (fine > n + 1) for n in range(2)).any()),
        ]
        coarse = self.shift
        cut = Cat(shifted[4 * n : 4 * n + 4].any() & self.longer[n] for n in range(7)).any()
        final = Signal(signed(33))
        rounded = Signal(signed(32), reset_less=True)
        carry = Signal(reset_less=True)
        m.d.comb += final.eq(shifted >> (coarse << 2))
        m.d.sync += [
            rounded.eq(final[1:]),
            carry.eq(final[0] & (~shifted[32] | other | cut)),
        ]
        return rounded, carry

    def _sum(self, m: Module, number: Signal, carry: Signal) -> None:
        """Stage 6."""
        summing = self.summing
        # One of the two is 0, so that no choice lies behind the adder.
        total = Signal(signed(32), reset_less=True)
        largest = Signal(signed(8), reset_less=True)
        m.d.comb += self.sum.eq(total | largest)
        begun = Signal(signed(32))
        term = Signal(33)
        added = Signal(33)
        distance = Signal(signed(9))
        m.d.comb += [
            begun.eq(Mux(summing.first, 0, total)),
            term.eq(Mux(summing.skip, 0, Cat(carry, number) ^ summing.subtract.replicate(33))),
            added.eq(Cat(1, begun) + term),
            distance.eq(largest - number[:8].as_signed()),
        ]
        with m.If(summing.update):
            m.d.sync += total.eq(added[1:])
            with m.If(summing.maximum):
                m.d.sync += total.eq(0)
                with m.If(summing.first):
                    m.d.sync += largest.eq(Mux(summing.skip, -128, number[:8].as_signed()))
                with m.Elif(~summing.skip & (distance < 0)):
                    m.d.sync += largest.eq(number[:8])
            with m.Else():
                m.d.sync += largest.eq(0)
