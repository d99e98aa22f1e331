# SPDX-License-Identifier: Apache-2.0
"""The unit that controls all gate lanes, for several vectors at a time."""

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
"""Parts of GateControl, with their layouts. A row of a program sets each part in another step."""
PASSED_ON = 3
"""Steps from the choice of a program's row to its use in the lanes, one for each register between.

The registers hold the bits of the row, the control of the chosen program, and a copy near the
lanes.
"""
TAKING_ROW = 4
"""Number of the row that lets the lanes derive the conditions of the factors from the argument."""
WAITING = Requantiser.LATENCY - Requantiser.MULTIPLIER_STAGE
"""Cycles from the products of a vector in the requantiser to its argument at the gates."""


def lead(turns: int) -> int:
    """Return the steps from the argument of a vector to the first row of its program.

    In these steps the argument is shifted. Vectors share a multiplier by time slots: every `slots`
    steps the slot of a vector comes again. The number of steps is chosen so that a vector has the
    same slot in the gates as in the requantiser.
    """
    steps = TANH_INTEGER_BITS + 3
    while (WAITING + turns * steps) % (turns * slots(turns)):
        steps += 1
    return steps


def gate_spacing(turns: int) -> int:
    """Return the least number of steps between two vectors that have SIGMOID or TANH.

    The distance may be longer by any multiple of `slots`. Then no two of `slots` consecutive
    vectors multiply at the same time. A vector has made its last product before the requantiser
    needs the multiplier for a later vector with the same time slot.
    """
    places = slots(turns)
    spacing = -(-(WAITING // turns + lead(turns)) // places) + LAST_PRODUCT + 1
    while gcd(spacing, places) > 1:
        spacing += 1
    return spacing


def gates_alone(turns: int) -> int:
    """Return the steps from a vector with SIGMOID or TANH to a vector without either.

    After these steps the gates have made all products of the vector, and its lines are written.
    """
    products = WAITING // turns + lead(turns) + slots(turns) * LAST_PRODUCT + 1
    return max(products, GateSequencer.latency(turns) + 2)


class GateSequencer(wiring.Component):
    """A sequencer that runs the microprogram of each vector in all GateLanes.

    | port           | meaning |
    |---|---|
    | `start`        | a vector starts; its argument comes in the next cycle |
    | `tanh`         | with `start`: the function is TANH |
    | `exp`          | with `start`: the function is EXP; without `tanh` and `exp` it is SIGMOID |
    | `integer_bits` | with `start` of TANH or EXP: integer bits of the argument |
    | `following`    | control of the lanes in the next cycle, for registers near the lanes |
    | `finishes`     | a vector has its results in the lanes in the next cycle |

    Latency: `latency` steps from the argument to the results, which stay for one step. Throughput:
    the next `start` may come `gate_spacing` steps after a start, a multiple of `slots` later, or
    any time from `gates_alone` steps on. A step is one cycle. With `turns` the caller enables this
    unit only in the last cycle of a step.

    `integer_bits` is 0 to TANH_INTEGER_BITS. With `training`, EXP also takes RECIPROCAL and
    INVERSE_ROOT: then it is 1/x or 1/sqrt(x), and no other vector may be in the lanes.
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
        """Return the number of steps from the argument of a vector to its results."""
        return lead(turns) + slots(turns) * ROWS

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turns, layout = self._turns, GateControl()
        places = slots(turns)
        # For each part of the control: steps from the start of a vector to the first row of its
        # program.
        factors = lead(turns) - PASSED_ON
        sums = factors + sum_steps(turns)
        times = {"factors": factors, "terms": sums - 1, "sum": sums}

        # Each vector has a bit that moves through `vector_places`, step by step, past the rows of
        # all programs. At each row, the bit selects the control bits of this row in every program.
        # Then the program of the vector is chosen, and the control goes into a register.
        vector_places = Signal(self.latency(turns))
        m.d.sync += vector_places.eq(Cat(self.start, vector_places))
        m.d.comb += self.finishes.eq(vector_places[-1])

        def passed(part: str, numbers: Iterable[int], name: str) -> Signal:
            """Return a register that is high before a vector uses `part` of a row.

            `numbers` are the numbers of the rows that count.
            """
            row_comes = Signal(name=name)
            m.d.sync += row_comes.eq(
                Cat(vector_places[times[part] + places * number] for number in numbers).any()
            )
            return row_comes

        def kept(value: Value, name: str) -> dict[str, Signal]:
            """Return, for each part of the control, a bit of the vector that uses the part now.

            The bit of a vector is `value` in the cycle of its start.
            """
            ring = registers_in_turn(m, unsigned(1), turns=places, name=name)
            with m.If(self.start):
                m.d.sync += ring[0].eq(value)
            return {part: ring[(time + 1) % places] for part, time in times.items()}

        control_row = Signal(layout)
        is_tanh, is_exp = kept(self.tanh, "is_tanh"), kept(self.exp, "is_exp")
        programs = PROGRAMS | ({"inverse": INVERSE} if self._training else {})
        rows: dict[str, Any] = {}
        for name, program in programs.items():
            rows[name] = Signal(layout, name=f"control_row_of_{name}")
            for part, fields in PARTS.items():
                words = [
                    fields.const({k: v for k, v in each.items() if k in fields.members}).as_bits()
                    for each in program
                ]
                for bit, target in enumerate(rows[name][part].as_value()):
                    numbers = [number for number, word in enumerate(words) if word >> bit & 1]
                    m.d.comb += target.eq(passed(part, numbers, f"{name}_{part}_{bit}"))
        for part in times:
            m.d.sync += control_row[part].eq(
                Mux(is_tanh[part], rows["tanh"][part], rows["sigmoid"][part])
            )
        past_exp = passed("terms", range(EXP_ROWS, ROWS - 1), "past_exp")
        with m.If(is_exp["terms"] & past_exp):
            m.d.sync += control_row.terms.update.eq(0)
        with m.If(is_exp["sum"] & passed("sum", [ROWS - 1], "at_zero")):
            m.d.sync += control_row.sum.offset.eq(HIGHEST)

        # tanh(x) is computed from exp(2x), so its argument is shifted by one bit more.
        shifts_remaining = Signal(range(TANH_INTEGER_BITS + 2))
        with m.If(self.start):
            m.d.sync += shifts_remaining.eq(
                Mux(
                    self.tanh | self.exp,
                    self.integer_bits + self.tanh,
                    SIGMOID_INTEGER_BITS,
                )
            )
        with m.Elif(shifts_remaining != 0):
            m.d.sync += shifts_remaining.eq(shifts_remaining - 1)
        # All vectors share one register for the conditions of their factors. So a vector writes its
        # conditions just before the rows that use them. A vector with 1/x is alone in the lanes,
        # and writes its conditions at its start.
        factors_taken = passed("sum", [TAKING_ROW], "taken")
        m.d.sync += control_row.take.eq(factors_taken)
        if self._training:
            inverts = kept(self.exp & (self.integer_bits > TANH_INTEGER_BITS), "inverts")
            is_root = kept(self.integer_bits == INVERSE_ROOT, "is_root")
            with m.If(self.start & self.exp & (self.integer_bits > TANH_INTEGER_BITS)):
                m.d.sync += shifts_remaining.eq(0)
            m.d.sync += control_row.take.eq(
                Mux(inverts["sum"], passed("sum", [-1], "taken_soon"), factors_taken)
            )
            for part in times:
                with m.If(inverts[part]):
                    m.d.sync += control_row[part].eq(rows["inverse"][part])
            at_square = passed("terms", [SQUARE_ROW], "at_square")
            with m.If(inverts["terms"] & at_square & is_root["terms"]):
                m.d.sync += control_row.terms.update.eq(0)
        m.d.comb += [
            self.following.eq(control_row),
            self.following.load.eq(self.start),
            self.following.shift.eq(shifts_remaining != 0),
        ]
        return m
