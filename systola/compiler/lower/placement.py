# SPDX-License-Identifier: Apache-2.0
"""The placement of lines in the unified buffer; lines that are never in use together may share a
place.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from systola.compiler.errors import CompileError
from systola.compiler.lower.feature_map import Lines


@dataclass
class Life:
    """A span of steps, `first` and `last` included, in which some lines hold a value.

    Steps are counted from 0; step -1 stands for the time before the program's first step.
    """

    lines: Lines
    first: int
    last: int
    what: str
    """Description of the lines' content, for error messages."""


class Misfit(CompileError):
    """An error that is raised if the buffer has no free place for the lines of a Life."""

    def __init__(self, life: Life, size: int) -> None:
        reason = (
            f"{life.what} of {life.lines.count} lines finds no place in the {size} lines of the "
            "unified buffer, beside what is needed at the same time"
        )
        super().__init__(reason, {life.what: reason})
        self.life = life


def place(lives: Sequence[Life], size: int) -> dict[Lines, int]:
    """Choose a place in a buffer of `size` lines for the lines of each Life.

    Returns the first buffer line of each place; the key is the Lines object. Raises Misfit if the
    lines do not fit.
    """
    in_time = sorted(lives, key=lambda life: life.first)
    if most_at_once(lives) <= size:
        places: dict[Lines, int] = {}
        by_size = sorted(lives, key=lambda life: (-life.lines.count, life.first))
        if fill(by_size, size, places) is None:
            return places
    places = {}
    failure = fill_in_time(in_time, size, places)
    if failure is not None:
        raise Misfit(failure, size)
    return places


def most_at_once(lives: Sequence[Life]) -> int:
    """Return the number of lines in use in the step with the most lines in use.

    No placement is possible in a buffer with fewer lines.
    """
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.first] = changes.get(life.first, 0) + life.lines.count
        changes[life.last + 1] = changes.get(life.last + 1, 0) - life.lines.count
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def fill_in_time(order: Sequence[Life], size: int, places: dict[Lines, int]) -> Life | None:
    """Place lines more quickly than `fill`, with `order` sorted by the lives' first steps.

    In this order, a life can only share steps with those earlier lives that have not ended. So the
    function compares places with such lives only. It adds each place's first line to `places`.
    Returns the first Life without a place, or None.
    """
    there: list[tuple[int, int, int]] = []
    """Lives that have not ended, sorted by first line: (first line, number of lines, last step)."""
    floor, end = 0, max((life.last for life in order), default=0)
    """`floor` is the number of lines, from line 0 on, that stay taken until the last step. `end` is
    the number of the last step of any life.
    """
    for life in order:
        there = [each for each in there if each[2] >= life.first]
        at = floor
        for start, count, _ in there:
            if at + life.lines.count <= start:
                break
            at = max(at, start + count)
        if at + life.lines.count > size:
            return life
        places[life.lines] = at
        if at == floor and life.last == end:
            floor += life.lines.count
        else:
            insort(there, (at, life.lines.count, life.last))
    return None


def fill(order: Sequence[Life], size: int, places: dict[Lines, int]) -> Life | None:
    """Give the lines of each Life, in `order`, the lowest place that is free during all steps of
    this Life.

    Adds each place's first line to `places`. Returns the first Life without a place, or None.
    """
    firsts = np.array([life.first for life in order])
    lasts = np.array([life.last for life in order])
    counts = np.array([life.lines.count for life in order])
    starts = np.zeros(len(order), np.int64)
    for number, life in enumerate(order):
        before = slice(number)
        meets = (firsts[before] <= life.last) & (lasts[before] >= life.first)
        rivals = np.flatnonzero(meets)
        rivals = rivals[np.argsort(starts[rivals])]
        at = 0
        for start, count in zip(starts[rivals].tolist(), counts[rivals].tolist(), strict=True):
            if at + life.lines.count <= start:
                break
            at = max(at, start + count)
        if at + life.lines.count > size:
            return life
        places[life.lines] = starts[number] = at
    return None
