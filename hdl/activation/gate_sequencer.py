# SPDX-License-Identifier: Apache-2.0
"""The microprograms of the functions SIGMOID, TANH and EXP, for all lanes at once.

Source of the arithmetic: gemmlowp, fixedpoint/fixedpoint.h, `logistic`, `tanh` and
`exp_on_negative_values` of a FixedPoint<int16_t, n>. A product of two int16 there is
(a * b + 2^14) >> 15; the case that saturates, both of them -32768, does not occur here, and of its
sums only those can leave int16 that reach 32768.

1/x and 1/sqrt(x), which EXP has for the last values of `table`, are one program of Newton's steps
y + y (1 - x y^2) / 2.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import INVERSE_ROOT, TANH_INTEGER_BITS
from systola.hdl.activation.gate_lane import (
    ALWAYS,
    FACTORS,
    NEGATIVE,
    PRODUCT_LATENCY,
    ZERO,
    First,
    GateControl,
    ProductTerm,
    Second,
    ValueTerm,
)

SIGMOID_INTEGER_BITS = 3

ONE_HALF = 1 << 14
HIGHEST = (1 << 15) - 1
EXP_OF_EIGHTH = 28918
"""exp(-1/8) with 15 fractional bits, as the constants below."""
ONE_THIRD = 10923
EXPONENTIALS = (25520, 19875, 12055, 4435, 600, 11, 0)
"""exp(-2^e) for e = -2 .. 4."""
START_OFFSET = 23130
"""48/17 with 13 fractional bits: 48/17 - 32/17 * d is a first guess of 1/d for 1/2 <= d <= 1."""
START_SLOPE = -15420
"""-32/17 with 13 fractional bits."""
ITERATIONS = 3
"""Of Newton and Raphson's for 1/d."""
ROOT_SLOPE = 15500
"""With 14 fractional bits: 2 - slope * x is a first guess of 1/sqrt(x) for 1/4 < x <= 1."""
ROOT_ITERATIONS = 3
_QUARTER_BITS = (0, 1)
"""Conditions: the bits of the number of whole quarters, of 0.15 fixed-point arguments."""
ONE = 1 << 13
"""1 with 13 fractional bits."""

Row = dict[str, Any]
"""Fields of GateControl that are not zero."""


EMPTY_ROWS = 2
"""Rows at the beginning of all programs in which nothing happens, at least."""


class _Steps:
    """The rows of a program, as they are put together."""

    def __init__(self, shifts: int) -> None:
        self.rows: list[Row] = [{} for _ in range(shifts)]  # the argument moves into place
        self.now = shifts
        """The row that first sees the present value."""

    def also(self, row: int, **fields: Any) -> None:
        """Adds fields to a row."""
        self.rows += [{} for _ in range(row + 1 - len(self.rows))]
        clash = self.rows[row].keys() & fields.keys()
        if clash:
            raise ValueError(f"row {row} has {clash} already")
        self.rows[row] |= fields

    def add(self, *, condition: int = ALWAYS, **fields: Any) -> None:
        """The next value, from the adder."""
        self.also(self.now, update=1, condition=condition, **fields)
        self.now += 1

    def multiply(self, **operands: Any) -> None:
        """A product for the `add` behind this one."""
        self.also(self.now, multiply=1, **operands)
        self.now += PRODUCT_LATENCY


_PRODUCT: Row = {"product": ProductTerm.ROUNDED}


def _exponential() -> _Steps:
    """From the cycle after that of the argument on to its exponential."""
    steps = _Steps(TANH_INTEGER_BITS + 1)
    multiply, add, product = steps.multiply, steps.add, _PRODUCT

    # exp(x - 1/8) = c + c * (x + ((x^4 / 4 + x^3) / 3 + x^2) / 2), -1/8 <= x < 1/8.
    multiply(first=First.ARGUMENT, second=Second.ARGUMENT)
    add(**product)
    steps.also(steps.now, save=1)  # x^2
    steps.now += 1
    steps.also(steps.now, multiply=1, first=First.ARGUMENT, second=Second.SAVED)
    steps.now += 1
    multiply(first=First.VALUE, second=Second.SAVED)
    steps.also(steps.now - 1, update=1, condition=ALWAYS, **product)  # x^3
    add(keep=1, **product)  # x^4
    add(value=ValueTerm.HALF)
    add(second=Second.SPARE, value=ValueTerm.HALF, upwards=1)
    multiply(constant=ONE_THIRD)
    add(second=Second.SAVED, **product)
    add(second=Second.ARGUMENT, value=ValueTerm.HALF, upwards=1)
    multiply(constant=EXP_OF_EIGHTH)
    add(constant=EXP_OF_EIGHTH, **product)

    # Times exp(-2^e) for each 2^e that the argument lies below that interval.
    for index in range(FACTORS):
        multiply(constant=EXPONENTIALS[index])
        add(condition=index, **product)
    return steps


