# SPDX-License-Identifier: Apache-2.0
"""The first part of a lane: it adds up bytes of buffer lines to the sum that is requantised."""

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
"""Width in bits of the difference of an int8 and its zero point."""
HALF_SHIFT = 19
"""Bits by which an int8 is shifted left if its scale is one half.

This shift takes the place of the requantiser for the commonest scale."""


class Coefficient(enum.Enum, shape=2):
    """A choice of the factor by which an element is multiplied."""

    ZERO = 0
    ONE = 1
    TAP = 2
    FIRST = 3
    """The first element or, with `keep`, a power of two near its reciprocal (`power_below`)."""


class ElementControl(data.StructLayout):
    """A control for stage 0 of a VectorLane, with the byte.

    FIRST is the element that an earlier `keep` has stored in the lane.

    | field         | meaning |
    |---|---|
    | `low`         | the byte is the low half of an int16; any other byte completes a number |
    | `wide`        | the number is an int16: the byte and the low half before it |
    | `zero`        | zero point; the element is the number minus `zero` |
    | `relative`    | FIRST is subtracted in place of `zero`; then only the lowest 8 bits of the
                      element count; only with `attention` |
    | `addend`      | the number, without the subtraction, is an addend of a result |
    | `coefficient` | factor of the element |
    | `keep`        | the element becomes the FIRST for later elements; with `coefficient` FIRST,
                      the element is divided by the FIRST before it |
    """

    def __init__(self, *, config: Config) -> None:
        super().__init__(
            {
                "low": 1,
                "wide": 1,
                "zero": signed(9),
                "addend": 1,
                "coefficient": Coefficient,
                "keep": 1,
                **({"relative": 1} if config.attention else {}),
            }
        )


PLACE_BITS = 4
"""Width in bits of an address in the memory where halved elements and addends wait."""


class AddendPlaces(data.StructLayout):
    """A pair of places in the memory of halved elements and addends.

    `write` goes on by one in each cycle. `read` is WAITING places before `write`, or WAITING + 1
    places for an addend that came one cycle earlier than usual.
    """

    def __init__(self) -> None:
        super().__init__({"write": PLACE_BITS, "read": PLACE_BITS})


