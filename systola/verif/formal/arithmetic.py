# SPDX-License-Identifier: Apache-2.0
"""Proofs of arithmetic: `sums_to`, which compares a sum without its carries, and the requantiser.

The requantiser is proven equal to its formula for all sums and parameters. It multiplies by four
products of halves. By school arithmetic the sum of these four is the whole product, but no solver
finds that:

(a 2^16 + b) (c 2^16 + d) = a c 2^32 + (a d + b c) 2^16 + b d

So the multipliers are cut out of the unit, and their products are any numbers. One proof shows that
the multipliers get the halves of the right factors, and that the sum of their products reaches the
rounding. The other proof starts at that sum.
"""

from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In

from systola.arch.isa import Rounding
from systola.hdl.activation.requantiser import ELEMENT_SHIFT, KEPT_FROM, Requantiser
from systola.hdl.parts.multiplier import LATENCY, Multiplier
from systola.hdl.parts.sums_to import sums_to
from systola.verif.formal.harness import Harness, Unit, anything, before, implies
from systola.verif.formal.proof import Fault, Proof

TOP, BOTTOM = (1 << 31) - 1, -(1 << 31)
MULTIPLIED = Requantiser.MULTIPLIER_STAGE + LATENCY
"""Cycles from the requantiser's input to its products of equal halves (two high or two low).

The products of a high and a low half come a cycle earlier.
"""
ADDED = Requantiser.ROUNDING_STAGE - MULTIPLIED
"""Cycles from the requantiser's products of equal halves to the sum of all four products."""


def clipped(value: Value, low: Value, high: Value) -> Value:
    return Mux(value > high, high, Mux(value < low, low, value))


