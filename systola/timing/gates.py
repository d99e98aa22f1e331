# SPDX-License-Identifier: Apache-2.0
"""A model of the distance between vectors with gates: functions that run in the gate lanes."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from systola.arch.isa import TANH_INTEGER_BITS, Function
from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing
from systola.hdl.activation.spacings import alone_after, gate_pause
from systola.timing.recent import recent

GatesState = tuple[float, bool, bool]
"""Type of the state of Gates: `_until` as a relative time, `_lines` and `_was_alone`."""


def gate_distance(reads: int, turns: int) -> int:
    """Return the least number of steps from one vector with gates to the next.

    Each vector takes `reads` steps to read.
    """
    places, apart = slots(turns), gate_spacing(turns)
    return apart + places * ceil(max(0, gate_pause(turns) + reads - apart) / places)


def inverts(operands: Mapping[str, int]) -> bool:
    """Return whether the function is 1/x or 1/sqrt(x)."""
    return operands["function"] == Function.EXP and operands["table"] > TANH_INTEGER_BITS


class Gates:
    """A model of the gate lanes that has the last vector with gates, and delays the steps after it.

    The hardware's GateQueue does the same.
    """

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._until = 0.0
        """First cycle in which the last vector with gates no longer delays a step."""
        self._lines = False
        self._was_alone = False

    def first_step(self, time: float, *, gate: bool, lines: bool, alone: bool) -> float:
        """Return the first cycle, from `time` on, in which an instruction may make its first step.

        Its vectors have a function of the gates (`gate`), sum buffer lines (`lines`), or must be
        alone in the lanes (`alone`).
        """
        alike = gate and lines == self._lines and not (alone or self._was_alone)
        return time if alike else max(time, self._until)

    def legal(self, time: float) -> float:
        """Return the first cycle, from `time` on, in which the next vector may be issued.

        The vector has the same `lines` and `alone` as the last vector that was issued.
        """
        if time >= self._until:
            return time
        turns = self._turns
        first = self._until + turns * (gate_spacing(turns) - self._alone())
        pitch = turns * slots(turns)
        return min(first + pitch * max(0, ceil((time - first) / pitch)), max(time, self._until))

    def issue(self, time: float, *, lines: bool, alone: bool) -> None:
        """Note that a vector with gates is issued in cycle `time`.

        The vector sums buffer lines (`lines`), or must be alone in the lanes (`alone`).
        """
        self._lines, self._was_alone = lines, alone
        self._until = time + self._turns * self._alone()

    def _alone(self) -> int:
        return alone_after(self._turns, sums_lines=self._lines)

    def state(self, now: float) -> GatesState:
        """Return the state with times relative to cycle `now`."""
        return recent(self._until, now), self._lines, self._was_alone

    def resume(self, state: GatesState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        until, self._lines, self._was_alone = state
        self._until = now + until