class SumControl(data.StructLayout):
    """A control for the sum of a VectorLane: at SUM_STAGE for products, else at SCALED_STAGE.

    | field      | meaning |
    |---|---|
    | `update`   | a term enters the sum: a product, if no other field names a term |
    | `scaled`   | the term is the number that the requantiser made of an element |
    | `halved`   | the term is half of an int8 |
    | `subtract` | the term is negated |
    | `first`    | the sum begins with this term |
    | `maximum`  | the sum becomes the larger of itself and the product, both int8 |
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
    """Return the width in bits of the numbers that the lanes take and give."""
    return 16 if config.wide else 8


def line_inputs(config: Config) -> dict[str, wiring.Member]:
    """Return the ports of VectorLane that belong to a buffer line."""
    members = {
        "byte": In(signed(8)),
        "element": In(ElementControl(config=config)),
        "summing": In(SumControl()),
    }
    if config.depthwise:
        members["tap"] = In(signed(8))
    if config.reads_pairs:
        members |= {"before": In(8), "pair": In(1)}
    return members


def power_below(divisor: Value) -> Value:
    """Return 2^(QUOTIENT_BITS - n) for a divisor with a magnitude of n bits, or 0 if n is larger.

    The bits of the divisor are reversed, so that the first bit of its magnitude becomes the lowest
    set bit. The lowest set bit is the only bit that is 1 in both a number and its negative. A 1
    beyond the highest bit stands for a magnitude of 0.
    """
    sign = divisor[QUOTIENT_BITS + 1]
    backwards = Cat(divisor[: QUOTIENT_BITS + 1][::-1] ^ sign.replicate(QUOTIENT_BITS + 1), 1)
    return (backwards & -backwards)[1 : QUOTIENT_BITS + 2]


class VectorLane(wiring.Component):
    """A pipeline that multiplies elements and adds them up, for Depthwise, Pool and Vector.

    The formulas are in arch/isa/. The column "cycle" counts from the byte that completes an
    element.

    | port       | cycle                   | meaning |
    |---|---|---|
    | `byte`     | 0                       | the byte of a buffer line |
    | `element`  | 0                       | its control |
    | `tap`      | 0                       | weight of the element, with depthwise lanes |
    | `before`   | -1                      | low byte of an int16, if the machine `reads_pairs` |
    | `pair`     | -1                      | `before` is valid |
    | `value`    | VALUE_STAGE             | the element, a register, for the requantiser |
    | `summing`  | SUM_STAGE, SCALED_STAGE | control of the sum |
    | `number`   | SCALED_STAGE            | the scaled element, before `carry` is added |
    | `carry`    | SCALED_STAGE            | `number` + `carry` is the scaled element |
    | `gathered` | SUM_STAGE               | number from a table of int32, added as a product is,
                                              with attention |
    | `sum`      | LATENCY                 | the sum with a product |
    | `sum`      | SCALED_LATENCY          | the sum with a scaled or halved element |
    | `addend`   | ADDEND_LATENCY          | the addend, from this cycle on, with 16-bit modes |
    | `waits_at` |                         | places for halved elements and addends, if the machine
                                             `reads_pairs` |

    Throughput: one byte a cycle. No back-pressure. Products have to be 0 while scaled or halved
    elements are added. In each cycle the product or `gathered` has to be 0.

    The buffer gives both bytes of an int16 together, if the machine `reads_pairs`. So vectors
    follow each other more closely. All lanes have one AddendPlaces, `waits_at`, in common. It
    lets an addend wait a cycle longer.

    Several columns may share a lane. Each column has every `columns_per_lane`-th cycle, and sees
    only its own values.
    """

    SUM_STAGE = 3
    LATENCY = SUM_STAGE + 1
    VALUE_STAGE = 1
    SCALED_STAGE = VALUE_STAGE + Requantiser.NUMBER_LATENCY
    SCALED_LATENCY = SCALED_STAGE + 1
    WAITING = SCALED_STAGE - VALUE_STAGE
    """Cycles for which halved elements and addends wait in memory.

    Meanwhile later ones may already arrive.
    """
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
        # Elements that will be halved, and addends, wait in one memory.
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
        """Return input and output of the memory where halved elements and addends wait.

        `waits_at` has the places that are written and read.
        """
        ring_input = Signal(width)
        ring_output = Signal(width)
        memory = m.submodules.waiting = Memory(shape=width, depth=1 << PLACE_BITS, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.waits_at.write),
            write.data.eq(ring_input),
            read.addr.eq(self.waits_at.read),
            ring_output.eq(read.data),
        ]
        return ring_input, ring_output

    def _element(self, m: Module) -> Signal:
        """Return the element in stage 0: the number in the buffer less its zero point."""
        element = self.element
        element_value = Signal.like(self.value)
        m.submodules.difference = difference = SelectingAdder(
            width=len(element_value), subtracted=True
        )
        self._subtracted = difference.a
        m.d.comb += [
            difference.a.eq(element.zero),
            difference.choose_b.eq(element.wide.replicate(len(element_value))),
            difference.c.eq(self.byte),
            difference.carry.eq(1),
            element_value.eq(difference.total),
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
        return element_value

    def _product(self, m: Module, value: Signal) -> Signal:
        """Return the product of element and coefficient, in 32 bits: stages 0 to 2."""
        element = self.element
        kept = registers_in_turn(m, value.shape(), turns=self._turns, name="kept")
        coefficient = Signal.like(value)
        with m.If(element.keep):
            m.d.sync += kept[0].eq(value)
        if self._config.attention:
            with m.If(element.relative):
                m.d.comb += self._subtracted.eq(kept[-1][:8])
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

        held_value = Signal.like(value, reset_less=True)
        m.d.sync += held_value.eq(value)
        m.submodules.multiplier = block = Multiplier(a=value.shape(), b=value.shape())
        m.d.comb += [
            self.value.eq(held_value),
            block.a.eq(value),
            block.b.eq(coefficient),
            block.enable.eq(1),
        ]
        lane_product = Signal(signed(32))
        m.d.comb += lane_product.eq(block.product)
        return lane_product

    def _sum(self, m: Module, product: Signal) -> None:
        """Add a product (at SUM_STAGE), or a scaled or halved element, to the sum."""
        summing = self.summing
        totals = registers_in_turn(m, signed(32), turns=self._turns, name="total")
        total = totals[-1]
        sum_term = Signal(33)
        m.d.comb += self.sum.eq(totals[0])
        # An element that is halved is delayed by the time that the requantiser takes for a scaled
        # element.
        halved_element = Signal(signed(33))
        m.d.comb += [
            self._waiting_in[:HALF_BITS].eq(self.value[:HALF_BITS]),
            halved_element.eq(self._waiting_out[:HALF_BITS].as_signed() << (1 + HALF_SHIFT)),
        ]
        number = (
            Mux(summing.scaled, Cat(self.carry, self.number), 0)
            | Mux(summing.halved, halved_element, 0)
            | Cat(0, product)
        )
        if self._config.attention:
            number |= Cat(0, self.gathered)
        maximum_distance = Signal(signed(9))
        m.submodules.adder = adder = SelectingAdder(width=32)
        m.d.comb += [
            sum_term.eq(number ^ summing.subtract.replicate(33)),
            maximum_distance.eq(total[:8].as_signed() - product[:8].as_signed()),
            adder.a.eq(sum_term[1:]),
            adder.choose_b.eq((~summing.first & ~summing.maximum).replicate(32)),
            adder.b.eq(total),
            adder.carry.eq(sum_term[0]),
        ]
        with m.If(summing.update & (~summing.maximum | summing.first | (maximum_distance < 0))):
            m.d.sync += totals[0].eq(adder.total)
