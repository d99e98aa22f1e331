# SPDX-License-Identifier: Apache-2.0
"""The front of one lane: from the bytes of buffer lines to the sum that is requantised."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import QUOTIENT_BITS
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.multiplier import Multiplier
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.parts.turns import registers_in_turn

HALF_BITS = 9
"""Bits of an int8 less its zero point."""
HALF_SHIFT = 19
"""What an int8 is shifted left by where it is scaled by one half, the commonest scale."""


class Coefficient(enum.Enum, shape=2):
    """What an element is multiplied by."""

    ZERO = 0
    ONE = 1
    TAP = 2
    FIRST = 3
    """The first element, or, with `keep`, the power of two that divides by it."""


class ElementControl(data.StructLayout):
    """Stage 0, with the byte: it is the `low` half of an int16, or completes an element.

    The element is the number less `zero`. `coefficient`: its factor. `keep`: it is the FIRST of
    those that follow, or is divided by the FIRST if it has that for its factor. `addend`: it is
    what the result is added to.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "low": 1,
                "wide": 1,
                "zero": signed(9),
                "addend": 1,
                "coefficient": Coefficient,
                "keep": 1,
            }
        )


PLACE_BITS = 4
"""Bits of a place in the memory where halves and addends wait."""


class AddendPlaces(data.StructLayout):
    """Places in the memory of halves and addends: `write` goes on by one in each cycle.

    `read` is WAITING places before it, or one more for an addend that is a cycle older.
    """

    def __init__(self) -> None:
        super().__init__({"write": PLACE_BITS, "read": PLACE_BITS})


