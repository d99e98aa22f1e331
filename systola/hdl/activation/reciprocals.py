# SPDX-License-Identifier: Apache-2.0
"""The reciprocals of sums, for the parameter entries that partitions make."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import (
    PARTITION_SHIFT,
    PARTITION_ZEROS,
    RECIPROCAL_SLOPE,
    RECIPROCAL_START,
)
from systola.hdl.activation.requantiser import SHIFT_BITS
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.multiplier import LATENCY as MULTIPLIED
from systola.hdl.parts.multiplier import Multiplier

SUM_BITS = 32
MULTIPLIER_BITS = 31
SLOTS = 8
"""Sums that are in the ring at a time, and cycles from one product of a sum to the next."""
PRODUCTS = 7
"""Products of a reciprocal: one for the start, and two for each step of Newton's."""
NORMALISED = 3
"""Cycles from a sum to the place from which its first product is computed."""
LATENCY = NORMALISED + PRODUCTS * SLOTS
"""Cycles from a sum to its reciprocal."""

_FRACTION = 29
"""Fractional bits of the approximations x, which are below 2."""
_LOW = 17
"""Bits of the lower part of a factor. Each part has to fit into a block of a Multiplier."""
_SHIFTED = 31
"""Bits by which a product is shifted to the right, with rounding."""


class Slot(data.StructLayout):
    """A layout of a slot: whether it has a sum, and the number of the products already computed."""

    def __init__(self) -> None:
        super().__init__({"valid": 1, "products": range(PRODUCTS + 1)})


