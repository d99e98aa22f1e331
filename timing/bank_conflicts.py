# SPDX-License-Identifier: Apache-2.0
"""The activation unit and the matrix unit, reading from the same banks of the unified buffer.

A MatrixMultiply or Convolve that follows its producer reads a line soon after it is written, while
the activation unit reads the operands of a later one, and yields where the bank is the same. As the
distance between the two is fixed, this happens for nearly all results of a layer or for none, and
costs up to a cycle each: only counting it out tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.timing.regions import Times


@dataclass(frozen=True)
class Follower:
    """The lines that the matrix unit will read in its first pass, a vector a cycle from cycle
    `start` on; negative for a vector without one."""

    lines: NDArray[np.int64]
    start: float


@dataclass(frozen=True)
class Reader:
    """What an instruction of the activation unit does with its buffer lines."""

    lines: NDArray[np.int64]
    """Vectors x lines: what it reads for each vector in so many cycles, negative for a cycle
    without."""
    before: Times
    """Cycles before the first line of each vector."""
    needed: Times
    """For each vector the first cycle in which its last line can be read."""
    start: float
    target: int
    """Line of the first result."""
    target_lines: int
    """Lines of one result."""
    latency: int
    """From the last line read to the line written."""


def yielding_times(reader: Reader, follower: Follower, banks: int) -> Times:
    """When the last line of each vector is read."""
    count = len(reader.lines)
    own = [[line % banks if line >= 0 else -1 for line in row] for row in reader.lines.tolist()]
    needed = np.ceil(reader.needed - (reader.lines.shape[1] - 1)).tolist()
    before = reader.before.tolist()
    producers = (follower.lines - reader.target) // reader.target_lines
    producers[(producers < 0) | (producers >= count)] = -1
    # The follower takes its lines in order, so one waits for all before it.
    producer = np.maximum.accumulate(producers).tolist()
    wanted = follower.lines.tolist()

    times = np.zeros(count)
    taken: dict[float, int] = {}  # banks that the follower reads, by the cycle
    next_vector, free = 0, follower.start
    time = reader.start
    for vector in range(count):
        time = max(time + before[vector], needed[vector])
        for bank in own[vector]:
            while bank >= 0 and taken.get(time) == bank:
                time += 1
            time += 1
        times[vector] = time - 1
        written = time - 1 + reader.latency
        while next_vector < len(wanted) and producer[next_vector] <= vector:
            if producer[next_vector] == vector:
                free = max(free, written + 1)
            if wanted[next_vector] >= 0:
                taken[free] = wanted[next_vector] % banks
            free += 1
            next_vector += 1
    return times
