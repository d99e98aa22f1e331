# SPDX-License-Identifier: Apache-2.0
"""What the layers of a compiled network took on a machine with a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from systola.runtime.backend import Result


@dataclass
class ProgramTimes:
    """Of the runs of one program."""

    runs: int = 0
    cycles: int = 0
    """Of all runs."""
    layers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """For each tag the cycles of the passes that the traces show, each since the tag before."""

    def layer(self, tag: int) -> float | None:
        """Cycles of one pass on average; None where no trace has one."""
        passes = self.layers.get(tag)
        return sum(passes) / len(passes) if passes else None


class Measurements:
    """Collects the runs of a compiled network's programs."""

    def __init__(self) -> None:
        self.programs: dict[int, ProgramTimes] = {}
        """By the number of their stage."""

    def add(self, stage: int, result: Result) -> None:
        """A run of the program that is stage number `stage`; ignored if there was no clock."""
        if result.cycles is None:
            return
        program = self.programs.setdefault(stage, ProgramTimes())
        program.runs += 1
        program.cycles += result.cycles
        if result.missing_tags:
            return  # between two tags there may have been others
        for tag, cycles in _passes(result.tags):
            program.layers.setdefault(tag, []).append(cycles)

    def include(self, other: Measurements) -> None:
        """Takes over what others have collected of the same programs."""
        for stage, times in other.programs.items():
            program = self.programs.setdefault(stage, ProgramTimes())
            program.runs += times.runs
            program.cycles += times.cycles
            for tag, passes in times.layers.items():
                program.layers.setdefault(tag, []).extend(passes)


def _passes(tags: Sequence[tuple[int | None, int]]) -> list[tuple[int, int]]:
    """Each tag with the cycles since the one before.

    The first pass of a program is only taken where the same tag does not come again: it includes
    what is done once.
    """
    times = [(cycle, tag) for cycle, tag in tags if cycle is not None]
    passes = [(tag, end - begin) for (begin, _), (end, tag) in pairwise(times)]
    if times:
        end, first = times[0]
        if first not in {tag for tag, _ in passes}:
            passes.insert(0, (first, end))
    return passes
