# SPDX-License-Identifier: Apache-2.0
"""The unit that delays steps while vectors with functions of the gates use the multipliers of the
lanes.
"""

from contextlib import nullcontext

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing
from systola.hdl.activation.spacings import alone_after
from systola.hdl.parts.ring import stepped


class GateQueue(wiring.Component):
    """A unit that holds a step while gates of older vectors use a multiplier that the step needs.

    A vector with gates has a function of GATES, such as SIGMOID.

    | port         | meaning |
    |---|---|
    | `gate`       | the present instruction has a function of GATES |
    | `sums_lines` | the present instruction has sums of lines as vectors, not accumulator rows |
    | `alone`      | the present instruction scales its elements, or computes 1/x |
    | `issues`     | the present step issues a vector; high only in the last turn of the step |
    | `turn`       | the turn of the step, where columns take turns |
    | `hold_all`   | no step may be made |
    | `hold_issue` | no step may be made that issues a vector |

    - `hold_all` stays for `alone_after` steps after the last vector with gates. It does not hold an
      instruction with gates and the same `sums_lines` as this vector, if neither is `alone`.
    - `hold_issue` gives each vector with gates its own time slot: the vector comes `gate_spacing`
      steps after the vector with gates before, or later by a multiple of `slots`.

    Both outputs are registers. The caller makes no step for two steps after `issues` with `gate`.
    """

    def __init__(self, *, turns: int):
        self._turns = turns
        super().__init__(
            {
                "gate": In(1),
                "sums_lines": In(1),
                "alone": In(1),
                "issues": In(1),
                **({"turn": In(1)} if turns > 1 else {}),
                "hold_all": Out(1),
                "hold_issue": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turns = self._turns
        places = slots(turns)
        after_rows, after_lines = (alone_after(turns, sums_lines=lines) for lines in (False, True))
        steps_remaining = Signal(range(after_lines))  # steps remaining until `hold_all` ends
        slot_place = Signal(range(places))
        # `sums_lines` and `alone` as they were for the last vector with gates.
        lines_there = Signal()
        alone_there = Signal()
        vector_waits = Signal()
        m.d.sync += vector_waits.eq(
            ~self.gate | self.alone | alone_there | (self.sums_lines != lines_there)
        )
        # Both holds are registers, computed here for the next step.
        hold_stays = Signal()
        m.d.comb += hold_stays.eq(steps_remaining > 1)
        with m.If(self.turn) if turns > 1 else nullcontext():
            m.d.sync += [
                slot_place.eq(stepped(slot_place, places)),
                self.hold_all.eq(hold_stays & vector_waits),
                self.hold_issue.eq(hold_stays & (slot_place != (gate_spacing(turns) - 1) % places)),
            ]
            with m.If(steps_remaining != 0):
                m.d.sync += steps_remaining.eq(steps_remaining - 1)
        with m.If(self.issues & self.gate):
            m.d.sync += [steps_remaining.eq(after_rows - 1), slot_place.eq(1)]
            with m.If(self.sums_lines):
                m.d.sync += steps_remaining.eq(after_lines - 1)
            m.d.sync += [lines_there.eq(self.sums_lines), alone_there.eq(self.alone)]
        return m