class SumControl(data.StructLayout):
    """SUM_STAGE: the sum takes a product in (`update`) or, at SCALED_STAGE, what the requantiser
    made of an element (`scaled`), or half of an int8 (`halved`); or that negated (`subtract`); it
    begins with it (`first`).

    It is the largest of the products with `maximum`, which are int8.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "update": 1,
                "first": 1,
                "maximum": 1,
                "subtract": 1,
                "scaled": 1,
                "halved": 1,
            }
        )


def lane_bits(config: Config) -> int:
    """Bits of the numbers that the lanes take and give."""
    return 16 if config.wide else 8


def line_inputs(config: Config) -> dict[str, wiring.Member]:
    """The members of VectorLane that come with a buffer line."""
    members = {
        "byte": In(signed(8)),
        "element": In(ElementControl()),
        "summing": In(SumControl()),
    }
    if config.depthwise:
        members["tap"] = In(signed(8))
    if config.reads_pairs:
        members |= {"before": In(8), "pair": In(1)}
    return members


def power_below(divisor: Value) -> Value:
    """2^(QUOTIENT_BITS - n) for a divisor of n magnitude bits, 0 where there are more of them.

    The first bit of the magnitude is the lowest one from the other end: the only one that a number
    and its negative have in common. A one beyond the end stands for a magnitude of 0.
    """
    sign = divisor[QUOTIENT_BITS + 1]
    backwards = Cat(divisor[: QUOTIENT_BITS + 1][::-1] ^ sign.replicate(QUOTIENT_BITS + 1), 1)
    return (backwards & -backwards)[1 : QUOTIENT_BITS + 2]


class VectorLane(wiring.Component):
    """Multiplies elements and adds them up, one byte a cycle: the formulas of Depthwise, Pool and
    Vector in arch/isa/. No back-pressure. Of several columns that share it each has every
    `columns_per_lane`-th cycle, in which it alone sees what is said below.

    `element` and `tap` come with the byte that completes an element, SumControl SUM_STAGE cycles
    later, and `sum` holds it LATENCY cycles after the byte. `value`, a register, is the element in
    the next cycle: the requantiser scales it, and with `scaled` its `number` and `carry` are added
    SCALED_STAGE cycles after the byte, as halves are; products have to be 0 meanwhile.
    `gathered` is added SUM_STAGE cycles after the byte, as products are; both have to be 0
    otherwise.
    `addend` holds the number marked as such, from ADDEND_LATENCY cycles after its second byte on.
    With `pair` the low byte of an int16 is `before`, a cycle before its `byte`, as they leave the
    buffer together. Vectors come closer together then. So the lanes have one AddendPlaces,
    `waits_at`, in common, with which an addend can wait a cycle longer.
    """

    SUM_STAGE = 3
    LATENCY = SUM_STAGE + 1
    VALUE_STAGE = 1
    SCALED_STAGE = VALUE_STAGE + Requantiser.NUMBER_LATENCY
    SCALED_LATENCY = SCALED_STAGE + 1
    WAITING = SCALED_STAGE - VALUE_STAGE
    """Cycles that halves and addends wait, so that the next ones may come."""
    ADDEND_LATENCY = 1 + WAITING

    def __init__(self, *, config: Config):
        self._config = config
        self._turns = config.columns_per_lane
        members = {
            **line_inputs(config),
            "value": Out(signed(lane_bits(config) + 1)),
            "number": In(signed(32)),
            "carry": In(1),
            "sum": Out(signed(32)),
        }
        if config.wide:
            members["addend"] = Out(signed(16))
        if config.reads_pairs:
            members["waits_at"] = In(AddendPlaces())
        if config.attention:
            members["gathered"] = In(32)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Halves and addends.
        width = HALF_BITS + 16 * self._config.wide
        if self._config.reads_pairs:
            self._waiting_in, self._waiting_out = self._ring(m, width)
        else:
            m.submodules.waiting = waiting = DelayRing(width=width, cycles=self.WAITING)
            self._waiting_in, self._waiting_out = waiting.input, waiting.output
        value = self._element(m)
        product = self._product(m, value)
        self._sum(m, product)
        return m

    def _ring(self, m: Module, width: int) -> tuple[Signal, Signal]:
        """Return input and output of a delay line whose places come from `waits_at`."""
        coming, leaving = Signal(width), Signal(width)
        memory = m.submodules.waiting = Memory(shape=width, depth=1 << PLACE_BITS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.waits_at.write),
            write.data.eq(coming),
            read.addr.eq(self.waits_at.read),
            leaving.eq(read.data),
        ]
        return coming, leaving

    def _element(self, m: Module) -> Signal:
        """Stage 0: the element."""
        element = self.element
        value = Signal.like(self.value)
        m.submodules.difference = difference = SelectingAdder(width=len(value), subtracted=True)
        m.d.comb += [
            difference.a.eq(element.zero),
            difference.choose_b.eq(element.wide.replicate(len(value))),
            difference.c.eq(self.byte),
            difference.carry.eq(1),
            value.eq(difference.total),
        ]
        if self._config.wide:
            low = registers_in_turn(m, unsigned(8), turns=self._turns, name="low")
            addend = registers_in_turn(m, signed(16), turns=self._turns, name="addend")
            number = Cat(low[-1], self.byte)
            m.d.comb += [
                self._waiting_in[HALF_BITS:].eq(addend[-1]),
                self.addend.eq(self._waiting_out[HALF_BITS:]),
                difference.b.eq(number.as_signed()),
            ]
            with m.If(element.low):
                m.d.sync += low[0].eq(self.byte)
            with m.Elif(element.addend):
                m.d.sync += addend[0].eq(number)
            if self._config.reads_pairs:
                with m.If(self.pair):
                    m.d.sync += low[0].eq(self.before)
        return value

    def _product(self, m: Module, value: Signal) -> Signal:
        """Stages 0 to 2: the product of element and coefficient, in 32 bits."""
        element = self.element
        kept = registers_in_turn(m, value.shape(), turns=self._turns, name="kept")
        coefficient = Signal.like(value)
        with m.If(element.keep):
            m.d.sync += kept[0].eq(value)
        with m.Switch(element.coefficient):
            with m.Case(Coefficient.ONE):
                m.d.comb += coefficient.eq(1)
            with m.Case(Coefficient.FIRST):
                m.d.comb += coefficient.eq(kept[-1])
                if self._config.training:
                    with m.If(element.keep):
                        m.d.comb += coefficient.eq(power_below(kept[-1]))
            if self._config.depthwise:
                with m.Case(Coefficient.TAP):
                    m.d.comb += coefficient.eq(self.tap)

        held = Signal.like(value, reset_less=True)
        m.d.sync += held.eq(value)
        m.submodules.multiplier = block = Multiplier(a=value.shape(), b=value.shape())
        m.d.comb += [
            self.value.eq(held),
            block.a.eq(value),
            block.b.eq(coefficient),
            block.enable.eq(1),
        ]
        product = Signal(signed(32))
        m.d.comb += product.eq(block.product)
        return product

    def _sum(self, m: Module, product: Signal) -> None:
        """Stage SUM_STAGE."""
        summing = self.summing
        totals = registers_in_turn(m, signed(32), turns=self._turns, name="total")
        total = totals[-1]
        term = Signal(33)
        m.d.comb += self.sum.eq(totals[0])
        # Halves wait for what the requantiser makes of others.
        half = Signal(signed(33))
        m.d.comb += [
            self._waiting_in[:HALF_BITS].eq(self.value[:HALF_BITS]),
            half.eq(self._waiting_out[:HALF_BITS].as_signed() << (1 + HALF_SHIFT)),
        ]
        number = (
            Mux(summing.scaled, Cat(self.carry, self.number), 0)
            | Mux(summing.halved, half, 0)
            | Cat(0, product)
        )
        if self._config.attention:
            number |= Cat(0, self.gathered)
        distance = Signal(signed(9))
        m.submodules.adder = adder = SelectingAdder(width=32)
        m.d.comb += [
            term.eq(number ^ summing.subtract.replicate(33)),
            distance.eq(total[:8].as_signed() - product[:8].as_signed()),
            adder.a.eq(term[1:]),
            adder.choose_b.eq((~summing.first & ~summing.maximum).replicate(32)),
            adder.b.eq(total),
            adder.carry.eq(term[0]),
        ]
        with m.If(summing.update & (~summing.maximum | summing.first | (distance < 0))):
            m.d.sync += totals[0].eq(adder.total)
