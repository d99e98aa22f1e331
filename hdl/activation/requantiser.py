# SPDX-License-Identifier: Apache-2.0
"""One lane of the activation unit: from a 32-bit sum to an int8 code, and an operand scaled."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Rounding
from systola.hdl.parts.multiplier import Multiplier

HALF_WORD = 16
"""Bits of the lower parts of the factors."""
KEPT_FROM = 30
"""The first bit of the product that is kept: half a unit of the high word."""
ELEMENT_SHIFT = 15
"""Bits by which an element is shifted left, in addition to `shift_left`."""
COARSE = 4
"""The shift right goes in steps of this many bits first, and then by what is left."""


class Requantiser(wiring.Component):
    """Bias, multiplier, shifts, offset and clamp: the formula of Activate in arch/isa.py
    (source: LiteRT's MultiplyByQuantizedMultiplier, double and single rounding).

    `result`, a register, is there LATENCY cycles after the value. One value a cycle, no
    back-pressure. With `scales` the value is `element` << ELEMENT_SHIFT, without `bias`; where
    `offset` is 0, `number` + `carry` is what comes of a value before the clamp, NUMBER_LATENCY
    cycles after it, in 32 bits (the f of Vector, as `rounding` is DOUBLE). The other inputs come as
    many cycles after the value as MULTIPLIER_STAGE (`multiplier`), ROUNDING_STAGE (`rounding`) and
    OFFSET_STAGE (`offset`, `low` and `high`, `low` <= `high`) say. Nothing overflows.

    With `lends` one of its multipliers may be borrowed: in a cycle with `borrow` it takes `first`
    and `second`, and `lent` is their product LENT_LATENCY cycles later. A value must not be
    MULTIPLIER_STAGE cycles old in such a cycle.
    """

    MULTIPLIER_STAGE = 2
    ROUNDING_STAGE = 6
    OFFSET_STAGE = 7
    NUMBER_LATENCY = 8
    LATENCY = 9
    LENT_LATENCY = 2

    def __init__(self, *, bits: int, lends: bool = False):
        self._bits = bits
        self._lends = lends
        number = signed(bits)
        lending = {
            "borrow": In(1),
            "first": In(signed(16)),
            "second": In(signed(16)),
            "lent": Out(signed(32)),
        }
        super().__init__(
            {
                **(lending if lends else {}),
                "accumulator": In(signed(32)),
                "scales": In(1),
                "element": In(signed(bits + 1)),
                "bias": In(signed(32)),
                "multiplier": In(unsigned(31)),
                "shift_right": In(5),
                "shift_left": In(3),
                "rounding": In(1),
                "offset": In(number),
                "low": In(number),
                "high": In(number),
                "result": Out(number),
                "number": Out(signed(32)),
                "carry": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        scaled = self._scaled(m)
        product = self._product(m, scaled)
        shifts = [self.shift_right]
        for stage in range(self.ROUNDING_STAGE):
            shifts.append(Signal(5, name=f"shift_right_{stage}", reset_less=True))
            m.d.sync += shifts[-1].eq(shifts[-2])
        longer = Signal(7, reset_less=True)  # bit n: there are more coarse steps than n
        m.d.sync += longer.eq(Cat(shifts[-2][2:] > n for n in range(7)))
        moved, carry = self._shifted(m, product, shifts[-1], longer)
        self._clamp(m, moved, carry)
        return m

    def _scaled(self, m: Module) -> Signal:
        """Stages 0 to 2: the biased sum, shifted left. It saturates."""
        biased = Signal(signed(32), reset_less=True)
        shift = Signal(3, reset_less=True)
        at_least = Signal(7, reset_less=True)  # bit n: the shift is longer than n
        m.d.sync += [
            biased.eq(
                Mux(self.scales, self.element << ELEMENT_SHIFT, self.accumulator + self.bias)
            ),
            shift.eq(self.shift_left),
            at_least.eq(Cat(self.shift_left > n for n in range(7))),
        ]
        sign = Signal(reset_less=True)
        shifted = Signal(32, reset_less=True)
        overflows = Signal(reset_less=True)
        m.d.sync += [
            sign.eq(biased[31]),
            shifted.eq((biased << shift)[:32]),
            overflows.eq(
                Cat(
                    longer & (biased[30 - n] ^ biased[31]) for n, longer in enumerate(at_least)
                ).any()
            ),
        ]
        scaled = Signal(32)
        m.d.comb += scaled.eq(Mux(overflows, Cat((~sign).replicate(31), sign), shifted))
        return scaled

    def _product(self, m: Module, scaled: Signal) -> Signal:
        """Stages 2 to 5: the product, without the bits below KEPT_FROM.

        With the factors in halves: Cat(low * low, high * high) and, HALF_WORD bits higher, the sum
        of the two mixed products. A row of full adders makes two numbers of those three, which wait
        in registers: the ways out of multiplier blocks are long, and so is the carry.
        """

        def part(name: str, a: Signal, b: Signal) -> Signal:
            multiplier = Multiplier(a=a.shape(), b=b.shape(), pipeline=False)
            m.submodules[name] = multiplier
            m.d.comb += [multiplier.a.eq(a), multiplier.b.eq(b), multiplier.enable.eq(1)]
            return multiplier.product

        low, high = Signal(HALF_WORD), Signal(signed(32 - HALF_WORD))
        factor_low, factor_high = Signal(HALF_WORD), Signal(31 - HALF_WORD)
        m.d.comb += [
            Cat(low, high).eq(scaled),
            Cat(factor_low, factor_high).eq(self.multiplier),
        ]
        if self._lends:
            low_low = self._lent(m, low, factor_low)
        else:
            low_low = part("low_low", low, factor_low)
        outer = Cat(low_low, part("high_high", high, factor_high))
        first = part("low_high", low, factor_high)
        second = part("high_low", high, factor_low)

        width = len(first)
        aligned = outer[HALF_WORD:]
        a, b, c = aligned[:width], first, second[:width]
        sums, carries = Signal(width, reset_less=True), Signal(width, reset_less=True)
        m.d.sync += [sums.eq(a ^ b ^ c), carries.eq((a & b) | (a & c) | (b & c))]
        # Above `first` there is the sign of `second` only, which is worth -1 there, and the last
        # of the carries: -1, 0 or 1 together.
        above = Signal(len(aligned) - width, reset_less=True)
        negative = Signal(reset_less=True)
        m.d.sync += [above.eq(aligned[width:]), negative.eq(second[-1])]
        carry = carries[-1]
        rest = Cat(negative ^ carry, (negative & ~carry).replicate(len(above) - 1))
        total = Signal(len(aligned))
        m.d.comb += total.eq(Cat(sums, above) + Cat(0, carries[:-1], rest))
        product = Signal(len(outer) - KEPT_FROM, reset_less=True)
        m.d.sync += product.eq(total[KEPT_FROM - HALF_WORD :])
        return product

    def _lent(self, m: Module, a: Signal, b: Signal) -> Value:
        """a * b, from a multiplier that others may use in between."""
        number = signed(HALF_WORD + 1)
        m.submodules.low_low = shared = Multiplier(a=number, b=number, pipeline=False)
        m.d.comb += [
            shared.enable.eq(1),
            shared.a.eq(Mux(self.borrow, self.first, a)),
            shared.b.eq(Mux(self.borrow, self.second, b)),
            self.lent.eq(shared.product),
        ]
        return shared.product[: 2 * HALF_WORD]

    def _shifted(
        self, m: Module, product: Signal, shift: Signal, longer: Signal
    ) -> tuple[Signal, Signal]:
        """Stages 6 and 7: the product shifted right, with the offset, and what rounding adds.

        Rounding twice, first half up (bit 0 of `product`) and then half away from zero, gives the
        same as cutting off and adding one where, of the bits cut off, the first one is set and,
        below zero, any other, or where, above, all the others are.
        """
        kept = self._bits + COARSE
        sign = product[-1]
        coarse, fine = shift[2:], shift[:2]

        # Stage 6. What the result cannot hold shows in one bit below the sign.
        groups = [product[i : i + COARSE] for i in range(0, 32, COARSE)]
        beyond = Cat(
            (product[i : i + COARSE] != sign.replicate(COARSE)) & ~longer[k]
            for k, i in enumerate(range(kept, 32, COARSE))
        )
        coarsely = Signal(signed(33))
        m.d.comb += coarsely.eq(product.as_signed() >> (coarse << 2))
        number = Signal(signed(kept + 2), reset_less=True)
        upper = Signal(signed(33 - kept), reset_less=True)
        any_cut = Signal(reset_less=True)
        all_cut = Signal(reset_less=True)
        by_first = Signal(reset_less=True)
        rest = Signal(2, reset_less=True)
        m.d.sync += [
            number.eq(Cat(coarsely[:kept], sign ^ beyond.any(), sign)),
            upper.eq(coarsely[kept:]),
            any_cut.eq(Cat(c & g.any() for c, g in zip(longer, groups, strict=False)).any()),
            all_cut.eq(Cat(~c | g.all() for c, g in zip(longer, groups, strict=False)).all()),
            by_first.eq((self.rounding == Rounding.SINGLE) | (shift == 0)),
            rest.eq(fine),
        ]

        # Stage 7.
        first = Signal()
        any_other, all_others = Signal(), Signal()
        with m.Switch(rest):
            for n in range(COARSE):
                with m.Case(n):
                    m.d.comb += [
                        first.eq(number[n]),
                        any_other.eq(any_cut | number[:n].any()),
                        all_others.eq(all_cut & number[:n].all()),
                    ]
        moved = Signal(signed(kept + 2), reset_less=True)
        high = Signal(32 - self._bits, reset_less=True)
        carry = Signal(reset_less=True)
        m.d.comb += [
            self.number.eq(Cat(moved[: self._bits], high)),
            self.carry.eq(carry),
        ]
        m.d.sync += [
            moved.eq((number[1:].as_signed() >> rest) + self.offset),
            high.eq(Cat(number[1 + self._bits : kept], upper).as_signed() >> rest),
            carry.eq(Mux(by_first, first, Mux(number[-1], first & any_other, first | all_others))),
        ]
        return moved, carry

    def _clamp(self, m: Module, moved: Signal, carry: Signal) -> None:
        """Stage 8: moved + carry, clamped. Three adders side by side.

        The bounds wait inverted: x - bound - 1 is x + ~bound.
        """
        total = Signal(self._bits + 1)
        beyond = []
        for name, bound in (("high", self.high), ("low", self.low)):
            inverted = Signal.like(bound, name=f"not_{name}", reset_less=True)
            m.d.sync += inverted.eq(~bound)
            excess = Signal(signed(len(moved) + 2), name=f"beyond_{name}")
            m.d.comb += excess.eq(Cat(1, moved).as_signed() + Cat(carry, inverted).as_signed())
            beyond.append((excess, ~inverted))
        (beyond_high, high), (beyond_low, low) = beyond
        m.d.comb += total.eq(Cat(1, moved) + Cat(carry, 0))
        result = Signal.like(self.result, reset_less=True)
        m.d.comb += self.result.eq(result)
        with m.If(beyond_high >= 0):
            m.d.sync += result.eq(high)
        with m.Elif(beyond_low < 0):
            m.d.sync += result.eq(low)
        with m.Else():
            m.d.sync += result.eq(total[1:])
