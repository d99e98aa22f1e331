# SPDX-License-Identifier: Apache-2.0
"""Runs of the units' own tests on mutants that survive the trials of the whole design.

A unit's tests build the unit alone. There, the fault is planted in the cell that comes from the
same source line as in the whole design (systola.verif.mutation.fault_place). A test that fails has
found the fault. Tests of the faulty unit run first, and then tests of the units that contain this
unit. The run stops at the first test file with a failure, or at the first file in which all tests
have passed with the fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from systola.sim.build import content_key
from systola.verif.kit.checkout import PACKAGE, module_name
from systola.verif.mutation.campaign import Verdict
from systola.verif.mutation.design import Design, M
from systola.verif.mutation.fault_place import FaultPlace, Modules, source_file
from systola.verif.mutation.mutants import Mutant
from systola.verif.mutation.planted_unit import NO_SUCH_PLACE, asked_for, modules_of

_FOLDER = PACKAGE / "verif" / "units"
UNIT = "found in a unit"
"""Verdict on a mutant that a unit's own tests have found."""
_SLOWER = 4
"""Factor in the time limit of tests: a minute, and this many times their time without a fault.

Tests that exceed the limit count as hanging.
"""
_FAILED = 1
"""Exit status of pytest after a failed test."""
_SIGN = "TestFailure"
"""Text in the output of a failed cocotb test, but not of a failed build of the simulation."""


class UnitTestsFail(Exception):
    """An error: the tests of a unit fail without a fault; the text is their output."""


class UnitTests:
    """A runner that runs the unit tests of a design with planted faults."""

    def __init__(self, design: Design[M], seed: int):
        self._seed = seed
        with TemporaryDirectory() as folder:
            self.modules: Modules = modules_of(design.rtlil, design.top, Path(folder))
        self._seconds: dict[str, float] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    def key(self) -> str:
        """Return a hash of all unit tests, which changes if the source of any unit test changes."""
        return content_key(*sorted(file.read_text() for file in _FOLDER.rglob("*.py")))

    def judge_all(
        self, mutants: Sequence[Mutant], jobs: int, shown: Callable[[str], None]
    ) -> Iterator[tuple[int, Verdict | None]]:
        """Run the unit tests on each mutant, and yield its number and a verdict.

        The verdict is None if the mutant is not found. `jobs` mutants run at a time. The function
        `shown` gets progress messages. Raises UnitTestsFail if tests fail without a fault.
        """
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(lambda mutant: self._judge(mutant, shown), mutants)

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the test files, by name, of the faulty unit, then of the units that contain it."""
        module, tests = mutant.module, list[str]()
        while module:
            found = _FOLDER.rglob(f"test_{source_file(self.modules[module])}.py")
            tests += [test for file in found if (test := module_name(file)) not in tests]
            module = module.rpartition(".")[0]
        return tests

    def _limit(self, test: str, shown: Callable[[str], None]) -> float:
        """Return the time limit of a test file in seconds, after a first run without a fault."""
        with self._locks[test]:
            if test not in self._seconds:
                started = time.monotonic()
                status, output = self._run(test, None, None)
                if status:
                    raise UnitTestsFail(f"{test}, exit status {status}:\n{output}")
                self._seconds[test] = time.monotonic() - started
                shown(f"{test} without a fault: {self._seconds[test]:.0f} s")
            return 60 + _SLOWER * self._seconds[test]

    def _judge(self, mutant: Mutant, shown: Callable[[str], None]) -> tuple[int, Verdict | None]:
        started = time.monotonic()
        place = FaultPlace.of(mutant, self.modules)
        for test in self.tests_for(mutant):
            status, output = self._run(test, place, self._limit(test, shown))
            if status is None or (status == _FAILED and _SIGN in output):
                what = f"{test}{'' if status else ': no end'}"
                return mutant.number, Verdict(
                    mutant.number, UNIT, what, round(time.monotonic() - started, 2)
                )
            if status:
                shown(f"{test} does not judge {mutant.text}: {output.splitlines()[-1:]}")
            elif NO_SUCH_PLACE not in output:
                break
        return mutant.number, None

    def _run(
        self, test: str, place: FaultPlace | None, limit: float | None
    ) -> tuple[int | None, str]:
        """Run the tests in a file with a planted fault, and return pytest's exit status and output.

        The status is None if the tests exceed `limit` seconds.
        """
        file = str(PACKAGE / "verif" / f"{test}.py")
        environment: Mapping[str, str] = {
            **os.environ,
            **asked_for(place),
            **{"SIM": "verilator", "SEED": str(self._seed), "COCOTB_MAX_FAILURES": "1"},
        }
        command = [sys.executable, "-m", "pytest", "-qxrs", "-p", "no:cacheprovider", file]
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, ""
            return process.returncode, output
