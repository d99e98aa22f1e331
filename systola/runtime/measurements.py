# SPDX-License-Identifier: Apache-2.0
"""Measured cycles of the layers of a compiled network, on a machine with a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from systola.runtime.backend import Result


@dataclass
class ProgramTimes:
    """A record of the cycles that all runs of one program took."""

    runs: int = 0
    cycles: int = 0
    """Cycles of all runs together."""
    layers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """For each tag of a layer, the cycles since the tag before, one item for each measurement."""

    def layer(self, tag: int) -> float | None:
        """Return the average cycles of one pass; None if no trace has one."""
        passes = self.layers.get(tag)
        return sum(passes) / len(passes) if passes else None


class Measurements:
    """A collection of the cycles of all runs of a compiled network's programs."""

    def __init__(self) -> None:
        self.programs: dict[int, ProgramTimes] = {}
        """Times of each program, by the number of its stage."""

    def add(self, stage: int, result: Result) -> None:
        """Add a run of the program of stage number `stage`; ignore a run without a clock."""
        if result.cycles is None:
            return
        program = self.programs.setdefault(stage, ProgramTimes())
        program.runs += 1
        program.cycles += result.cycles
        if result.missing_tags:
            return  # tags that were lost may lie between two tags of the trace
        for tag, cycles in _passes(result.tags):
            program.layers.setdefault(tag, []).append(cycles)

    def include(self, other: Measurements) -> None:
        """Add the runs of the same programs that `other` has collected."""
        for stage, times in other.programs.items():
            program = self.programs.setdefault(stage, ProgramTimes())
            program.runs += times.runs
            program.cycles += times.cycles
            for tag, passes in times.layers.items():
                program.layers.setdefault(tag, []).extend(passes)


def _passes(tags: Sequence[tuple[int | None, int]]) -> list[tuple[int, int]]:
    """Return each tag with the cycles since the tag before.

    The first pass of a program includes work that is done once. It is used only if its tag does not
    come again.
    """
    times = [(cycle, tag) for cycle, tag in tags if cycle is not None]
    passes = [(tag, end - begin) for (begin, _), (end, tag) in pairwise(times)]
    if times:
        end, first = times[0]
        if first not in {tag for tag, _ in passes}:
            passes.insert(0, (first, end))
    return passes