def microprogram(*, tanh: bool) -> list[Row]:
    """What the lanes do from the cycle after that of the argument on."""
    steps = _exponential()
    multiply, add, product = steps.multiply, steps.add, _PRODUCT

    # d = (1 + e) / 2, rounded down; then 1 / d.
    add(constant=ONE_HALF, value=ValueTerm.HALF)
    steps.also(steps.now, keep=1)
    multiply(constant=START_SLOPE)
    add(constant=START_OFFSET, **product)
    for _ in range(ITERATIONS):
        steps.also(steps.now, save=1)
        multiply(second=Second.SPARE)
        add(constant=ONE, product=ProductTerm.NEGATED)  # 1 - d * y
        multiply(second=Second.SAVED)
        add(second=Second.SAVED, product=ProductTerm.QUADRUPLE)  # y + y * (1 - d * y)

    # 1/d / 2 = 1 / (1 + e), or 1/d - 1 = (1 - e) / (1 + e), now with 15 fractional bits.
    if tanh:
        add(constant=-2 * ONE, value=ValueTerm.DOUBLE)
    add(value=ValueTerm.DOUBLE)
    # tanh(-x) = -tanh(x), sigmoid(-x) = 1 - sigmoid(x); the argument 0 has a result of its own.
    opposite, middle = (0, 0) if tanh else (HIGHEST, ONE_HALF)
    steps.also(steps.now, save=1)
    steps.now += 1
    add(second=Second.SAVED)  # never 2^15
    add(constant=opposite, value=ValueTerm.NEGATED, condition=NEGATIVE)
    add(constant=middle, condition=ZERO)
    return steps.rows


def inverse_program() -> tuple[list[Row], int]:
    """The program of 1/x, and its row that squares 1/sqrt(x)."""
    steps = _Steps(EMPTY_ROWS)
    multiply, add, product = steps.multiply, steps.add, _PRODUCT

    # Half of -x less the centred argument: -3, -5 or -7 times 2^11 for 1, 2 or 3 whole quarters.
    # Without one or with four, for the argument 0, the results are set at the end.
    add(constant=3 << 11)
    add(constant=-5 << 11, condition=_QUARTER_BITS[1])
    add(constant=-9 << 10, value=ValueTerm.HALF, condition=_QUARTER_BITS[0])
    add(second=Second.ARGUMENT, value=ValueTerm.DOUBLE)
    steps.also(steps.now, keep=1)  # -x

    multiply(constant=ROOT_SLOPE)
    add(constant=HIGHEST, **product)
    for _ in range(ROOT_ITERATIONS):
        steps.also(steps.now, save=1)  # y
        steps.now += 1
        multiply(second=Second.SAVED)
        add(**product)
        multiply(second=Second.SPARE)
        add(constant=ONE, **product)  # e = 1 - x y^2
        add(value=ValueTerm.DOUBLE)
        multiply(second=Second.SAVED)
        add(second=Second.SAVED, **product)
    steps.also(steps.now, save=1)
    steps.now += 1
    multiply(second=Second.SAVED)
    square = steps.now
    add(**product)

    steps.also(steps.now, save=1)
    add(constant=HIGHEST)
    for condition in _QUARTER_BITS:
        add(second=Second.SAVED, condition=condition)
    add(constant=HIGHEST, condition=ZERO)
    return steps.rows, square


PROGRAMS = {name: microprogram(tanh=name == "tanh") for name in ("sigmoid", "tanh")}
INVERSE, SQUARE_ROW = inverse_program()
"""No longer than the others."""
ROWS = max(map(len, PROGRAMS.values()))
EXP_ROWS = _exponential().now
"""Rows of EXP, all of which SIGMOID has, too."""
SIGN_ROW = len(PROGRAMS["sigmoid"]) - 2
"""The row of SIGMOID in which the result takes the sign."""
LAST_PRODUCT = 1 + max(
    number for rows in PROGRAMS.values() for number, row in enumerate(rows) if row.get("multiply")
)
"""Cycles from the argument to the last operands of a product."""


