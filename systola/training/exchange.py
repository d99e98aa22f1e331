# SPDX-License-Identifier: Apache-2.0
"""Writes the exchanges between the cores of a pod in a step: exponents, and sums over samples.

The whole batch has one exponent, and sums over all samples may be added in any order. So a step
leaves the same bytes on any number of cores. For one core no exchange is written.

Each core gets the sums over all samples for its share of the rows of an update. The core updates
the masters of these rows, and gives them to all other cores. Masters are int16, so they are fewer
bytes than all sums would be. Unlike sums, the lines of masters travel while the array multiplies.
Velocities and moments stay with the core that has their rows, as no other core needs them.

A core sends an exponent e as three int16 lines, as instruction Measure applies to lines. A line has
-2^k, with k = e - c limited to 0 to 15. The constant c is LEAST in the first line, LEAST + 15 in
the second, and LEAST + 30 in the third. The magnitude of -2^k has k bits. So for each c, Measure
over the lines of all cores finds the largest k. The largest e is the sum of LEAST and these three.

Exponents that were measured with 8 bits are at least -8. Exponents beyond the last line would need
fraction bits that no tensor has.
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
"""Least exponent that a core sends."""
_STEPS = 15
"""Largest k for which -2^k is an int16 number. Exponents are sent as lines of such numbers."""
_LINES = 3
"""Number of int16 lines for one exponent."""
WHOLE = Entry(multiplier=(1 << 31) - 1)
"""Parameter entry that leaves -2^15 unchanged if the shift is 0. With the multiplier HALF one bit
would be lost."""


def agree(writer: Writer, task: Task, scratch: int) -> None:
    """Raise exponent register SHIFT to the largest SHIFT of any core.

    Exponent register `scratch` is overwritten.
    """
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
        # Lines go to the right and to the left in turn, so that one direction need not wait for the
        # other.
        side = (Side.RIGHT, Side.LEFT)[number % 2]
        writer.words += all_gather(cores, lines.start, 2, side)
    writer.measure(SHIFT, value=LEAST)
    for lines in told:
        writer.measure(scratch, Source.LINES, buffer=lines.start, rows=cores, bits=0)
        writer.measure(SHIFT, first=SHIFT, second=scratch)
    writer.free(source, *told)


def add_up(writer: Writer, task: Task, row: int, rows: int) -> None:
    """Add up accumulator rows over all cores. After this each core has the sums of some of the
    rows.

    There are `rows` rows from row `row` on. `own_rows` returns the rows of a core.
    """
    if task.cores > 1:
        writer.words += reduce_scatter(task.core, task.cores, row, rows)


def own_rows(task: Task, rows: int) -> list[range]:
    """Return the rows of which this core has the sums after `add_up`, counted from the first row
    that is added up.
    """
    return [range(rows)] if task.cores == 1 else share_of_rows(task.core, task.cores, rows)


def most_own_rows(task: Task, rows: int) -> int:
    """Return the largest number of rows that a core can have after `add_up` of up to `rows`
    rows.
    """
    return min(rows, 2 * (-(-rows // 2) // task.cores + 1))


def give_to_all(writer: Writer, task: Task, lines: range) -> None:
    """Send the results of this core's rows to all other cores, and receive their results.

    `lines`: int16 numbers in pairs of lines, one pair for each row.
    """
    if task.cores > 1 and lines:
        writer.words += all_gather_rows(task.core, task.cores, lines.start, len(lines) // 2, 2)
