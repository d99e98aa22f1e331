# SPDX-License-Identifier: Apache-2.0
"""The microprogram of the functions SIGMOID and TANH, for all lanes at once.

Source of the arithmetic: gemmlowp, fixedpoint/fixedpoint.h, `logistic` and `tanh` of a
FixedPoint<int16_t, n>. A product of two int16 there is (a * b + 2^14) >> 15; the case that
saturates, both of them -32768, does not occur here, and of its sums only those can leave int16
that reach 32768.
"""

from itertools import zip_longest
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import TANH_INTEGER_BITS
from systola.hdl.gate_lane import (
    ALWAYS,
    FACTORS,
    NEGATIVE,
    PRODUCT_LATENCY,
    ZERO,
    Addend,
    Base,
    First,
    GateControl,
    Second,
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
ONE = 1 << 13
"""1 with 13 fractional bits."""

Row = dict[str, Any]
"""Fields of GateControl that are not zero."""


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


def microprogram(*, tanh: bool) -> list[Row]:
    """What the lanes do from the cycle after the start on."""
    steps = _Steps(TANH_INTEGER_BITS + 1)
    multiply, add = steps.multiply, steps.add
    product: Row = {"addend": Addend.PRODUCT}

    # exp(x - 1/8) = c + c * (x + ((x^4 / 4 + x^3) / 3 + x^2) / 2), -1/8 <= x < 1/8.
    multiply(first=First.ARGUMENT, second=Second.ARGUMENT)
    add(**product)
    steps.also(steps.now, save=1)  # x^2
    steps.now += 1
    multiply(first=First.VALUE, second=Second.SAVED)
    add(**product)  # x^4
    add(addend=Addend.HALF_DOWN)
    # x^3, so early that it comes right behind the next value.
    early = steps.now + 1 - PRODUCT_LATENCY
    steps.also(early, multiply=1, first=First.ARGUMENT, second=Second.SAVED)
    add(addend=Addend.HALF_UP)
    add(base=Base.VALUE, **product)
    multiply(constant=ONE_THIRD)
    add(base=Base.SAVED, **product)
    add(base=Base.ARGUMENT, addend=Addend.HALF_UP)
    multiply(constant=EXP_OF_EIGHTH)
    add(constant=EXP_OF_EIGHTH, **product)

    # Times exp(-2^e) for each 2^e that the argument lies below that interval.
    for index in range(FACTORS):
        multiply(constant=EXPONENTIALS[index])
        add(condition=index, **product)

    # d = (1 + e) / 2, rounded down; then 1 / d.
    add(constant=ONE_HALF, addend=Addend.HALF_DOWN)
    steps.also(steps.now, keep=1)
    multiply(constant=START_SLOPE)
    add(constant=START_OFFSET, **product)
    for _ in range(ITERATIONS):
        steps.also(steps.now, save=1)
        multiply(second=Second.SPARE)
        add(constant=ONE, negate=1, **product)  # 1 - d * y
        multiply(second=Second.SAVED)
        add(base=Base.SAVED, addend=Addend.QUADRUPLE)  # y + y * (1 - d * y)

    # 1/d / 2 = 1 / (1 + e), or 1/d - 1 = (1 - e) / (1 + e), now with 15 fractional bits.
    doublings = 1
    if tanh:
        add(constant=-ONE, addend=Addend.VALUE)
        doublings = 2
    for _ in range(doublings):
        add(base=Base.VALUE, addend=Addend.VALUE)
    # tanh(-x) = -tanh(x), sigmoid(-x) = 1 - sigmoid(x); the argument 0 has a result of its own.
    opposite, middle = (0, 0) if tanh else (HIGHEST, ONE_HALF)
    steps.also(steps.now, save=1)
    steps.now += 1
    add(base=Base.SAVED)  # never 2^15
    add(constant=opposite, addend=Addend.VALUE, negate=1, condition=NEGATIVE)
    add(constant=middle, condition=ZERO)
    return steps.rows


PROGRAMS = {name: microprogram(tanh=name == "tanh") for name in ("sigmoid", "tanh")}
ROWS = max(map(len, PROGRAMS.values()))
LAST_PRODUCT = 1 + max(
    number for rows in PROGRAMS.values() for number, row in enumerate(rows) if row.get("multiply")
)
"""Cycles from a start to the last operands of a product."""


class GateSequencer(wiring.Component):
    """Tells all GateLanes what to do for one vector.

    `start` takes a vector, `tanh` and, for it, `integer_bits` (0 to TANH_INTEGER_BITS) belong to
    it. The results are there LATENCY cycles later, when the next start may come: `busy` is up in
    between, from the cycle after `start` on. `following` is `control` a cycle earlier, but for
    `load` and `shift`, for registers near its users.
    """

    LATENCY = 1 + ROWS

    start: In(1)
    tanh: In(1)
    integer_bits: In(3)
    control: Out(GateControl())
    following: Out(GateControl())
    busy: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = GateControl()
        index = Signal(range(ROWS))
        is_tanh = Signal(reset_less=True)
        active = Signal()
        row = Signal(layout)
        following = Signal(layout)
        m.d.comb += active.eq(self.start | (index != 0))
        with m.Switch(index):
            # The row behind that of this cycle, for a register. The first two are empty.
            pairs = zip_longest(PROGRAMS["sigmoid"][1:], PROGRAMS["tanh"][1:], fillvalue={})
            for number, fields in enumerate(pairs):
                with m.Case(number):
                    sigmoid, tanh = (layout.const(word).as_value() for word in fields)
                    m.d.comb += following.as_value().eq(Mux(is_tanh, tanh, sigmoid))

        # The rows come out of registers, for the sake of the clock.
        current = Signal(layout)
        m.d.sync += [
            self.busy.eq(active),
            row.eq(following),
            current.eq(row),
        ]
        with m.If(active):
            m.d.sync += index.eq(Mux(index == ROWS - 1, 0, index + 1))

        # The exponential of tanh takes twice the argument: one place more.
        shifts = Signal(range(TANH_INTEGER_BITS + 2))
        with m.If(self.start):
            m.d.sync += [
                is_tanh.eq(self.tanh),
                shifts.eq(Mux(self.tanh, self.integer_bits + 1, SIGMOID_INTEGER_BITS)),
            ]
        with m.Elif(shifts != 0):
            m.d.sync += shifts.eq(shifts - 1)
        m.d.comb += [
            self.following.eq(row),
            self.control.eq(current),
            self.control.load.eq(self.start),
            self.control.shift.eq(shifts != 0),
        ]
        return m
