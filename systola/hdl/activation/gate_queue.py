# SPDX-License-Identifier: Apache-2.0
"""When a step may be made while the gates of older vectors are in the lanes."""

from contextlib import nullcontext

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing
from systola.hdl.activation.spacings import alone_after
from systola.hdl.parts.ring import stepped


class GateQueue(wiring.Component):
    """Holds up steps that would meet the gates of older vectors at a multiplier.

    The present instruction has a function of GATES (`gate`), makes sums of lines (`sums_lines`), of
    scaled elements or with 1/x (`alone`); `issues`: its step issues a vector. Where columns take
    turns, `turn` is the turn of the step, and `issues` comes with the last turn.

    `hold_all`: no step may be made for `alone_after` steps after the last vector with gates. An
    instruction with gates that takes lines, or accumulators, like the last one, need not wait,
    unless either of them is `alone`.
    `hold_issue`: no vector may be issued, as an older one has its place. A vector with gates comes
    `gate_spacing` steps after the last one, or a multiple of `slots` later. The caller makes no
    step for the first two steps after `issues` with a gate.
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
        left = Signal(range(after_lines))  # steps in which all else is held up
        place = Signal(range(places))
        lines_there, alone_there = Signal(), Signal()  # of the last gate
        waits = Signal()
        m.d.sync += waits.eq(
            ~self.gate | self.alone | alone_there | (self.sums_lines != lines_there)
        )
        # Both holds come out of registers, for the next step.
        stays = Signal()
        m.d.comb += stays.eq(left > 1)
        with m.If(self.turn) if turns > 1 else nullcontext():
            m.d.sync += [
                place.eq(stepped(place, places)),
                self.hold_all.eq(stays & waits),
                self.hold_issue.eq(stays & (place != (gate_spacing(turns) - 1) % places)),
            ]
            with m.If(left != 0):
                m.d.sync += left.eq(left - 1)
        with m.If(self.issues & self.gate):
            m.d.sync += [left.eq(after_rows - 1), place.eq(1)]
            with m.If(self.sums_lines):
                m.d.sync += left.eq(after_lines - 1)
            m.d.sync += [lines_there.eq(self.sums_lines), alone_there.eq(self.alone)]
        return m
