# SPDX-License-Identifier: Apache-2.0
"""Writes the units of an activation that is a table, called a curve.

In training the slopes of the curve are written, too, as the mask for the backward pass.
"""

from __future__ import annotations

import numpy as np

from systola.arch.isa import Function
from systola.training.curves import CURVES, scaled_up
from systola.training.moves import repeat
from systola.training.passes import drop
from systola.training.stages import Stage
from systola.training.task import Task
from systola.training.writer import NARROW, ONE, Writer, shifted


def curved(
    writer: Writer, task: Task, number: int, blocks: range, units: range, mask: range | None
) -> None:
    """Replace the int8 sums of some blocks of a stage, [block][row], by the units of its curve.

    The lines `mask`, which exist in training, get the slopes of the curve.
    """
    stage, rows = task.stages[number], len(units)
    curve, function = CURVES[stage.curve], Function.TABLE
    if mask is not None:
        table = writer.table(curve.slopes())
        writer.copy(units.start, mask.start, rows, ONE, NARROW, function, table=table)
    values = curve.values()
    table = writer.table(values)
    writer.copy(units.start, units.start, rows, ONE, NARROW, function, table=table)
    short = stage.units % writer.layout.size
    if short and values[0] and blocks.stop == writer.layout.shapes[number].units:
        _leave(writer, units[-(rows // len(blocks)) :], short)


def scale_up(writer: Writer, stage: Stage, units: range) -> None:
    """Multiply the units of a curve with the scale of Dropout, 1 / (1 - rate)."""
    scale = scaled_up(stage.curve, stage.rate)
    entry = shifted(scale.right, multiplier=scale.multiplier)
    writer.copy(units.start, units.start, len(units), entry, NARROW)


def drop_both(
    writer: Writer, task: Task, number: int, blocks: range, units: range, mask: range
) -> None:
    """Set the units that Dropout drops, and their slopes, to zero in some blocks of a stage."""
    each = len(units) // len(blocks)
    kept, random = writer.allocate(each), writer.allocate(each)
    for first, block in zip(range(0, len(units), each), blocks, strict=True):
        drop(writer, task, number, block, (kept.start, random.start), each)
        for lines in (units, mask):
            writer.times(lines.start + first, kept.start, each)
    writer.free(kept, random)


def _leave(writer: Writer, units: range, count: int) -> None:
    """Set the padding of a block, which is all units after the first `count`, to zero."""
    line = np.zeros((1, writer.layout.size), np.int8)
    line[:, :count] = 1
    given, there = writer.constant(line), writer.allocate(len(units))
    writer.copy(given.start, there.start, 1, ONE, NARROW)
    repeat(writer, there, 1)
    writer.times(units.start, there.start, len(units))
    writer.free(given, there)