def ago(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Return the value that a signal had `cycles` cycles before the present one."""
    for cycle in range(cycles):
        value = before(m, value, f"{name}_{cycle}")
    return value


class SumsToHarness(Harness):
    """A proof harness for `sums_to`, with any numbers of 6 and of 4 bits, and a carry of 0 or 1."""

    def claims(self, m: Module) -> None:
        total, a, b = (anything(m, bits, name) for name, bits in (("k", 6), ("a", 6), ("b", 4)))
        for carry in range(2):
            m.d.comb += Assert(sums_to(total, a, b, carry) == (total == (a + b + carry)[:6]))


class _Requantiser(Harness):
    """A requantiser with free inputs, in which the multipliers are replaced by free products.

    The product of a multiplier in WITHOUT is 0. Multipliers count from 0, in the order in which the
    unit makes them.
    """

    BITS = 8
    LENDS = False
    WITHOUT: tuple[int, ...] = ()

    def unit(self, m: Module) -> tuple[Requantiser, Unit, list[Multiplier]]:
        multipliers: list[Multiplier] = []

        def cut(multiplier: Multiplier, platform: object) -> Module:
            inner = Module()
            if len(multipliers) not in self.WITHOUT:
                inner.d.comb += multiplier.product.eq(AnySeq(len(multiplier.product)))
            multipliers.append(multiplier)
            return inner

        dut = Requantiser(bits=self.BITS, lends=self.LENDS)
        with patch.object(Multiplier, "elaborate", cut):
            unit = Unit(m, dut)
        for name, member in dut.signature.members.items():
            if member.flow is In:
                m.d.comb += getattr(dut, name).eq(anything(m, member.shape, f"any_{name}"))
        return dut, unit, multipliers


class FactorsHarness(_Requantiser):
    """A proof harness for the requantiser's paths to and from its multipliers.

    One path leads from the sum to the multipliers, the other from the products to the rounding.
    """

    def claims(self, m: Module) -> None:
        dut, unit, multipliers = self.unit(m)
        started = ago(m, Const(1), Requantiser.LATENCY, "started")
        value, biased = Signal(signed(32)), Signal(signed(32))
        scaled = Signal(signed(32))
        m.d.comb += [
            value.eq(Mux(dut.use_sum, dut.sum, dut.accumulator)),
            biased.eq(Mux(dut.scales, dut.element << ELEMENT_SHIFT, value + dut.bias)),
            scaled.eq(clipped(biased << dut.shift_left, Const(BOTTOM), Const(TOP))),
        ]
        x = ago(m, scaled, Requantiser.MULTIPLIER_STAGE, "x")
        q = dut.multiplier
        low, high = x[:16], x[16:].as_signed()
        factors = [(low, q[:16]), (high, q[16:]), (low, q[16:]), (high, q[:16])]
        borrowed = Const(0)
        if self.LENDS:
            shared = multipliers[2]
            borrowed = dut.borrow
            m.d.comb += [
                Assert(implies(borrowed, shared.a == dut.first)),
                Assert(implies(borrowed, shared.b == dut.second)),
                Assert(dut.lent == shared.product[:32].as_signed()),
            ]
        for part, (a, b) in zip(multipliers, factors, strict=True):
            mine = started & ~(borrowed if part is multipliers[2] else 0)
            m.d.comb += Assert(implies(mine, (part.a == a) & (part.b == b)))

        low_low, high_high, *mixed = (part.product for part in multipliers)
        low_high, high_low = (
            before(m, product, f"mixed_{number}") for number, product in enumerate(mixed)
        )
        product = Signal(signed(66))
        rounded = unit.inside("product")
        m.d.comb += [
            product.eq((high_high << 32) + ((low_high[:31] + high_low) << 16) + low_low),
            Assume((product >= -(1 << 62)) & (product < (1 << 62))),
            Assert(implies(started, rounded == ago(m, product >> KEPT_FROM, ADDED, "p")[:33])),
        ]


class LendingFactorsHarness(FactorsHarness):
    """A proof harness for the multipliers of an int16 requantiser, which lends one of them.

    While `borrow` is high, this multiplier has the factors `first` and `second`.
    """

    BITS = 16
    LENDS = True


class RoundingHarness(_Requantiser):
    """A proof harness for the requantiser's path from the product to both of its results.

    The lowest 30 bits of the product are left out, as no rounding reads them. For a product p and a
    right shift r, (p + 2^(30 + r)) >> (31 + r) equals (p' + 2^r) >> (r + 1) with p' = p >> 30. The
    high word of twice the product, rounded, is (p' + 1) >> 1.

    Shifts come in turn, 0 to 31, one a cycle, so that the solver sees one at a time when it looks
    for faults. A result depends on inputs of the last LATENCY cycles only, so the induction needs
    no lemmas.
    """

    WITHOUT = (2, 3)

    def claims(self, m: Module) -> None:
        dut, _, (low_low, high_high, _, _) = self.unit(m)
        started = ago(m, Const(1), Requantiser.LATENCY, "started")
        latency = Requantiser.LATENCY
        shift = Signal(5)
        m.d.sync += shift.eq(shift + 1)
        m.d.comb += [Assume(dut.low <= dut.high), Assume(dut.shift_right == shift)]
        kept = Cat(low_low.product[KEPT_FROM:], high_high.product).as_signed()
        p = ago(m, kept, latency - MULTIPLIED, "p").as_signed()
        r = Signal(5)
        m.d.comb += r.eq(shift - (latency - Requantiser.SHIFT_STAGE))
        rounding = ago(m, dut.rounding, latency - Requantiser.ROUNDING_STAGE, "rounding")
        offset, low, high = (
            ago(m, value, latency - stage, name).as_signed()
            for name, value, stage in (
                ("offset", dut.offset, Requantiser.OFFSET_STAGE),
                ("low", dut.low, Requantiser.CLAMP_STAGE),
                ("high", dut.high, Requantiser.CLAMP_STAGE),
            )
        )
        number = Signal(32)
        m.d.comb += number.eq(dut.number + dut.carry)
        number = ago(m, number, latency - Requantiser.NUMBER_LATENCY, "number")
        doubled = Signal(signed(34))
        power = Signal(32)
        single, double = Signal(signed(34)), Signal(signed(36))
        y = Signal(signed(37))
        m.d.comb += [
            power.eq(1 << r),
            doubled.eq((p + 1) >> 1),
            single.eq(((p + power) >> r) >> 1),
            double.eq(Mux(r == 0, doubled, (doubled + power[1:] - (doubled < 0)) >> r)),
            y.eq(Mux(rounding == Rounding.SINGLE, single, double)),
            Assert(implies(started, dut.result == clipped(y + offset, low, high))),
            Assert(implies(started, number == y[:32])),
        ]


class WideRoundingHarness(RoundingHarness):
    """A proof harness for the rounding of a requantiser for int16."""

    BITS = 16


STAGES = Requantiser.LATENCY + 1
"""Cycles until the requantiser's first result has come out."""
CASES = Requantiser.LATENCY + 32 + 1
"""Cycles until the requantiser's results for all 32 shifts have come out."""
ROUNDING_FAULTS = (
    Fault(unit="requantiser", old="& ~longer[k]", new="& ~longer[k - 1]"),
    Fault(
        unit="requantiser",
        old="first & any_other, first | all_others",
        new="first & any_other, first & all_others",
    ),
    Fault(unit="requantiser", old="m.If(room_above < 0)", new="m.If(room_above < -1)"),
    Fault(
        unit="requantiser", old="number[1 + self._bits : kept]", new="number[self._bits : kept - 1]"
    ),
)
PROOFS = (
    Proof(
        unit="sums_to",
        claim="it is the comparison with the sum",
        harness=SumsToHarness,
        depth=1,
        faults=(Fault(unit="sums_to", old="(a | b) & ~total", new="(a ^ b) | total"),),
        fault_depth=1,
    ),
    Proof(
        unit="requantiser",
        claim="the right factors, saturated, into the multipliers; their sum to the rounding",
        harness=FactorsHarness,
        depth=STAGES,
        faults=(
            Fault(unit="requantiser", old="(biased[30 - n] ^", new="(biased[31 - n] ^"),
            Fault(
                unit="requantiser", old="mixed.eq(first + second)", new="mixed.eq(first ^ second)"
            ),
            Fault(
                unit="requantiser", old="self.element << ELEMENT", new="self.element << 1 + ELEMENT"
            ),
        ),
        fault_depth=STAGES,
    ),
    Proof(
        unit="requantiser",
        claim="the same for int16, with a multiplier that is lent out in between",
        harness=LendingFactorsHarness,
        depth=STAGES,
        faults=(
            Fault(
                unit="requantiser",
                old="shared.b.eq(Mux(self.borrow, self.second, b))",
                new="shared.b.eq(b)",
            ),
        ),
        fault_depth=STAGES,
    ),
    Proof(
        unit="requantiser",
        claim="int8: shift, both roundings, offset and clamp as the formula, for every product",
        harness=RoundingHarness,
        depth=STAGES,
        faults=ROUNDING_FAULTS,
        fault_depth=CASES,
        quick=False,
    ),
    Proof(
        unit="requantiser",
        claim="int16: the same",
        harness=WideRoundingHarness,
        depth=STAGES,
        faults=ROUNDING_FAULTS[:1],
        fault_depth=CASES,
        quick=False,
    ),
)