class GateSequencer(wiring.Component):
    """Tells all GateLanes what to do for one vector.

    `start` takes a vector, whose argument comes in the next cycle; `tanh` or `exp` and, for them,
    `integer_bits` (0 to TANH_INTEGER_BITS) belong to it. EXP is the first part of SIGMOID, which
    sets its result for the argument 0 where that of SIGMOID is set for the sign. The results are
    there LATENCY cycles after the argument; the next start may come LATENCY cycles after this one.
    With `training`, EXP of RECIPROCAL or INVERSE_ROOT integer bits is 1/x or 1/sqrt(x).
    `following` is `control` a cycle earlier, for registers near its users.
    """

    LATENCY = 1 + ROWS

    def __init__(self, *, training: bool) -> None:
        self._training = training
        super().__init__(
            {
                "start": In(1),
                "tanh": In(1),
                "exp": In(1),
                "integer_bits": In(3),
                "control": Out(GateControl()),
                "following": Out(GateControl()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = GateControl()
        is_tanh, is_exp = Signal(reset_less=True), Signal(reset_less=True)
        # One bit walks by all rows but the first two, which are empty, and collects theirs in all
        # programs; then comes the choice, and a register for the users.
        place = Signal(ROWS - EMPTY_ROWS)
        m.d.sync += place.eq(Cat(self.start, place))
        rows: dict[str, Any] = {}
        programs = PROGRAMS | ({"inverse": INVERSE} if self._training else {})
        for name, program in programs.items():
            rows[name] = Signal(layout, name=f"row_of_{name}")
            words = [layout.const(fields).as_bits() for fields in program[EMPTY_ROWS:]]
            for bit, target in enumerate(rows[name].as_value()):
                set_in = [place[n] for n, word in enumerate(words) if word >> bit & 1]
                m.d.sync += target.eq(Cat(set_in).any())
        row = Signal(layout)
        past_exp, at_sign = Signal(), Signal()  # is the row that comes next
        with m.If(self.start):
            m.d.sync += past_exp.eq(0)
        with m.Elif(place[EXP_ROWS - EMPTY_ROWS]):
            m.d.sync += past_exp.eq(1)
        m.d.sync += [
            at_sign.eq(place[SIGN_ROW - EMPTY_ROWS]),
            row.eq(Mux(is_tanh, rows["tanh"], rows["sigmoid"])),
            self.control.eq(self.following),
        ]
        with m.If(is_exp & past_exp):
            m.d.sync += row.update.eq(at_sign)
            with m.If(at_sign):
                m.d.sync += [row.condition.eq(ZERO), row.value.eq(ValueTerm.NONE)]

        # The exponential of tanh takes twice the argument: one place more.
        shifts = Signal(range(TANH_INTEGER_BITS + 2))
        with m.If(self.start):
            m.d.sync += [
                is_tanh.eq(self.tanh),
                is_exp.eq(self.exp),
                shifts.eq(
                    Mux(
                        self.tanh | self.exp,
                        self.integer_bits + self.tanh,
                        SIGMOID_INTEGER_BITS,
                    )
                ),
            ]
        with m.Elif(shifts != 0):
            m.d.sync += shifts.eq(shifts - 1)
        if self._training:
            inverts, is_root, at_square = (Signal(reset_less=True) for _ in range(3))
            m.d.sync += at_square.eq(place[SQUARE_ROW - EMPTY_ROWS])
            with m.If(self.start):
                m.d.sync += inverts.eq(0)
                with m.If(self.exp & (self.integer_bits > TANH_INTEGER_BITS)):
                    is_last = self.integer_bits == INVERSE_ROOT
                    m.d.sync += [inverts.eq(1), is_root.eq(is_last), shifts.eq(0)]
            with m.If(inverts):
                m.d.sync += row.eq(rows["inverse"])
                with m.If(at_square & is_root):
                    m.d.sync += row.update.eq(0)
        m.d.comb += [
            self.following.eq(row),
            self.following.load.eq(self.start),
            self.following.shift.eq(shifts != 0),
        ]
        return m
