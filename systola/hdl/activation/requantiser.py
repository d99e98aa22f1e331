# SPDX-License-Identifier: Apache-2.0
"""The requantiser of one lane: it turns a 32-bit sum into a code, and scales operands of Vector."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import DITHER_BITS, Rounding
from systola.hdl.parts.multiplier import Multiplier
from systola.hdl.parts.selecting_adder import SelectingAdder

HALF_WORD = 16
"""Number of bits in the lower half of each factor of the product."""
KEPT_FROM = 30
"""Number of the lowest product bit that is kept.

The high word begins one bit above, so this bit is half a unit of the high word.
"""
ELEMENT_SHIFT = 15
"""Bits by which an element is shifted left, in addition to `shift_left`."""
SHIFT_BITS = 5
"""Width in bits of the signal that holds the distance of the shift right."""
COARSE = 4
"""Number of bits in one coarse step of the shift right.

The shift first goes by whole coarse steps, then by the remaining bits.
"""


class Requantiser(wiring.Component):
    """A pipeline for the formula of Activate: bias, multiplier, shifts, offset and clamp.

    The formula is in arch/isa/; its source is LiteRT's MultiplyByQuantizedMultiplier, with double
    and single rounding. The column "cycle" counts cycles from the cycle in which the value comes.

    | port          | cycle            | meaning |
    |---|---|---|
    | `accumulator` | 0                | the value, without `use_sum` and `scales` |
    | `use_sum`     | 0                | `sum` is the value |
    | `sum`         | 0                | a sum of buffer lines |
    | `scales`      | 0                | `element` << ELEMENT_SHIFT is the value, without `bias` |
    | `element`     | 0                | an element that is scaled |
    | `bias`        | 0                | number that is added to the value, modulo 2^32 |
    | `shift_left`  | 0                | left shift, which saturates, 0 to 7 |
    | `multiplier`  | MULTIPLIER_STAGE | multiplier, 31 bits without a sign |
    | `shift_right` | SHIFT_STAGE      | right shift, 0 to 31 |
    | `rounding`    | ROUNDING_STAGE   | Rounding of the right shift |
    | `dither`      | DITHER_STAGE     | random number in sixteenths, with `dithers` |
    | `offset`      | OFFSET_STAGE     | number that is added to the product |
    | `low`         | CLAMP_STAGE      | smallest result |
    | `high`        | CLAMP_STAGE      | largest result, not below `low` |
    | `result`      | LATENCY          | the result, a register |
    | `number`      | NUMBER_LATENCY   | the product, 32 bits, before `carry` is added |
    | `carry`       | NUMBER_LATENCY   | `number` + `carry` is the rounded product |
    | `borrow`      |                  | a multiplier is lent in this cycle, with `lends` |
    | `first`       |                  | with `borrow`: an operand |
    | `second`      |                  | with `borrow`: the other operand |
    | `lent`        |                  | `first` * `second`, LENT_LATENCY cycles after `borrow` |

    Throughput: one value a cycle. No back-pressure. Nothing overflows. With `rounding` DOUBLE,
    `number` + `carry` is the function f in the formula of Vector.

    In a cycle with `borrow` no value may be in its MULTIPLIER_STAGE.

    With `dithers`, SINGLE adds `dither`, the t of the formula of `stochastic`. A `dither` of 8, one
    half, gives SINGLE itself. Every value without random rounding must have this `dither`.
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
        longer = Signal(7, reset_less=True)  # bit n: the shift has more than n coarse steps
        m.d.sync += [
            shift.eq(self.shift_right),
            longer.eq(Cat(self.shift_right[2:] > n for n in range(7))),
        ]
        shifted_number, round_up = self._shifted(m, product, shift, longer)
        self._clamp(m, shifted_number, round_up)
        return m

    def _scaled(self, m: Module) -> Signal:
        """Return the biased sum, shifted left with saturation: stages 0 to 2."""
        biased = Signal(signed(32), reset_less=True)
        shift = Signal(3, reset_less=True)
        at_least = Signal(7, reset_less=True)  # bit n: the shift is longer than n bits
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
        # Each stage shifts by a power of two, with one look-up table for each bit of the value. In
        # the last two stages the tables have a free input, which serves to saturate.
        sum_sign = Signal(reset_less=True)
        by_four = Signal(32, reset_less=True)
        shift_rest = Signal(2, reset_less=True)
        too_high = Signal(reset_less=True)
        too_low = Signal(reset_less=True)
        overflows = Signal()
        m.d.comb += overflows.eq(
            Cat(longer & (biased[30 - n] ^ biased[31]) for n, longer in enumerate(at_least)).any()
        )
        m.d.sync += [
            sum_sign.eq(biased[31]),
            by_four.eq(Mux(shift[2], biased << 4, biased)),
            shift_rest.eq(shift[:2]),
            too_high.eq(overflows & ~biased[31]),
            too_low.eq(overflows & biased[31]),
        ]
        by_two = Signal(31)
        scaled = Signal(32)
        m.d.comb += [
            by_two.eq(Mux(shift_rest[1], by_four << 2, by_four) | too_high.replicate(31)),
            scaled.eq(
                Cat(
                    Mux(shift_rest[0], Cat(too_high, by_two), by_two)[:31] & ~too_low.replicate(31),
                    sum_sign,
                )
            ),
        ]
        return scaled

    def _product(self, m: Module, scaled: Signal) -> Signal:
        """Return the product without its lowest bits: stages 2 to 5.

        The bits from KEPT_FROM on are kept, and also the bits below them that are compared with
        `dither`. Each factor is split into halves. The result is Cat(low * low, high * high) plus,
        HALF_WORD bits higher, the sum of the two mixed products.
        """

        def part(name: str, a: Signal, b: Signal, *, waits: bool = False) -> Signal:
            multiplier = Multiplier(a=a.shape(), b=b.shape(), pipeline=waits)
            m.submodules[name] = multiplier
            m.d.comb += [multiplier.a.eq(a), multiplier.b.eq(b), multiplier.enable.eq(1)]
            return multiplier.product

        low = Signal(HALF_WORD)
        high = Signal(signed(32 - HALF_WORD))
        factor_low = Signal(HALF_WORD)
        factor_high = Signal(31 - HALF_WORD)
        m.d.comb += [
            Cat(low, high).eq(scaled),
            Cat(factor_low, factor_high).eq(self.multiplier),
        ]
        # The outer products wait in their multiplier blocks while the mixed products are added.
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
        """Return a * b. In cycles with `borrow`, the multiplier works for the gates instead."""
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
        """Return the product shifted right, and the bit that rounding adds: stages 6 and 7.

        The shift cuts off low bits. The shifted number is rounded down, and the returned bit is 1
        if one must be added.

        DOUBLE rounds twice: first half up (bit 0 of `product`), then half away from zero. So one is
        added in these cases:

        - The number is negative, the highest cut bit is 1, and at least one other cut bit is 1.
        - The number is not negative, and the highest cut bit is 1 or all other cut bits are 1.

        SINGLE adds one if the highest of the cut bits is 1. Stochastic rounding adds a random
        number to the highest DITHER_BITS cut bits, and takes the carry.
        """
        kept, below = self._bits + COARSE, self._below
        product = whole[below:]
        sign = product[-1]
        coarse, fine = shift[2:], shift[:2]

        # Stage 6. In `number`, the bit below the sign differs from the sign if the result cannot
        # hold the number.
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
        fine_shift = Signal(2, reset_less=True)
        m.d.sync += [
            number.eq(Cat(left[:kept], sign ^ beyond.any(), sign)),
            upper.eq(left[kept:]),
            any_cut.eq(Cat(c & g.any() for c, g in zip(longer, groups, strict=False)).any()),
            all_cut.eq(Cat(~c | g.all() for c, g in zip(longer, groups, strict=False)).all()),
            by_first.eq((self.rounding == Rounding.SINGLE) | (shift == 0)),
            fine_shift.eq(fine),
        ]

        # Stage 7.
        first = Signal()
        by_one: Value = first
        any_other = Signal()
        all_others = Signal()
        with m.Switch(fine_shift):
            for n in range(COARSE):
                with m.Case(n):
                    m.d.comb += [
                        first.eq(number[n]),
                        any_other.eq(any_cut | number[:n].any()),
                        all_others.eq(all_cut & number[:n].all()),
                    ]
        if self._dithers:
            by_one = self._dithered(m, lower, number, fine_shift)
        shifted_number = Signal(signed(kept + 1), reset_less=True)
        high = Signal(32 - self._bits, reset_less=True)
        round_up = Signal(reset_less=True)
        m.d.comb += [
            self.number.eq(Cat(shifted_number[: self._bits], high)),
            self.carry.eq(round_up),
        ]
        m.d.sync += [
            shifted_number.eq(number[1:].as_signed() >> fine_shift),
            high.eq(Cat(number[1 + self._bits : kept], upper).as_signed() >> fine_shift),
            round_up.eq(
                Mux(by_first, by_one, Mux(number[-1], first & any_other, first | all_others))
            ),
        ]
        return shifted_number, round_up

    def _dithered(self, m: Module, lower: Value, number: Value, fine_shift: Value) -> Value:
        """Return the carry of the sum of the bits cut off and `dither`: stages 6 and 7.

        `lower` has the bits below `number`, one cycle before `number`. Both are shifted right by
        `fine_shift` together.
        """
        bits_below = Signal(len(lower), reset_less=True)
        fraction = Signal(DITHER_BITS)
        dithered_sum = Signal(DITHER_BITS + 1)
        m.d.sync += bits_below.eq(lower)
        m.d.comb += [
            fraction.eq(Cat(bits_below, number) >> fine_shift),
            dithered_sum.eq(fraction + self.dither),
        ]
        return dithered_sum[-1]

    def _clamp(self, m: Module, shifted_number: Signal, round_up: Signal) -> None:
        """Add `round_up` and the offset to `shifted_number`, and clamp the sum: stages 8 and 9."""
        offset_sum = Signal(signed(len(shifted_number) + 1), reset_less=True)
        sum_of_all = Signal(len(offset_sum) + 1)
        clamped_sum = Signal.like(self.result, reset_less=True)
        m.d.comb += [
            sum_of_all.eq(
                Cat(1, shifted_number).as_signed() + Cat(round_up, self.offset).as_signed()
            ),
            self.result.eq(clamped_sum),
        ]
        m.d.sync += offset_sum.eq(sum_of_all[1:])
        room_above = Signal(signed(len(offset_sum) + 1))
        room_below = Signal(signed(len(offset_sum) + 1))
        m.d.comb += [room_above.eq(self.high - offset_sum), room_below.eq(offset_sum - self.low)]
        with m.If(room_above < 0):
            m.d.sync += clamped_sum.eq(self.high)
        with m.Elif(room_below < 0):
            m.d.sync += clamped_sum.eq(self.low)
        with m.Else():
            m.d.sync += clamped_sum.eq(offset_sum)
