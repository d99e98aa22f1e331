# SPDX-License-Identifier: Apache-2.0
"""The moves of neighbourhoods: groups that slow paths connect, all moved by the same distance.

Comparators and the logic that they stop may lie together in the wrong place. Then each of these
groups alone is held there by the others. A neighbourhood moves as a whole towards the other cells
on its paths. It keeps the new place if the ends of its paths are less late in sum.
"""

from __future__ import annotations

import random

from systola.synth.refine.moves import Refinement
from systola.synth.refine.placement import Group

SIZES = (2, 4, 8, 16, 32, 64)
"""Largest numbers of groups in a neighbourhood, one of which is chosen at random."""
REACH = 12
"""Largest distance from the first group to the others, in columns or rows."""
LEAVE_AT_MOST = 60
"""Largest number of groups that leave to make room for a neighbourhood."""
SLOWEST = 20
"""Least number of slow groups from which neighbourhoods begin.

Neighbourhoods begin at the slowest groups: this number, or half of all slow groups if this is more.
"""
JITTER = 2
"""Largest number of columns and rows by which a distance is changed at random."""


class Neighbourhoods:
    """A search that moves the neighbourhoods of a placement."""

    def __init__(self, refinement: Refinement, *, seed: int):
        self._refinement = refinement
        self._random = random.Random(seed)

    def go_over(self, tries: int) -> int:
        """Try `tries` moves of neighbourhoods of slow paths, and return how many were kept."""
        moved = 0
        slow: list[Group] = []
        for _ in range(tries):
            if not slow:
                slow = self._refinement.slow_groups(0.0)
                if not slow:
                    break
                slow = slow[: max(SLOWEST, len(slow) // 2)]
                self._random.shuffle(slow)
            neighbourhood = self._around(slow.pop(), self._random.choice(SIZES))
            distance = self._distance(neighbourhood)
            if distance and self._shift(neighbourhood, *distance):
                moved += 1
        return moved

    def _around(self, first: Group, size: int) -> list[Group]:
        """Return `first`, and at most `size` - 1 groups near it that slow paths connect with it."""
        found = {first: None}
        queue = [first]
        while queue:
            for other in self._refinement.on_slow_paths(queue.pop(0)):
                near = max(abs(other.x - first.x), abs(other.y - first.y)) <= REACH
                if other not in found and near:
                    if len(found) == size:
                        return list(found)
                    found[other] = None
                    queue.append(other)
        return list(found)

    def _distance(self, groups: list[Group]) -> tuple[int, int] | None:
        """Return the columns and rows of a move towards the other cells on slow paths.

        Returns None if there are no such cells, or if the move would be 0.
        """
        pulls = self._refinement.pulls(groups)
        if not pulls:
            return None
        chance = self._random
        if chance.random() < 0.5:
            x, y = (sum(values) / len(pulls) for values in zip(*pulls, strict=True))
        else:
            x, y = chance.choice(pulls)
        part = chance.choice((0.25, 0.5, 0.75, 1.0))
        dx = round(x * part + chance.uniform(-JITTER, JITTER))
        dy = round(y * part + chance.uniform(-JITTER, JITTER))
        return (dx, dy) if dx or dy else None

    def _shift(self, groups: list[Group], dx: int, dy: int) -> bool:
        """Move `groups`, and other groups out of their way, if the ends of all their paths get less
        late."""
        others = self._in_the_way(groups, dx, dy)
        if others is None:
            return False
        refinement, leaving = self._refinement, [*groups, *others]
        ends = refinement.ends_of(leaving)
        before = refinement.lateness(ends, leaving)
        return refinement.exchange(
            groups, dx, dy, others, lambda: refinement.lateness(ends, leaving) < before
        )

    def _in_the_way(self, groups: list[Group], dx: int, dy: int) -> list[Group] | None:
        """Return the groups that have to leave to make room for `groups`.

        Returns None if `groups` cannot move by this distance.
        """
        cells: set[int] = set()
        for group in groups:
            found = self._refinement.placement.in_the_way(
                group, group.x + dx, group.y + dy, group.shift
            )
            if found is None:
                return None
            cells |= found
        cells.difference_update(cell for group in groups for cell in group.cells)
        others = self._refinement.movable(cells)
        return None if others is None or len(others) > LEAVE_AT_MOST else others
