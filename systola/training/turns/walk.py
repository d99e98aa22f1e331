# SPDX-License-Identifier: Apache-2.0
"""The turns in which a core takes the samples of a batch, and the places of their inputs and
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from systola.training.layout import Layout, Spilled
from systola.training.task import Task
from systola.training.writer import Writer


def each_turn(writer: Writer, task: Task) -> Iterator[Task]:
    """Yield the task of each turn, while the layout of `writer` has the places of this turn's
    samples.
    """
    for turn in range(task.turns):
        writer.take_turn(turn)
        yield replace(task, turn=turn)


def spilled(layout: Layout) -> Spilled:
    """Return the places of the numbers that a turn leaves in host memory."""
    assert layout.spilled
    return layout.spilled


def inputs(layout: Layout, number: int) -> int:
    """Return the place in host memory of a stage's inputs, [block][sample]; the last block is for
    the bias.
    """
    return spilled(layout).units[number - 1] if number else layout.x


def result(layout: Layout, at: int) -> int:
    """Return the place in host memory of a result of the network; result 0 is the samples."""
    return spilled(layout).results[at - 1] if at else layout.x
