# SPDX-License-Identifier: Apache-2.0
"""The control of all gate lanes at once, for some vectors one after the other."""

from collections.abc import Iterable
from math import gcd
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import INVERSE_ROOT, TANH_INTEGER_BITS
from systola.hdl.activation.gate_lane import (
    HIGHEST,
    FactorControl,
    GateControl,
    SumControl,
    TermControl,
    slots,
    sum_steps,
)
from systola.hdl.activation.gate_program import (
    EXP_ROWS,
    INVERSE,
    LAST_PRODUCT,
    PROGRAMS,
    ROWS,
    SQUARE_ROW,
)
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.parts.turns import registers_in_turn

SIGMOID_INTEGER_BITS = 3
PARTS = {"factors": FactorControl(), "terms": TermControl(), "sum": SumControl()}
"""The parts of GateControl that rows have, each at its own time."""
PASSED_ON = 3
"""Steps from the place of a vector to its control: rows, the choice of a row, control."""
TAKING_ROW = 4
"""With the sum of this row the argument becomes conditions, for the factors to come."""
WAITING = Requantiser.LATENCY - Requantiser.MULTIPLIER_STAGE
"""Cycles from the products of a vector in the requantiser to its argument."""


def lead(turns: int) -> int:
    """Return the steps from the argument to the first row.

    The argument moves into place in the meantime. Products of the gates and of the requantiser are
    a multiple of `slots` steps apart, so that they take the same place among vectors.
    """
    steps = TANH_INTEGER_BITS + 3
    while (WAITING + turns * steps) % (turns * slots(turns)):
        steps += 1
    return steps


