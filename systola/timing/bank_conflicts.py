# SPDX-License-Identifier: Apache-2.0
"""A model of reads by the activation unit and the matrix unit from the same banks of the buffer.

If both units want the same bank, the activation unit waits. For example, a convolution follows the
instruction that makes its feature map. The convolution reads each line soon after the write, while
the activation unit already reads for a later line. The distance between the two lines is fixed. So
the two units want the same bank for nearly all results of a layer, or for none. Each conflict costs
a cycle. Only a walk through all reads shows if there are conflicts.

In the same way, writes of the host reader wait for writes of the activation unit. In this file the
present instruction is the instruction of the activation unit that is being estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import DEPTHWISE_TAPS
from systola.timing.gates import Gates
from systola.timing.regions import Times

SEARCHED = 256
"""Number of lines that `yielding_writes` searches at a time for a conflict."""
HORIZON = 2 * DEPTHWISE_TAPS
"""Number of cycles for which the matrix unit's reads are known ahead of a vector's first read.

No vector takes longer, even with some waits.
"""


@dataclass(frozen=True)
class ComingReads:
    """Successive reads of one instruction of the matrix unit, which have not been made yet.

    The unit reads a line in each cycle, or waits until the line is ready.
    """

    lines: NDArray[np.int64]
    """Line read in each cycle; negative for a cycle without a read."""
    ready: Times
    """First cycle in which instructions before the present one allow each line to be read."""
    behind_first: bool = False
    """True if lines below the present instruction's results are read only after its first result.

    The reason is in timing/runs.py. False if these lines wait for no result.
    """


@dataclass(frozen=True)
class OtherReads:
    """The lines that the matrix unit reads during the present instruction."""

    past: dict[float, int]
    """Line read in each cycle (the key) for instructions issued before the present one."""
    coming: Iterator[ComingReads]
    """Reads for instructions that are issued after the present one."""
    start: float
    """First cycle in which the reads in `coming` can begin."""


@dataclass(frozen=True)
class Reader:
    """The reads and writes of an instruction of the activation unit."""

    lines: NDArray[np.int64]
    """Line that each step reads, [vector][step]; negative for a step without a read."""
    before: Times
    """Cycles without a read before the first line of each vector."""
    needed: Times
    """First cycle in which the last line of each vector can be read."""
    start: float
    target: int
    """Line of the first result."""
    target_lines: int
    """Number of lines of one result."""
    latency: int
    """Cycles from the last read of a vector to the write of its first result line."""
    turns: int
    """Cycles of a step.

    A line can be read in any cycle of its step. If all of them conflict, the read waits for a whole
    step.
    """
    paired: bool = False
    """True if each step also reads the line before, from the bank before."""
    gates: Gates | None = None
    """Model of the gate lanes, in which each vector needs a slot; None if vectors need no slot."""


def yielding_times(reader: Reader, other: OtherReads, banks: int) -> Times:
    """Return the cycle of each vector's last read, if the reads in `other` go first."""
    count, reads = reader.lines.shape
    # A pair keeps two neighbouring banks busy, so both count as one.
    width = 1 + reader.paired
    own = np.where(reader.lines >= 0, reader.lines % banks // width, -1).tolist()
    needed: list[float] = np.ceil(reader.needed - reader.turns * (reads - 1)).tolist()
    before: list[float] = reader.before.tolist()
    taken = {time: line % banks // width for time, line in other.past.items()}
    bank_at = taken.get
    lines: list[int] = []
    producer: list[int] = []
    ready: list[float] = []
    # Plain lists and local names: this loop takes most of the time of an estimate.
    times: list[float] = []
    turns, behind = reader.turns, reader.latency + 1
    place, free = 0, other.start
    time: float = reader.start
    for vector in range(count):
        time += before[vector]
        if needed[vector] > time:
            time = needed[vector]
        while free <= time + HORIZON:
            if place == len(lines):
                chunk = next(other.coming, None)
                if chunk is None:
                    break
                made_by = _producers(reader, chunk, producer[-1] if producer else -1)
                if made_by[-1] < 0:
                    reading = read_times(chunk, free)
                    free = float(reading[-1]) + 1
                    some = chunk.lines >= 0
                    other_banks = (chunk.lines[some] % banks // width).tolist()
                    taken.update(zip(reading[some].tolist(), other_banks, strict=True))
                    continue
                producer += made_by
                lines += chunk.lines.tolist()
                ready += chunk.ready.tolist()
            made = producer[place]
            if made >= vector:
                break
            need = ready[place]
            if made >= 0 and times[made] + behind > need:
                need = times[made] + behind
            if need > free:
                free = looked_at(free, need)
            if lines[place] >= 0:
                taken[free] = lines[place] % banks // width
            free += 1
            place += 1
        for bank in own[vector]:
            if bank >= 0:
                while bank_at(time) == bank and all(
                    bank_at(time + n) == bank for n in range(1, turns)
                ):
                    time += turns
            time += turns
        if reader.gates is not None:
            bank = own[vector][-1]
            issue = reader.gates.legal(time - turns)
            while bank >= 0 and all(bank_at(issue + n) == bank for n in range(turns)):
                issue = reader.gates.legal(issue + turns)
            reader.gates.issue(issue, lines=True, alone=False)
            time = issue + turns
        times.append(time - turns)
    return np.array(times)


def read_times(chunk: ComingReads, first: float) -> Times:
    """Return the cycle in which the matrix unit reads each line, if it is free from `first` on.

    An interlock lets a waiting read go only in every other cycle, see looked_at.
    """
    steps = np.arange(len(chunk.lines))
    late = np.maximum.accumulate(chunk.ready - steps) - first
    return first + 2 * np.ceil(np.maximum(late, 0) / 2) + steps


def looked_at(first: float, needed: float) -> float:
    """Return the cycle in which an interlock lets an instruction go.

    The instruction waits from cycle `first` on, and nothing holds it up from cycle `needed` on. The
    interlock looks at it in cycle `first` and in every other cycle after cycle `first`.
    """
    return first + 2 * ceil(max(0.0, needed - first) / 2)


def _producers(reader: Reader, chunk: ComingReads, last: int) -> list[int]:
    """Return for each line of `chunk` the vector that must be written before the line is read.

    The result is the vector's number in its instruction, or -1 for none. Lines are read in order.
    So a line also waits for the vectors of all lines before it, and for vector `last`.
    """
    lines = chunk.lines
    made = (lines - reader.target) // reader.target_lines
    made[(made < 0) | (made >= len(reader.lines))] = -1
    if chunk.behind_first:
        made[(lines >= 0) & (lines < reader.target)] = 0
    made[0] = max(made[0], last)
    return np.maximum.accumulate(made).tolist()


def yielding_writes(times: Times, line: int, taken: Times, taken_line: int, banks: int) -> Times:
    """Return the cycles in which the host reader writes lines from `line` on.

    Without conflicts it writes them at `times`. The activation unit goes first: it writes a line in
    each of the cycles `taken`, from line `taken_line` on.
    """
    if times[-1] < taken[0]:
        return times
    first, last = int(taken[0]), int(taken[-1])
    # The last element is for all cycles in which the activation unit writes no line.
    bank_at = np.full(last - first + 2, -1)
    whole = taken == np.floor(taken)
    taken_banks = np.arange(taken_line, taken_line + len(taken)) % banks
    bank_at[taken[whole].astype(np.int64) - first] = taken_banks[whole]
    bank_in = bank_at.tolist()
    own = np.arange(line, line + len(times)) % banks
    result = times.copy()
    late, number = 0, int(np.searchsorted(times, first - 1, side="right"))
    while number < len(times) and times[number] + late <= last:
        here = slice(number, number + SEARCHED)
        cycles = np.ceil(times[here] + late).astype(np.int64) - first
        result[here] += late
        if (bank_at[np.clip(cycles, -1, last - first + 1)] == own[here]).any():
            more: list[int] = []
            conflicts = 0
            for cycle, bank in zip(cycles.tolist(), own[here].tolist(), strict=True):
                while 0 <= cycle + conflicts < len(bank_in) and bank_in[cycle + conflicts] == bank:
                    conflicts += 1
                more.append(conflicts)
            result[here] += more
            late += conflicts
        number += SEARCHED
    result[number:] += late
    return result
