# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of a GRU through time. All other parts are written as for an LSTM.

`systola.training.gru` has the meaning of n, z, r, q and h. dx stands for the gradient of a number
x, and x' for x (1 - x). The backward pass makes the gradients of four sums, in this order:

- of the inputs' sum for the candidate: dn = dh (1 - z) (1 - n^2),
- of the sum of z: dh (h_before - n) z',
- of the sum of r: dn q r',
- of q: dn r.

The gradient of the state before is a product of these with weights, plus dh z.
"""

from __future__ import annotations

from systola.arch.isa import Operation
from systola.training.recurrent_backward import SLOPE_BITS, RecurrentBackward, Room
from systola.training.recurrent_base import CELL_BITS
from systola.training.stages import GATES
from systola.training.task import Task
from systola.training.writer import ONE, UNIT, WIDE, Writer

_BOTH = UNIT, UNIT


class GruBackward(RecurrentBackward):
    """A writer of the backward pass of a GRU through time."""

    _kept = len(GATES)
    _added = True

    def _add_gradient(self, step: int, state: range, cell: range) -> None:
        self._read_gradient(step, cell)
        rows = self._sizes.rows
        at = (state.start, cell.start, state.start, rows, ONE, WIDE)
        self._writer.vector(Operation.ADD, *at, scales=_BOTH)

    def _slopes(self, number: int, room: Room) -> None:
        """Read the gates and states of a step from host memory, and write the slopes of the step's
        sums.

        The slopes of n and z are factors of dh, and have 15 fraction bits. The slope of r is a
        factor of dn. It has SLOPE_BITS fraction bits, as q is large.
        """
        writer, rows, layout = self._writer, self._sizes.rows, self._writer.layout
        step, places = 2 * rows, self._sizes.places
        writer.read(places.cells + (number + 1) * len(room.cells) * layout.pitch, room.cells)
        writer.read(places.hidden + number * step * layout.pitch, room.before)
        new, update, _, added = range(room.cells.start, room.cells.stop, step)
        news, updates, resets, _ = range(room.slopes.start, room.slopes.stop, step)
        before = room.before.start
        self._times(update, update, updates, 2 * rows, 15)
        at = (update, updates, updates, 2 * rows, ONE, WIDE)
        writer.vector(Operation.SUBTRACT, *at, scales=_BOTH)
        self._times(updates, before, before, rows, 15)
        self._times(updates, new, updates, rows, 15)
        at = (before, updates, updates, rows, ONE, WIDE)
        writer.vector(Operation.SUBTRACT, *at, scales=_BOTH)
        self._times(resets, added, resets, rows, CELL_BITS + 15 - SLOPE_BITS)
        self._times(new, new, news, rows, 15)
        self._below_one(news, news)
        self._below_one(update, added)
        self._times(news, added, news, rows, 15)

    def _gates(self, room: Room, state: range, cell: range, *, last: bool) -> None:
        """Write the gradients of the sums in place of the slopes, and dh z in place of dh.

        dh is the gradient of the state after the step.
        """
        rows = self._sizes.rows
        _, update, reset, _ = range(room.cells.start, room.cells.stop, 2 * rows)
        news, updates, resets, added = range(room.slopes.start, room.slopes.stop, 2 * rows)
        self._times(news, state.start, news, rows, 15, limited=True)
        self._times(updates, state.start, updates, rows, 15, limited=True)
        self._times(resets, news, resets, rows, SLOPE_BITS, limited=True)
        self._times(reset, news, added, rows, 15, limited=True)
        self._times(update, state.start, state.start, rows, 15)


def recurrent_backward(writer: Writer, task: Task, number: int) -> RecurrentBackward:
    """Return the writer of the backward pass of a stage that is an LSTM or GRU."""
    lstm = task.stages[number].lstm
    kind = GruBackward if lstm and lstm.gru else RecurrentBackward
    return kind(writer, task, number)
