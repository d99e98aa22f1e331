# SPDX-License-Identifier: Apache-2.0
"""A campaign that runs the trials on mutants, each in a process that a mutant may crash."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic

from systola.verif.mutation.design import Design, M
from systola.verif.mutation.trial import Differs, Facts, TrialOn, survive

SECONDS_LIMIT = 300.0
"""Number of seconds after which a mutant counts as one that hangs the simulator."""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a mutant.

    `how` is "killed", "slower" (only the cycles differ), "survived", or UNIT of unit_tests. `by`
    names the trial that found the fault, with the difference, or the unit's tests.
    """

    number: int
    how: str
    by: str
    seconds: float


@dataclass(frozen=True)
class Course(Generic[M]):
    """A list of trials that are run on each mutant in one simulator.

    `usual` has the cycle numbers of each trial on the design without a fault.
    """

    design: Design[M]
    library: Path
    trials: Sequence[TrialOn[M]]
    usual: Sequence[Facts]

    @classmethod
    def of(cls, design: Design[M], library: Path, trials: Sequence[TrialOn[M]]) -> Course[M]:
        """Run the trials on the design without a fault, and return a Course with the cycles.

        Raises Differs if the design fails a trial.
        """
        usual, _ = survive(design, library, 0, trials, None)
        return cls(design, library, trials, usual)

    def judge(self, number: int) -> Verdict:
        """Run the trials on a mutant in this process, and return the verdict."""
        started = time.process_time()
        try:
            _, late = survive(self.design, self.library, number, self.trials, self.usual)
        except Differs as difference:
            how, by = "killed", str(difference)
        else:
            how, by = ("slower", late) if late else ("survived", "")
        return Verdict(number, how, by, round(time.process_time() - started, 2))

    def judge_all(self, numbers: Sequence[int], jobs: int) -> Iterator[Verdict]:
        """Yield the verdicts on the mutants as they come, from `jobs` processes at a time."""
        context = multiprocessing.get_context("fork")
        running: dict[Connection, tuple[BaseProcess, int, float]] = {}
        left = list(reversed(numbers))
        try:
            while left or running:
                while left and len(running) < jobs:
                    number = left.pop()
                    here, there = context.Pipe(duplex=False)
                    process = context.Process(target=self._report, args=(there, number))
                    process.start()
                    there.close()
                    running[here] = process, number, time.monotonic()
                ready = wait(list(running), timeout=10)
                for connection, (process, number, started) in list(running.items()):
                    if connection in ready:
                        yield _received(connection, number)
                    elif time.monotonic() - started > SECONDS_LIMIT:
                        process.kill()
                        yield Verdict(number, "killed", "the simulator hangs", SECONDS_LIMIT)
                    else:
                        continue
                    process.join()
                    del running[connection]
        finally:
            for process, _, _ in running.values():
                process.kill()

    def _report(self, connection: Connection, number: int) -> None:
        connection.send(self.judge(number))


def _received(connection: Connection, number: int) -> Verdict:
    try:
        verdict = connection.recv()
    except EOFError:
        # Verilator stops the process when combinational signals do not settle.
        return Verdict(number, "killed", "the simulator stops", 0.0)
    assert isinstance(verdict, Verdict)
    return verdict
