# SPDX-License-Identifier: Apache-2.0
"""The microprogram of the functions SIGMOID and TANH, for all lanes at once.

Source of the arithmetic: gemmlowp, fixedpoint/fixedpoint.h, `logistic` and `tanh` of a
FixedPoint<int16_t, n>. A product of two int16 there is (a * b + 2^14) >> 15; the case that
saturates, both of them -32768, does not occur here, and of its sums only those can leave int16
that reach 32768.
"""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import TANH_INTEGER_BITS
from systola.hdl.gate_lane import (
    ALWAYS,
    FACTORS,
    NEGATIVE,
    ZERO,
    First,
    GateControl,
    Second,
)

SIGMOID_INTEGER_BITS = 3

MINUS_ONE = -(1 << 15)
ONE_HALF = 1 << 14
ONE_QUARTER = 1 << 13
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


def _multiplied(*, factor: int | None = None, **row: Any) -> list[Row]:
    """Two cycles: the operands are multiplied, meanwhile `factor` replaces the second, and then
    the value is formed and goes where `row` says."""
    replace = {} if factor is None else {"second": Second.CONSTANT, "constant": factor}
    return [replace, {"condition": ALWAYS, **row}]


def microprogram(*, tanh: bool) -> list[Row]:
    """What the lanes do from the cycle after the start on."""
    value, spare, argument = First.VALUE, First.SPARE, First.ARGUMENT
    rows: list[Row] = [{}] * (TANH_INTEGER_BITS + 1)  # the argument is shifted into place
    rows += [{"first": argument, "second": Second.ARGUMENT, "condition": ALWAYS}]

    # exp(x - 1/8) = c + c * (x + ((x^4 / 4 + x^3) / 3 + x^2) / 2), -1/8 <= x < 1/8.
    rows += _multiplied(first=value, second=Second.VALUE, keep=1)  # x^2
    rows += _multiplied(factor=ONE_QUARTER, first=value)  # x^4
    rows += _multiplied(save=1, first=spare, second=Second.ARGUMENT)  # x^4 / 4
    rows += _multiplied(factor=ONE_THIRD, from_saved=1, first=value)  # + x^2 * x
    rows += _multiplied(factor=MINUS_ONE, save=1, first=spare)  # / 3
    rows += _multiplied(factor=ONE_HALF, from_saved=1, negate=1, first=value)  # + x^2
    rows += _multiplied(factor=MINUS_ONE, save=1, first=argument)  # / 2
    rows += _multiplied(factor=EXP_OF_EIGHTH, from_saved=1, negate=1, first=value)  # + x
    rows += _multiplied(factor=EXPONENTIALS[0], constant=EXP_OF_EIGHTH, save=1, first=value)

    # Times exp(-2^e) for each 2^e that the argument lies below that interval.
    for index in range(FACTORS):
        factor = EXPONENTIALS[index + 1] if index + 1 < FACTORS else -ONE_HALF
        rows += _multiplied(factor=factor, save=1, first=value, condition=index)

    # d = (1 + e) / 2, rounded down where rounding half up of the negative does it; then 1 / d.
    rows += _multiplied(factor=START_SLOPE, constant=ONE_HALF, negate=1, first=value, keep=1)
    rows += _multiplied(constant=START_OFFSET, save=1, first=spare, second=Second.VALUE)
    for iteration in range(ITERATIONS):
        rows += _multiplied(constant=ONE, negate=1, first=value)  # 1 - d * y
        improved = {"from_saved": 1, "quadruple": 1, "save": 1}  # y + y * (1 - d * y)
        if iteration + 1 < ITERATIONS:
            rows += _multiplied(**improved, first=spare, second=Second.VALUE)
        else:
            rows += _multiplied(factor=MINUS_ONE, **improved, first=value)

    # 1/d / 2 = 1 / (1 + e), or 1/d - 1 = (1 - e) / (1 + e), now with 15 fractional bits.
    if tanh:
        scaled = {"constant": MINUS_ONE, "negate": 1, "quadruple": 1}
    else:
        scaled = {"from_saved": 1, "negate": 1}
    rows += _multiplied(**scaled, save=1, first=value)
    # tanh(-x) = -tanh(x), sigmoid(-x) = 1 - sigmoid(x); the argument 0 has a result of its own.
    opposite, middle = (0, 0) if tanh else (HIGHEST, ONE_HALF)
    rows += _multiplied(factor=0, constant=opposite, save=1, condition=NEGATIVE)
    rows += _multiplied(constant=middle, save=1, condition=ZERO)
    return rows


class GateSequencer(wiring.Component):
    """Tells all GateLanes what to do for one vector.

    `start` takes a vector, `tanh` and, for it, `integer_bits` (0 to TANH_INTEGER_BITS) belong to
    it. The results are there LATENCY cycles later, when the next start may come: `busy` is up in
    between, from the cycle after `start` on.
    """

    LATENCY = 1 + len(microprogram(tanh=False))

    start: In(1)
    tanh: In(1)
    integer_bits: In(3)
    control: Out(GateControl())
    busy: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = GateControl()
        programs = {name: microprogram(tanh=name == "tanh") for name in ("sigmoid", "tanh")}

        index = Signal(range(len(programs["tanh"])))
        is_tanh = Signal(reset_less=True)
        active = Signal()
        row = Signal(layout)
        m.d.comb += active.eq(self.start | (index != 0))
        with m.Switch(index):
            pairs = zip(programs["sigmoid"], programs["tanh"], strict=True)
            for number, (sigmoid, tanh) in enumerate(pairs):
                with m.Case(number):
                    words = [layout.const(fields).as_value() for fields in (sigmoid, tanh)]
                    m.d.comb += row.as_value().eq(Mux(is_tanh, words[1], words[0]))

        # The rows come out of registers, for the sake of the clock.
        current = Signal(layout)
        m.d.sync += [
            self.busy.eq(active),
            current.eq(Mux(active, row.as_value(), 0)),
        ]
        with m.If(active):
            m.d.sync += index.eq(Mux(index == len(programs["tanh"]) - 1, 0, index + 1))

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
            self.control.eq(current),
            self.control.load.eq(self.start),
            self.control.shift.eq(shifts != 0),
        ]
        return m
