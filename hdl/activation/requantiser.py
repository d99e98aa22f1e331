# SPDX-License-Identifier: Apache-2.0
"""One lane of the activation unit: from a 32-bit sum to an int8 code, and an operand scaled."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import DITHER_BITS, Rounding
from systola.hdl.parts.multiplier import Multiplier
from systola.hdl.parts.selecting_adder import SelectingAdder

HALF_WORD = 16
"""Bits of the lower parts of the factors."""
KEPT_FROM = 30
"""The first bit of the product that is kept: half a unit of the high word."""
ELEMENT_SHIFT = 15
"""Bits by which an element is shifted left, in addition to `shift_left`."""
SHIFT_BITS = 5
"""Bits of the number of bits of the shift right."""
COARSE = 4
"""The shift right goes in steps of this many bits first, and then by what is left."""


class Requantiser(wiring.Component):
    """Bias, multiplier, shifts, offset and clamp: the formula of Activate in arch/isa/
    (source: LiteRT's MultiplyByQuantizedMultiplier, double and single rounding).

    `result`, a register, is there LATENCY cycles after the value. One value a cycle, no
    back-pressure. The value is `accumulator` or, with `use_sum`, `sum`. With `scales` it is
    `element` << ELEMENT_SHIFT, without `bias`; `number` + `carry` is what comes of a value before
    the offset, NUMBER_LATENCY cycles after it, in 32 bits (the f of Vector, as `rounding` is
    DOUBLE). The other inputs come as many cycles after the value as MULTIPLIER_STAGE
    (`multiplier`), SHIFT_STAGE (`shift_right`), ROUNDING_STAGE (`rounding`), OFFSET_STAGE
    (`offset`) and CLAMP_STAGE (`low` and `high`, `low` <= `high`) say. Nothing overflows.

    With `lends` one of its multipliers may be borrowed: in a cycle with `borrow` it takes `first`
    and `second`, and `lent` is their product LENT_LATENCY cycles later. A value must not be
    MULTIPLIER_STAGE cycles old in such a cycle.

    With `dithers` SINGLE adds `dither`, the t of the formula, DITHER_STAGE cycles after the value;
    with a half, 8, it is SINGLE itself, and else it must be that.
    """

    MULTIPLIER_STAGE = 2
    SHIFT_STAGE = 5
    ROUNDING_STAGE = 6
    DITHER_STAGE = 7
    OFFSET_STAGE = 8
    CLAMP_STAGE = 9
    NUMBER_LATENCY = 8
    LATENCY = 10
    LENT_LATENCY = 2

    def __init__(self, *, bits: int, lends: bool = False, dithers: bool = False):
        self._bits = bits
        self._lends = lends
        self._dithers = dithers
        self._below = (DITHER_BITS - 1) * dithers
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
                **({"dither": In(DITHER_BITS)} if dithers else {}),
                "accumulator": In(signed(32)),
                "sum": In(signed(32)),
                "use_sum": In(1),
                "scales": In(1),
                "element": In(signed(bits + 1)),
                "bias": In(signed(32)),
                "multiplier": In(unsigned(31)),
                "shift_right": In(SHIFT_BITS),
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
        shift = Signal(SHIFT_BITS, reset_less=True)
        longer = Signal(7, reset_less=True)  # bit n: there are more coarse steps than n
        m.d.sync += [
            shift.eq(self.shift_right),
            longer.eq(Cat(self.shift_right[2:] > n for n in range(7))),
        ]
        moved, carry = self._shifted(m, product, shift, longer)
        self._clamp(m, moved, carry)
        return m

    def _scaled(self, m: Module) -> Signal:
        """Stages 0 to 2: the biased sum, shifted left. It saturates."""
        biased = Signal(signed(32), reset_less=True)
        shift = Signal(3, reset_less=True)
        at_least = Signal(7, reset_less=True)  # bit n: the shift is longer than n
        m.submodules.adder = adder = SelectingAdder(width=32)
        m.d.comb += [
            adder.a.eq(self.bias),
            adder.choose_b.eq(self.use_sum.replicate(32)),
            adder.b.eq(self.sum),
            adder.c.eq(self.accumulator),
        ]
        m.d.sync += [
            biased.eq(Mux(self.scales, self.element << ELEMENT_SHIFT, adder.total)),
            shift.eq(self.shift_left),
            at_least.eq(Cat(self.shift_left > n for n in range(7))),
        ]
        # One table a bit for each bit of the shift; the last two have an input left to saturate.
        sign = Signal(reset_less=True)
        by_four = Signal(32, reset_less=True)
        rest = Signal(2, reset_less=True)
        too_high, too_low = Signal(reset_less=True), Signal(reset_less=True)
        overflows = Signal()
        m.d.comb += overflows.eq(
            Cat(longer & (biased[30 - n] ^ biased[31]) for n, longer in enumerate(at_least)).any()
        )
        m.d.sync += [
            sign.eq(biased[31]),
            by_four.eq(Mux(shift[2], biased << 4, biased)),
            rest.eq(shift[:2]),
            too_high.eq(overflows & ~biased[31]),
            too_low.eq(overflows & biased[31]),
        ]
        by_two, scaled = Signal(31), Signal(32)
        m.d.comb += [
            by_two.eq(Mux(rest[1], by_four << 2, by_four) | too_high.replicate(31)),
            scaled.eq(
                Cat(Mux(rest[0], Cat(too_high, by_two), by_two)[:31] & ~too_low.replicate(31), sign)
            ),
        ]
        return scaled

    def _product(self, m: Module, scaled: Signal) -> Signal:
        """Stages 2 to 5: the product, without the bits below KEPT_FROM but for those that are
        compared with `dither`.

        With the factors in halves: Cat(low * low, high * high) and, HALF_WORD bits higher, the sum
        of the two mixed products.
        """

        def part(name: str, a: Signal, b: Signal, *, waits: bool = False) -> Signal:
            multiplier = Multiplier(a=a.shape(), b=b.shape(), pipeline=waits)
            m.submodules[name] = multiplier
            m.d.comb += [multiplier.a.eq(a), multiplier.b.eq(b), multiplier.enable.eq(1)]
            return multiplier.product

        low, high = Signal(HALF_WORD), Signal(signed(32 - HALF_WORD))
        factor_low, factor_high = Signal(HALF_WORD), Signal(31 - HALF_WORD)
        m.d.comb += [
            Cat(low, high).eq(scaled),
            Cat(factor_low, factor_high).eq(self.multiplier),
        ]
        # The outer products wait in their blocks while the mixed ones are added.
        outer = Cat(
            part("low_low", low, factor_low, waits=True),
            part("high_high", high, factor_high, waits=True),
        )
        if self._lends:
            first = self._lent(m, low, factor_high)
        else:
            first = part("low_high", low, factor_high)
        second = part("high_low", high, factor_low)

        mixed = Signal(signed(33), reset_less=True)
        total = Signal(len(outer) - HALF_WORD)
        kept_from = KEPT_FROM - self._below
        product = Signal(len(outer) - kept_from, reset_less=True)
        m.d.comb += total.eq(outer[HALF_WORD:] + mixed)
        m.d.sync += [
            mixed.eq(first + second),
            product.eq(total[kept_from - HALF_WORD :]),
        ]
        return product

    def _lent(self, m: Module, a: Signal, b: Signal) -> Value:
        """a * b, from a multiplier that others may use in between."""
        number = signed(HALF_WORD + 1)
        m.submodules.low_high = shared = Multiplier(a=number, b=number, pipeline=False)
        m.d.comb += [
            shared.enable.eq(1),
            shared.a.eq(Mux(self.borrow, self.first, a)),
            shared.b.eq(Mux(self.borrow, self.second, b)),
            self.lent.eq(shared.product),
        ]
        return shared.product[: len(a) + len(b)]

    def _shifted(
        self, m: Module, whole: Signal, shift: Signal, longer: Signal
    ) -> tuple[Signal, Signal]:
        """Stages 6 and 7: the product shifted right, and what rounding adds.

        Rounding twice, first half up (bit 0 of `product`) and then half away from zero, gives the
        same as cutting off and adding one where, of the bits cut off, the first one is set and,
        below zero, any other, or where, above, all the others are. A random number is added to the
        first DITHER_BITS of them.
        """
        kept, below = self._bits + COARSE, self._below
        product = whole[below:]
        sign = product[-1]
        coarse, fine = shift[2:], shift[:2]

        # Stage 6. What the result cannot hold shows in one bit below the sign.
        groups = [product[i : i + COARSE] for i in range(0, 32, COARSE)]
        beyond = Cat(
            (product[i : i + COARSE] != sign.replicate(COARSE)) & ~longer[k]
            for k, i in enumerate(range(kept, 32, COARSE))
        )
        coarsely = Signal(signed(33 + below))
        m.d.comb += coarsely.eq(whole.as_signed() >> (coarse << 2))
        lower, left = coarsely[:below], coarsely[below:]
        number = Signal(signed(kept + 2), reset_less=True)
        upper = Signal(signed(33 - kept), reset_less=True)
        any_cut = Signal(reset_less=True)
        all_cut = Signal(reset_less=True)
        by_first = Signal(reset_less=True)
        rest = Signal(2, reset_less=True)
        m.d.sync += [
            number.eq(Cat(left[:kept], sign ^ beyond.any(), sign)),
            upper.eq(left[kept:]),
            any_cut.eq(Cat(c & g.any() for c, g in zip(longer, groups, strict=False)).any()),
            all_cut.eq(Cat(~c | g.all() for c, g in zip(longer, groups, strict=False)).all()),
            by_first.eq((self.rounding == Rounding.SINGLE) | (shift == 0)),
            rest.eq(fine),
        ]

        # Stage 7.
        first = Signal()
        by_one: Value = first
        any_other, all_others = Signal(), Signal()
        with m.Switch(rest):
            for n in range(COARSE):
                with m.Case(n):
                    m.d.comb += [
                        first.eq(number[n]),
                        any_other.eq(any_cut | number[:n].any()),
                        all_others.eq(all_cut & number[:n].all()),
                    ]
        if self._dithers:
            by_one = self._dithered(m, lower, number, rest)
        moved = Signal(signed(kept + 1), reset_less=True)
        high = Signal(32 - self._bits, reset_less=True)
        carry = Signal(reset_less=True)
        m.d.comb += [
            self.number.eq(Cat(moved[: self._bits], high)),
            self.carry.eq(carry),
        ]
        m.d.sync += [
            moved.eq(number[1:].as_signed() >> rest),
            high.eq(Cat(number[1 + self._bits : kept], upper).as_signed() >> rest),
            carry.eq(Mux(by_first, by_one, Mux(number[-1], first & any_other, first | all_others))),
        ]
        return moved, carry

    def _dithered(self, m: Module, lower: Value, number: Value, rest: Value) -> Value:
        """Stages 6 and 7: what comes of the bits cut off and `dither`. `lower`: those below the
        `number` of the next cycle, which is to be shifted by `rest`."""
        below = Signal(len(lower), reset_less=True)
        fraction, total = Signal(DITHER_BITS), Signal(DITHER_BITS + 1)
        m.d.sync += below.eq(lower)
        m.d.comb += [
            fraction.eq(Cat(below, number) >> rest),
            total.eq(fraction + self.dither),
        ]
        return total[-1]

    def _clamp(self, m: Module, moved: Signal, carry: Signal) -> None:
        """Stages 8 and 9: moved + carry, with the offset, clamped."""
        total = Signal(signed(len(moved) + 1), reset_less=True)
        sum_of_all = Signal(len(total) + 1)
        result = Signal.like(self.result, reset_less=True)
        m.d.comb += [
            sum_of_all.eq(Cat(1, moved).as_signed() + Cat(carry, self.offset).as_signed()),
            self.result.eq(result),
        ]
        m.d.sync += total.eq(sum_of_all[1:])
        room_above, room_below = Signal(signed(len(total) + 1)), Signal(signed(len(total) + 1))
        m.d.comb += [room_above.eq(self.high - total), room_below.eq(total - self.low)]
        with m.If(room_above < 0):
            m.d.sync += result.eq(self.high)
        with m.Elif(room_below < 0):
            m.d.sync += result.eq(self.low)
        with m.Else():
            m.d.sync += result.eq(total)
