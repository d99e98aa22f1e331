# SPDX-License-Identifier: Apache-2.0
"""The record of a walk through a program, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LIMITING = 0.5
"""Least share of a layer's cycles in which a unit must be busy to be the layer's limit."""
WAITING = "waiting"
"""Name of a layer's limit if no unit is busy enough.

In such a layer units wait for each other, for memory, or for instructions.
"""


class Unit(StrEnum):
    """The units of the timing model."""

    ARRAY = "array"
    WEIGHTS = "weights"
    ACTIVATION = "activation"
    HOST_READ = "host read"
    HOST_WRITE = "host write"


UNITS = tuple(Unit)


@dataclass(frozen=True)
class Traffic:
    """The bytes moved over the ports."""

    host_in: float = 0
    """Bytes from host memory for data: inputs, parameters, tables, constants."""
    host_out: float = 0
    weights: float = 0
    """Bytes of the tiles that were consumed, even if an earlier layer's instructions fetched them.
    """


@dataclass(frozen=True)
class TagEstimate:
    """An estimate of a layer: the work up to a Debug_Tag, summed over all its executions."""

    tag: int
    passes: int
    cycles: float
    """Cycles from the tag before to this tag, summed over all executions."""
    limit: str
    """Busiest unit in these cycles; WAITING if no unit is busy for a share of LIMITING or more."""
    traffic: Traffic


@dataclass(frozen=True)
class Estimate:
    """An estimate of a program's cycles."""

    cycles: int
    """Cycles from START to DONE."""
    tags: tuple[TagEstimate, ...]
    """Estimates of the layers, in rising order of the numbers of their tags."""
    rest: float
    """Cycles of the program that are in none of the `tags`.

    These cycles are the extra time of the first execution of the first tag, and the time after
    the last tag.
    """
    busy: dict[Unit, float]
    """Number of cycles in which each unit is busy."""
    traffic: Traffic


@dataclass
class _Interval:
    """The time from one Debug_Tag to the next; `moved` has the fields of Traffic as an array."""

    tag: int
    begin: float
    end: float
    moved: NDArray[np.float64]
    passes: int = 1


@dataclass(frozen=True)
class Mark:
    """A mark of a moment of a Record: the lengths of its lists, and its sums at that moment."""

    intervals: int
    untagged: NDArray[np.float64]
    totals: NDArray[np.float64]
    work: dict[Unit, int]
    """Number of instructions of each unit up to the mark."""


@dataclass(frozen=True)
class Part:
    """A piece of a Record after a mark, with times relative to the cycle of the mark."""

    tags: tuple[tuple[int, float, NDArray[np.float64]], ...]
    """For each tag: its number, its time, and the traffic since the tag before."""
    untagged: NDArray[np.float64]
    """Traffic after the last tag, or all traffic of the piece if it has no tag."""
    totals: NDArray[np.float64]
    work: dict[Unit, tuple[list[float], list[float]]]
    """Starts and ends of the instructions of each unit, and their busy cycles."""


