# SPDX-License-Identifier: Apache-2.0
"""The front of one lane: from the bytes of buffer lines to the sum that is requantised."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config


class Coefficient(enum.Enum, shape=2):
    """What an element is multiplied by."""

    ONE = 0
    TAP = 1
    SCALE = 2
    FIRST = 3


class ElementControl(data.StructLayout):
    """Stage 1, with the byte: it is the `low` half of an int16, or completes an element.

    `outside`: the element is `fill`. `addend`: it is what the result is added to. `zero`: what is
    subtracted.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "low": 1,
                "wide": 1,
                "outside": 1,
                "fill": signed(8),
                "addend": 1,
                "zero": signed(8),
            }
        )


class ProductControl(data.StructLayout):
    """Stage 2: the `coefficient` of the element. `keep`: it is the first factor of the next one."""

    def __init__(self) -> None:
        super().__init__({"coefficient": Coefficient, "multiplier": 31, "keep": 1})


class ScalingControl(data.StructLayout):
    """Stages 3 and 4: `scaled` products are shifted right by 11 or, with `wide`, by 16, and then by
    `shift`, rounded each time."""

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "wide": 1, "shift": 5})


class SumControl(data.StructLayout):
    """Stage 5: the sum takes the number in (`update`), begins (`first`), leaves it out (`skip`).

    It is the largest number, from -128 on, with `maximum`.
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
        "product": In(ProductControl()),
        "scaling": In(ScalingControl()),
        "shift": In(5),
        "summing": In(SumControl()),
    }
    if config.depthwise:
        members["tap"] = In(signed(8))
    return members


class VectorLane(wiring.Component):
    """Multiplies elements and adds them up, one byte a cycle: the formulas of Depthwise, Pool and
    Vector in arch/isa.py. No back-pressure.

    `sum` holds an element LATENCY cycles after its last `byte`. The controls of the stages come 0,
    PRODUCT_STAGE, SCALING_STAGE and SUM_STAGE cycles after the byte, `tap` with the second of them,
    `scaling` for one cycle more with `shift`. `addend` holds the element marked as such from
    the next cycle on.
    """

    PRODUCT_STAGE = 1
    SCALING_STAGE = 2
    SHIFT_STAGE = 3
    SUM_STAGE = 4
    LATENCY = 5

    def __init__(self, *, config: Config):
        self._config = config
        members = {**line_inputs(config), "sum": Out(signed(32))}
        if config.wide:
            members["addend"] = Out(signed(16))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        bits = lane_bits(config)

        # Stage 1: the element, less its zero point.
        number = Signal(signed(bits))
        value = Signal(signed(bits + 1), reset_less=True)
        m.d.comb += number.eq(self.byte)
        if config.wide:
            low = Signal(8, reset_less=True)
            with m.If(self.element.low):
                m.d.sync += low.eq(self.byte)
            with m.Elif(self.element.addend):
                m.d.sync += self.addend.eq(Cat(low, self.byte))
            with m.If(self.element.wide):
                m.d.comb += number.eq(Cat(low, self.byte))
        with m.If(self.element.outside):
            m.d.comb += number.eq(self.element.fill)
        m.d.sync += value.eq(number - self.element.zero)

        # Stage 2: the product.
        coefficient = Signal(signed(32))
        kept = Signal(signed(bits + 1), reset_less=True)
        product = Signal(signed(bits + 33), reset_less=True)
        with m.If(self.product.keep):
            m.d.sync += kept.eq(value)
        with m.Switch(self.product.coefficient):
            with m.Case(Coefficient.ONE):
                m.d.comb += coefficient.eq(1)
            with m.Case(Coefficient.SCALE):
                m.d.comb += coefficient.eq(self.product.multiplier)
            with m.Case(Coefficient.FIRST):
                m.d.comb += coefficient.eq(kept)
            if config.depthwise:
                with m.Case(Coefficient.TAP):
                    m.d.comb += coefficient.eq(self.tap)
        m.d.sync += product.eq(value * coefficient)

        # Stages 3 and 4: scales of Vector.
        def scaled(by: int) -> Value:
            return (product + (1 << (by - 1))) >> by

        number_scaled = scaled(11)
        if config.wide:
            number_scaled = Mux(self.scaling.wide, scaled(16), number_scaled)
        high = Signal(signed(32), reset_less=True)
        m.d.sync += high.eq(Mux(self.scaling.scaled, number_scaled, product)[:32])
        nudge = Signal(signed(32))
        m.d.comb += nudge.eq(Mux(self.shift == 0, 0, ((1 << self.shift) >> 1) - (high < 0)))
        rounded = Signal(signed(32), reset_less=True)
        m.d.sync += rounded.eq((high + nudge) >> self.shift)

        # Stage 5: the sum.
        summing = self.summing
        begun = Signal(signed(32))
        m.d.comb += begun.eq(Mux(summing.first, Mux(summing.maximum, -128, 0), self.sum))
        with m.If(summing.update):
            with m.If(summing.skip):
                m.d.sync += self.sum.eq(begun)
            with m.Elif(summing.maximum):
                m.d.sync += self.sum.eq(Mux(rounded > begun, rounded, begun))
            with m.Else():
                m.d.sync += self.sum.eq(begun + Mux(summing.subtract, -rounded, rounded))
        return m
