# SPDX-License-Identifier: Apache-2.0
"""What the cores of a pod tell each other in a step: exponents, and the sums of their samples.

One exponent for the whole batch, and sums over all of it, in any order: so a step leaves the same
bytes on any number of cores. Where there is one core, none of it is written.

Each core gets the sums over all samples for its share of the rows of an update, updates the masters
of these, and gives them to all others. That is less than all sums would be, as masters are int16,
and their lines, unlike sums, travel while the array multiplies.

A core tells an exponent e as int16 lines, which is what others can Measure. A line has -2^k, k =
e - c between 0 and 15: as a magnitude it has k bits, and Measure over the lines of all cores finds
the largest k. Three lines, for c = LEAST, LEAST + 15 and LEAST + 30, hold what e is above LEAST
between them, and the sum of what is found is the largest e. What was measured with 8 bits is from
-8 on; floors of exponents beyond the last line would need fraction bits that no tensor has.
"""

from __future__ import annotations

import numpy as np

from systola.arch.isa import Side, Source
from systola.compiler.collectives import (
    all_gather,
    all_gather_rows,
    reduce_scatter,
    share_of_rows,
)
from systola.training.layout import LEAST_LINES
from systola.training.task import SHIFT, Task
from systola.training.writer import WIDE, Entry, Writer

LEAST = -8
_STEPS = 15
_LINES = 3
WHOLE = Entry(multiplier=(1 << 31) - 1)
"""A scale of one, as -2^15 is concerned: HALF would lose a bit of it."""


def agree(writer: Writer, task: Task, scratch: int) -> None:
    """SHIFT becomes the largest that any core has; exponent register `scratch` is overwritten."""
    cores = task.cores
    if cores == 1:
        return
    least = np.zeros((LEAST_LINES, writer.layout.size), np.int8)
    least[1] = -128
    source = writer.constant(least)
    told = [writer.allocate(2 * cores) for _ in range(_LINES)]
    writer.measure(scratch, first=SHIFT)
    for number, lines in enumerate(told):
        writer.measure(SHIFT, third=scratch, value=LEAST + (number + 1) * _STEPS)
        writer.copy(source.start, lines.start, 1, WHOLE, WIDE, exponent=SHIFT)
        # To both sides in turn, so that one need not wait for the other.
        side = (Side.RIGHT, Side.LEFT)[number % 2]
        writer.words += all_gather(cores, lines.start, 2, side)
    writer.measure(SHIFT, value=LEAST)
    for lines in told:
        writer.measure(scratch, Source.LINES, buffer=lines.start, rows=cores, bits=0)
        writer.measure(SHIFT, first=SHIFT, second=scratch)
    writer.free(source, *told)


def add_up(writer: Writer, task: Task, row: int, rows: int) -> list[range]:
    """Adds up accumulator rows over all cores; which of the `rows` rows this core has then, for
    others have the rest."""
    if task.cores == 1:
        return [range(rows)]
    writer.words += reduce_scatter(task.core, task.cores, row, rows)
    return own_rows(task, rows)


def own_rows(task: Task, rows: int) -> list[range]:
    """The same, before."""
    return [range(rows)] if task.cores == 1 else share_of_rows(task.core, task.cores, rows)


def give_to_all(writer: Writer, task: Task, lines: range) -> None:
    """Int16 in pairs of lines, one for each row: what cores have made of their rows goes to all."""
    if task.cores > 1 and lines:
        writer.words += all_gather_rows(task.core, task.cores, lines.start, len(lines) // 2, 2)