@dataclass
class Record:
    """A record that the walk through a program fills, in the order of the program."""

    _intervals: list[_Interval] = field(default_factory=list[_Interval])
    _begun: float = 0.0
    _untagged: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    _totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3 + len(Unit)))
    """Sums of the traffic in bytes (three, as in Traffic), then busy cycles of each Unit."""
    _work: dict[Unit, _Busy] = field(default_factory=lambda: {unit: _Busy() for unit in Unit})

    def work(self, unit: Unit, begin: float, end: float, busy: float) -> None:
        """Note that `unit` works from cycle `begin` to `end`, and is busy for `busy` cycles."""
        self._work[unit].add(begin, end, busy)
        self._totals[3 + UNITS.index(unit)] += busy

    def move(self, *, host_in: float = 0, host_out: float = 0, weights: float = 0) -> None:
        """Note bytes that are moved over the ports."""
        moved = np.array([host_in, host_out, weights])
        self._untagged += moved
        self._totals[:3] += moved

    def tag(self, number: int, end: float) -> None:
        """Note that all work before the tag with number `number` is complete in cycle `end`."""
        self._intervals.append(_Interval(number, self._begun, end, self._untagged))
        self._untagged = np.zeros(3)
        self._begun = end

    def mark(self) -> Mark:
        """Return a mark of the present end of the record."""
        work = {unit: len(busy.cycles) for unit, busy in self._work.items()}
        return Mark(len(self._intervals), self._untagged.copy(), self._totals.copy(), work)

    def since(self, mark: Mark, begun: float) -> Part:
        """Return the piece of the record after `mark`, with times relative to cycle `begun`.

        The piece must not contain a loop of the program.
        """
        intervals = self._intervals[mark.intervals :]
        tags = [(each.tag, each.end - begun, each.moved) for each in intervals]
        untagged = self._untagged
        if tags:
            number, end, moved = tags[0]
            tags[0] = number, end, moved - mark.untagged
        else:
            untagged = untagged - mark.untagged
        work = {unit: busy.since(mark.work[unit], begun) for unit, busy in self._work.items()}
        return Part(tuple(tags), untagged.copy(), self._totals - mark.totals, work)

    def add(self, part: Part, begun: float) -> None:
        """Record the events of `part`, an earlier piece, again from cycle `begun` on."""
        for number, end, moved in part.tags:
            self._untagged += moved
            self.tag(number, begun + end)
        self._untagged += part.untagged
        self._totals += part.totals
        for unit, (times, cycles) in part.work.items():
            self._work[unit].extend([begun + time for time in times], cycles)

    def repeat(self, since: Mark, count: int, cycles: float) -> None:
        """Count the work after the mark `since` another `count` times, in `cycles` more cycles."""
        tagged = self._intervals[since.intervals :]
        for interval in tagged:
            interval.passes *= 1 + count
        if tagged:
            self._begun += cycles
        else:
            self._untagged += count * (self._untagged - since.untagged)
        self._totals += count * (self._totals - since.totals)

    def result(self, cycles: int) -> Estimate:
        """Return the estimate of a program that reaches DONE in cycle `cycles`."""
        tags: dict[int, list[_Interval]] = {}
        for interval in self._intervals:
            tags.setdefault(interval.tag, []).append(interval)
        results = tuple(self._tag_estimate(tag, tags[tag]) for tag in sorted(tags))
        return Estimate(
            cycles,
            results,
            cycles - sum(result.cycles for result in results),
            dict(zip(Unit, self._totals[3:].tolist(), strict=True)),
            Traffic(*self._totals[:3].tolist()),
        )

    def _tag_estimate(self, tag: int, intervals: list[_Interval]) -> TagEstimate:
        passes = sum(interval.passes for interval in intervals)
        moved = sum((i.moved * i.passes for i in intervals), np.zeros(3))
        typical = intervals
        if intervals[0] is self._intervals[0] and len(intervals) > 1:
            typical = intervals[1:]  # the first interval comes after work that is done only once
        cycles = sum((i.end - i.begin) * i.passes for i in typical)
        cycles *= passes / sum(i.passes for i in typical)
        length = sum(i.end - i.begin for i in typical) or 1.0
        limits = np.array([(i.begin, i.end) for i in typical])
        shares = {unit: work.between(limits) / length for unit, work in self._work.items()}
        busiest = max(shares, key=lambda unit: shares[unit])
        limit = busiest if shares[busiest] >= LIMITING else WAITING
        return TagEstimate(tag, passes, cycles, limit, Traffic(*moved.tolist()))


class _Busy:
    """A record of the cycles in which a unit is busy, one instruction after another."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """Start and end of each instruction, in cycles."""
        self.cycles: list[float] = []
        """Busy cycles of each instruction."""

    def add(self, begin: float, end: float, cycles: float) -> None:
        self.extend((begin, end + 1), (cycles,))

    def extend(self, times: Iterable[float], cycles: Iterable[float]) -> None:
        self.times += times
        self.cycles += cycles

    def since(self, first: int, begun: float) -> tuple[list[float], list[float]]:
        """Return the times and the busy cycles of the instructions from number `first` on.

        The times are relative to cycle `begun`.
        """
        return [time - begun for time in self.times[2 * first :]], self.cycles[first:]

    def between(self, limits: NDArray[np.float64]) -> float:
        """Return the sum of the busy cycles in all intervals `limits`, pairs of start and end."""
        times, cycles = self._course
        low, high = np.interp(limits, times, cycles).T
        return float((high - low).sum())

    @cached_property
    def _course(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times in rising order, and the sum of busy cycles up to each time."""
        times = np.maximum.accumulate([0.0, *self.times])
        cycles = np.zeros(len(times))
        cycles[2::2] = self.cycles
        return times, np.cumsum(cycles)