class Reciprocals(wiring.Component):
    """A pipeline that turns sums into the multipliers and right shifts of a partition.

    The formulas are in arch/isa/ (Vector): R and the right shift. They are
    `one_over_one_plus_x_for_x_in_0_1` of gemmlowp's fixedpoint.h.

    | port         | meaning |
    |---|---|
    | `sums`       | a stream of sums from 0 to 2^32 - 1 |
    | `valid`      | a reciprocal comes out |
    | `multiplier` | R: 0, or 2^30 to 2^31 - 1 |
    | `shift`      | the right shift: 3 to 31 |

    Latency: LATENCY cycles from a sum to its reciprocal, so reciprocals have the order of their
    sums. Throughput: SLOTS sums in PRODUCTS * SLOTS cycles, in any SLOTS cycles on end. Each sum
    goes round a ring of SLOTS stages and makes a product in each round. `sums.ready` is high while
    the slot that comes round is free. Reciprocals have no back-pressure.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "sums": In(stream.Signature(SUM_BITS)),
                "valid": Out(1),
                "multiplier": Out(MULTIPLIER_BITS),
                "shift": Out(SHIFT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Place 0 has the slot that was at the head of the ring in the cycle before.
        slots = [Signal(Slot(), name=f"slot_{place}") for place in range(SLOTS)]
        head, coming = slots[-1], slots[-1 - NORMALISED]
        next_slot = Signal(Slot())
        products_made = Signal.like(head.products)
        m.d.comb += self.sums.ready.eq(~coming.valid | (coming.products == PRODUCTS))
        begins, denominator, begun_shift, begun_void = self._normalise(m)
        m.d.comb += [
            self.valid.eq(head.valid & (head.products == PRODUCTS)),
            products_made.eq(Mux(begins, 0, head.products)),
            next_slot.valid.eq(begins | (head.valid & ~self.valid)),
            next_slot.products.eq(products_made + 1),
        ]
        m.d.sync += slots[0].eq(next_slot)
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(slots)]

        # The numbers of a sum that stay while its slot goes round.
        kept = data.StructLayout({"denominator": MULTIPLIER_BITS, "shift": SHIFT_BITS, "void": 1})
        m.submodules.kept = ring = DelayRing(width=kept.size, cycles=SLOTS)
        passing = data.View(kept, ring.output)
        staying = Signal(kept)
        m.d.comb += [
            staying.denominator.eq(Mux(begins, denominator, passing.denominator)),
            staying.shift.eq(Mux(begins, begun_shift, passing.shift)),
            staying.void.eq(Mux(begins, begun_void, passing.void)),
            ring.input.eq(staying),
        ]
        approximation = self._refine(m, products_made, staying.denominator, slots[-2])
        doubled = Cat(0, approximation[: MULTIPLIER_BITS - 1])
        m.d.comb += [
            self.shift.eq(passing.shift),
            self.multiplier.eq(
                Mux(
                    passing.void,
                    0,
                    doubled | approximation[MULTIPLIER_BITS - 1].replicate(MULTIPLIER_BITS),
                )
            ),
        ]
        return m

    def _normalise(self, m: Module) -> tuple[Signal, Value, Value, Value]:
        """Shift each sum to the left until its highest bit is set.

        Returns, NORMALISED cycles after a sum: whether there is one, its denominator d, its right
        shift, and whether its R is 0.
        """
        there, word, zeros = self.sums.valid & self.sums.ready, self.sums.payload, Const(0, 0)
        for stage, distances in enumerate(((16, 8), (4, 2), (1,))):
            for distance in distances:
                empty = ~word[SUM_BITS - distance :].any()
                word = Mux(empty, word << distance, word)[:SUM_BITS]
                zeros = Cat(empty, zeros)
            sum_valid = Signal(name=f"sum_{stage}_valid")
            sum_word = Signal(SUM_BITS, name=f"sum_{stage}", reset_less=True)
            sum_zeros = Signal(len(zeros), name=f"zeros_{stage}", reset_less=True)
            m.d.sync += [sum_valid.eq(there), sum_word.eq(word), sum_zeros.eq(zeros)]
            there, word, zeros = sum_valid, sum_word, sum_zeros
        is_zero, few = ~word[-1], zeros < PARTITION_ZEROS
        shift = (PARTITION_SHIFT - zeros - is_zero)[:SHIFT_BITS]
        return there, word[1:], Mux(few, (1 << SHIFT_BITS) - 1, shift), is_zero | few

    def _refine(
        self, m: Module, products_made: Value, denominator: Value, late_slot: data.View
    ) -> Signal:
        """Compute a product for the slot at the head of the ring; return the slot's approximation.

        The first product gives the start. Of each step of Newton's, the first product gives the
        error, and the second one the next approximation. `late_slot` is the slot for which the
        result is added up: it comes back to the head of the ring in the next cycle.
        """
        approximation = Signal(MULTIPLIER_BITS, reset_less=True)
        error = Signal(signed(SUM_BITS), reset_less=True)
        first = Signal(MULTIPLIER_BITS, reset_less=True)
        second = Signal(signed(SUM_BITS), reset_less=True)
        starts, takes_error = products_made == 0, ~products_made[0]
        m.d.sync += [
            first.eq(Mux(takes_error & ~starts, approximation, denominator)),
            second.eq(Mux(starts, RECIPROCAL_SLOPE, Mux(takes_error, error, approximation))),
        ]
        product = self._multiply(m, first, second)

        m.submodules.waiting = waiting = DelayRing(width=MULTIPLIER_BITS, cycles=SLOTS - 1)
        m.d.comb += waiting.input.eq(approximation)
        before = waiting.output
        is_start, is_error = late_slot.products == 1, ~late_slot.products[0]
        addend = Mux(is_start, RECIPROCAL_START, Mux(is_error, 1 << _FRACTION, before))
        term = Mux(is_start | is_error, product ^ is_error.replicate(SUM_BITS), product << 2)
        total = Signal(SUM_BITS)
        m.d.comb += total.eq((Cat(1, addend) + Cat(is_error, term[:SUM_BITS]))[1:])
        m.d.sync += [
            error.eq(total),
            approximation.eq(Mux(is_error, before, total)),
        ]
        return approximation

    def _multiply(self, m: Module, first: Signal, second: Signal) -> Signal:
        """Return `first` * `second` / 2^31, rounded, MULTIPLIED + 3 cycles later.

        Four blocks multiply the halves of the factors.
        """
        assert 1 + MULTIPLIED + 3 == SLOTS - 1
        halves_a = {"low": first[:_LOW], "high": first[_LOW:]}
        halves_b = {"low": second[:_LOW], "high": second[_LOW:].as_signed()}
        found: dict[tuple[str, str], Value] = {}
        for name_a, a in halves_a.items():
            for name_b, b in halves_b.items():
                block = Multiplier(a=unsigned(len(a)), b=b.shape())
                m.submodules[f"{name_a}_{name_b}"] = block
                m.d.comb += [block.a.eq(a), block.b.eq(b), block.enable.eq(1)]
                found[name_a, name_b] = block.product
        outer = Cat(found["low", "low"], found["high", "high"])[_LOW:].as_signed()
        outer_part = Signal(outer.shape(), reset_less=True)
        inner_part = Signal(signed(SUM_BITS + 2), reset_less=True)
        whole = Signal(outer.shape(), reset_less=True)
        product = Signal(signed(SUM_BITS), reset_less=True)
        m.d.sync += [
            outer_part.eq(outer),
            inner_part.eq(found["low", "high"] + found["high", "low"]),
            whole.eq(outer_part + inner_part),
            product.eq((whole[_SHIFTED - _LOW - 1 :].as_signed() + 1) >> 1),
        ]
        return product
