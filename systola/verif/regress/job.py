# SPDX-License-Identifier: Apache-2.0
"""Jobs: parts of a regression. The programs of a job run in order on one simulated machine."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from systola.arch.assembler import disassemble
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.sim.library import Simulator
from systola.verif.coverage.record import Coverage
from systola.verif.kit.blame import last_writer
from systola.verif.kit.scoreboard import ANY_END
from systola.verif.regress.cases import Case
from systola.verif.regress.check import Pair, Totals
from systola.verif.regress.counting import CountingPair, CountingSimulator
from systola.verif.regress.disturbances import DISTURBANCES
from systola.verif.regress.shrink import fewest, with_words, words_of

CHUNK = 15
"""Largest number of programs of a job.

All programs of a job run with the same latency and stalls, one item of MEMORIES. Jobs are so short
that even a small regression uses all MEMORIES."""
MEMORIES = ((0, 0.0), (1, 0.0), (30, 0.1), (9, 0.5))
"""Latency in cycles and stall probability of the memories, which jobs use in turn."""


@dataclass(frozen=True)
class Job:
    """A job that runs `count` cases of a kind, a preset and a seed, from number `first` on."""

    kind: str
    preset: str
    seed: int
    first: int
    count: int
    counting: bool = False
    """True if the job records coverage, which takes several times as long."""

    @property
    def memory(self) -> tuple[int, float]:
        """Return latency in cycles and stall probability of the job's memories."""
        return MEMORIES[self.first // CHUNK % len(MEMORIES)]

    def case(self, index: int) -> Case:
        """Return the job's case with number `index`."""
        return Case(self.kind, self.preset, self.seed, index)


@dataclass
class Report:
    """A report of one job, or of several jobs together: totals, failures and coverage."""

    totals: Totals = field(default_factory=Totals)
    failures: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    left_out: int = 0
    """Number of programs that were not run since an earlier program of their job failed.

    A failure may leave the machine in a wrong state, so that later programs would fail, too.
    """

    def add(self, other: Report) -> None:
        """Add the report of another job to this report."""
        self.totals.add(other.totals)
        self.failures += other.failures
        self.coverage.add(other.coverage)
        self.left_out += other.left_out


def run_job(job: Job) -> Report:
    """Run the programs of a job up to the first program that fails, and return the report.

    The machine is not reset between programs.
    """
    report = Report()
    with _pair(job) as pair:
        for index in range(job.first, job.first + job.count):
            problem = _check(pair, job, index, job.case(index).image(), job.case(index).ends)
            if problem:
                report.failures.append(explain(job, index, problem))
                report.left_out = job.first + job.count - 1 - index
                break
        report.totals = pair.totals
        if isinstance(pair, CountingPair) and not report.failures:
            report.coverage = pair.coverage()
    return report


def explain(job: Job, index: int, problem: str) -> str:
    """Return a description of the failure of case `index`.

    The description has the program, shortened as far as it still fails, and a command to repeat it.
    """
    case = job.case(index)
    again = (
        f"make regress KIND={job.kind} PRESET={job.preset} SEED={job.seed} "
        f"FIRST={job.first} N={index + 1 - job.first} JOBS=1"
    )
    lines = [f"{case}: {problem}", f"repeat it: {again}"]
    image = case.image()
    if not fails(job, index, image):
        return "\n".join([*lines, "it fails behind the programs before it only"])
    kept = fewest(words_of(image), lambda words: bool(fails(job, index, with_words(image, words))))
    short = with_words(image, kept)
    with _pair(job) as pair:
        found = _check(pair, job, index, short)
        place = pair.first_difference
    lines.append(f"{len(kept)} of {len(words_of(image))} instructions are enough: {found}")
    writer = last_writer(case.config, short, place) if place is not None else None
    for number, line in enumerate(disassemble(b"".join(words_of(short))).splitlines()):
        mark = (
            "   <- writes the first byte that differs" if writer and number == writer.number else ""
        )
        lines.append(f"    {line}{mark}")
    return "\n".join([*lines, f"waveform: {again} WAVES=1"])


def fails(job: Job, index: int, image: Image) -> str | None:
    """Run a program on a new machine, with the disturbance of case `index` of the job.

    Returns a description of the difference from the golden model, or None.
    """
    with _pair(job) as pair:
        return _check(pair, job, index, image)


def _check(
    pair: Pair, job: Job, index: int, image: Image, ends: Container[Fault] = ANY_END
) -> str | None:
    """Run a case's program, or a part of the program, with the disturbance of the job's kind.

    Returns a description of the difference from the golden model, or None. The program must end in
    one of the faults `ends`; by default, any end is permitted, as for a part of a program.
    """
    disturbance = DISTURBANCES.get(job.kind)
    if disturbance is None:
        return pair.check(image, ends=ends)
    return disturbance(pair, image, random.Random(f"{job.kind} {job.seed} {index}"), ends)


def record(job: Job, index: int, waves: Path) -> tuple[str | None, Path]:
    """Run the program of case `index` on a new machine, and record a waveform in `waves`.

    Returns a description of the error or None, and the path of a save file for the waveform viewer.
    The save file has a marker at the write of the first wrong byte.
    """
    with _pair(replace(job, counting=False), waves) as pair:
        problem = _check(pair, job, index, job.case(index).image())
        place = pair.first_difference
        return problem, pair.machine.save_waves(
            pair.machine.written_at(place) if problem and place is not None else None
        )


@contextmanager
def _pair(job: Job, waves: Path | None = None) -> Iterator[Pair]:
    """Yield a Pair of a new simulated machine, with the job's memories, and a golden model."""
    latency, stall = job.memory
    config = job.case(job.first).config
    memory: dict[str, Any] = {"latency": latency, "stall": stall, "seed": job.seed % (1 << 59)}
    if job.counting:
        with CountingSimulator(config, **memory) as machine:
            yield CountingPair(machine)
    else:
        with Simulator(config, **memory, waves=waves) as machine:
            yield Pair(machine)


def jobs(
    kind: str,
    presets: Sequence[str],
    seed: int,
    first: int,
    count: int,
    *,
    counting: bool = False,
) -> list[Job]:
    """Return jobs that together run `count` programs on each preset."""
    return [
        Job(kind, preset, seed, start, min(CHUNK, first + count - start), counting)
        for start in range(first, first + count, CHUNK)
        for preset in presets
    ]