def gate_spacing(turns: int) -> int:
    """Return the steps from a vector with SIGMOID or TANH to the next one, to which `slots` times
    any number may be added. Of `slots` vectors no two multiply at a time then. The first vector has
    made its products when the requantiser takes its place for a later vector."""
    places = slots(turns)
    spacing = -(-(WAITING // turns + lead(turns)) // places) + LAST_PRODUCT + 1
    while gcd(spacing, places) > 1:
        spacing += 1
    return spacing


def gates_alone(turns: int) -> int:
    """Return the steps from a vector with SIGMOID or TANH to one without: all products of its gates
    are made, and its lines are written."""
    products = WAITING // turns + lead(turns) + slots(turns) * LAST_PRODUCT + 1
    return max(products, GateSequencer.latency(turns) + 2)


class GateSequencer(wiring.Component):
    """Controls all GateLanes, for each vector.

    `start` takes a vector, and the argument comes in the next cycle. `tanh` or `exp` and, for them,
    `integer_bits` (0 to TANH_INTEGER_BITS) belong to it. EXP is the first part of SIGMOID, and the
    last row of SIGMOID sets the result of EXP for the argument 0, too. The results are there
    `latency` steps after the argument, for a step; `finishes` comes a cycle before. The next start
    may come `gate_spacing` steps after a start, or a multiple of `slots` more, or any number from
    `gates_alone` on.
    With `training`, EXP of RECIPROCAL or INVERSE_ROOT integer bits is 1/x or 1/sqrt(x), and no
    other vector is in the lanes at the time.
    `following` is the control of the lanes in the next cycle, for registers near them. A step is a
    cycle; for `turns` the caller makes it longer.
    """

    def __init__(self, *, training: bool, turns: int = 1) -> None:
        self._training = training
        self._turns = turns
        super().__init__(
            {
                "start": In(1),
                "tanh": In(1),
                "exp": In(1),
                "integer_bits": In(3),
                "following": Out(GateControl()),
                "finishes": Out(1),
            }
        )

    @staticmethod
    def latency(turns: int) -> int:
        """Return the steps from the argument to the results."""
        return lead(turns) + slots(turns) * ROWS

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turns, layout = self._turns, GateControl()
        places = slots(turns)
        # Steps from the first place to the places of the first row, for each part of control.
        factors = lead(turns) - PASSED_ON
        sums = factors + sum_steps(turns)
        times = {"factors": factors, "terms": sums - 1, "sum": sums}

        # A bit for each vector walks by all rows, and collects them in all programs. Then comes the
        # choice of a program, and a register for the users.
        place = Signal(self.latency(turns))
        m.d.sync += place.eq(Cat(self.start, place))
        m.d.comb += self.finishes.eq(place[-1])

        def passed(part: str, numbers: Iterable[int], name: str) -> Signal:
            """Whether the next step has `part` of one of these rows."""
            at = Signal(name=name)
            m.d.sync += at.eq(Cat(place[times[part] + places * number] for number in numbers).any())
            return at

        def kept(value: Value, name: str) -> dict[str, Signal]:
            """Return `value` of the vector that starts, delayed for each part of its control."""
            ring = registers_in_turn(m, unsigned(1), turns=places, name=name)
            with m.If(self.start):
                m.d.sync += ring[0].eq(value)
            return {part: ring[(time + 1) % places] for part, time in times.items()}

        row = Signal(layout)
        is_tanh, is_exp = kept(self.tanh, "is_tanh"), kept(self.exp, "is_exp")
        programs = PROGRAMS | ({"inverse": INVERSE} if self._training else {})
        rows: dict[str, Any] = {}
        for name, program in programs.items():
            rows[name] = Signal(layout, name=f"row_of_{name}")
            for part, fields in PARTS.items():
                words = [
                    fields.const({k: v for k, v in each.items() if k in fields.members}).as_bits()
                    for each in program
                ]
                for bit, target in enumerate(rows[name][part].as_value()):
                    numbers = [number for number, word in enumerate(words) if word >> bit & 1]
                    m.d.comb += target.eq(passed(part, numbers, f"{name}_{part}_{bit}"))
        for part in times:
            m.d.sync += row[part].eq(Mux(is_tanh[part], rows["tanh"][part], rows["sigmoid"][part]))
        past_exp = passed("terms", range(EXP_ROWS, ROWS - 1), "past_exp")
        with m.If(is_exp["terms"] & past_exp):
            m.d.sync += row.terms.update.eq(0)
        with m.If(is_exp["sum"] & passed("sum", [ROWS - 1], "at_zero")):
            m.d.sync += row.sum.offset.eq(HIGHEST)

        # tanh(x) is computed from exp(2x), so its argument is shifted by one bit more.
        shifts = Signal(range(TANH_INTEGER_BITS + 2))
        with m.If(self.start):
            m.d.sync += shifts.eq(
                Mux(
                    self.tanh | self.exp,
                    self.integer_bits + self.tanh,
                    SIGMOID_INTEGER_BITS,
                )
            )
        with m.Elif(shifts != 0):
            m.d.sync += shifts.eq(shifts - 1)
        # All vectors have the conditions of the factors in one register, and 1/x the whole time.
        taken = passed("sum", [TAKING_ROW], "taken")
        m.d.sync += row.take.eq(taken)
        if self._training:
            inverts = kept(self.exp & (self.integer_bits > TANH_INTEGER_BITS), "inverts")
            is_root = kept(self.integer_bits == INVERSE_ROOT, "is_root")
            with m.If(self.start & self.exp & (self.integer_bits > TANH_INTEGER_BITS)):
                m.d.sync += shifts.eq(0)
            m.d.sync += row.take.eq(Mux(inverts["sum"], passed("sum", [-1], "taken_soon"), taken))
            for part in times:
                with m.If(inverts[part]):
                    m.d.sync += row[part].eq(rows["inverse"][part])
            at_square = passed("terms", [SQUARE_ROW], "at_square")
            with m.If(inverts["terms"] & at_square & is_root["terms"]):
                m.d.sync += row.terms.update.eq(0)
        m.d.comb += [
            self.following.eq(row),
            self.following.load.eq(self.start),
            self.following.shift.eq(shifts != 0),
        ]
        return m
