# SPDX-License-Identifier: Apache-2.0
"""Writes results to host memory in the form that other stages take, and copies them for a Dense.

A Dense takes rows with a block of ones after them, for its bias. A result that one Dense alone
takes has this form at once. Any other result is stored as joins and convolutions take it, and each
Dense that takes it has a copy.
"""

from __future__ import annotations

from systola.training.branches.numbers import dense_of
from systola.training.moves import flattened, ones, turned_ones
from systola.training.stages import takes, takes_state
from systola.training.task import Exponent, Task
from systola.training.turns.walk import each_turn, inputs, result
from systola.training.writer import Writer


def leave(writer: Writer, task: Task, number: int, units: range, made: Exponent) -> None:
    """Write the units of a stage for the present turn to host memory, and free their lines.

    `made`: fraction bits of the units.
    """
    dense = dense_of(task.stages, number + 1)
    if dense is not None:
        units = as_rows(writer, task, number + 1, units)
    writer.write(result(writer.layout, number + 1), units)
    writer.free(units)
    if dense is not None:
        one = writer.allocate(writer.layout.samples)
        ones(writer, one, made, zero=not task.stages[dense].use_bias)
        writer.write(result(writer.layout, number + 1) + len(units) * writer.layout.pitch, one)
        writer.free(one)


def as_rows(writer: Writer, task: Task, at: int, lines: range) -> range:
    """Return lines with a result as rows. Maps are copied, and their lines freed; rows stay where
    they are.
    """
    if not at or task.stages[at - 1].map == (1, 1):
        return lines
    shape = writer.layout.shapes[at - 1]
    rows = writer.allocate(len(lines))
    flattened(writer, lines, rows.start, shape.units, shape.left)
    writer.free(lines)
    return rows


def bring(writer: Writer, task: Task, at: int, *, rows: bool) -> range:
    """Read a result of the present turn from host memory: as it is stored, or as rows (`rows`)."""
    layout = writer.layout
    lines = writer.allocate(layout.result_lines(task.stages, at))
    writer.read(result(layout, at), lines)
    return as_rows(writer, task, at, lines) if rows else lines


def copy_for(writer: Writer, task: Task, number: int, given: Exponent) -> None:
    """Write a copy of a result as the inputs of a Dense, with ones for the bias, for all turns.

    Nothing is written if the result itself is already stored in this form.

    `given`: fraction bits of the inputs.
    """
    (at,), wide = takes(task.stages, number), takes_state(task.stages, number)
    if not number or dense_of(task.stages, at) == number:
        return
    one = writer.allocate(writer.layout.samples << wide)
    ones(writer, one, given, wide=wide, zero=not task.stages[number].use_bias)
    for _ in each_turn(writer, task):
        lines = bring(writer, task, at, rows=True)
        place = inputs(writer.layout, number)
        writer.write(place, lines)
        writer.write(place + len(lines) * writer.layout.pitch, one)
        writer.free(lines)
    writer.free(one)
    if wide:
        leave_wide_ones(writer, task, number, given)


def leave_wide_ones(writer: Writer, task: Task, number: int, given: Exponent) -> None:
    """Write a tile of int16 ones to host memory, for the bias of a Dense after an LSTM."""
    tile = writer.allocate(2 * writer.layout.size)
    turned_ones(writer, tile, given, wide=True, zero=not task.stages[number].use_bias)
    writer.write(writer.layout.wide_ones[number], tile)
    writer.free(tile)
