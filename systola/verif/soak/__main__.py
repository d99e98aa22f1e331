# SPDX-License-Identifier: Apache-2.0
"""The command `make soak`: it runs tests with fresh seeds, to find failures that `make test`
misses.

The first seed runs every requested test, and notes the tests that use a seed. Only these tests run
with the other seeds. Each failure is shown with the command that repeats it. The run gets a row in
history.jsonl, which docs/trust.md shows. An interrupted run counts up to its last finished seed.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from systola.bench.moment import commit_and_changes, today
from systola.cli.arguments import OneLineParser, whole_number
from systola.verif.kit.checkout import ROOT
from systola.verif.soak.history import HISTORY, Run, store

_CHOOSE_TESTS = ("TEST", "UNIT", "SIM", "PRESET", "NETLIST")
"""Variables of the environment that a run ignores, as the history has no column for them.

The variables change the choice of tests or the results of tests."""
_COMPLETE = (0, 1)
"""Exit statuses of pytest after which all tests have run: none failed, or some failed."""
_LARGEST_FIRST_SEED = 1_000_000_000


class StoppedError(Exception):
    """An error: pytest has not run all tests; the text is the end of its output."""


class Outcome(NamedTuple):
    """The outcome of one test in one run."""

    test: str
    failed: bool
    seeded: bool


@dataclass(frozen=True)
class Tests:
    """A runner of pytest in `folder` with `options`, in `jobs` processes."""

    folder: Path
    options: Sequence[str]
    jobs: int

    def run(self, seed: int, tests: Sequence[str], bar: tqdm[None]) -> list[Outcome]:
        """Return the outcomes of `tests`, files or names of tests, with SEED=`seed`.

        `bar` advances with every test. Raises StoppedError if pytest ends early.
        """
        environment = {k: v for k, v in os.environ.items() if k not in _CHOOSE_TESTS}
        read, write = os.pipe()
        with tempfile.NamedTemporaryFile("w+") as names, tempfile.TemporaryFile("w+") as output:
            names.write("\n".join(tests))
            names.flush()
            command = [sys.executable, "-m", "pytest", "-q", *self.options]
            command += ["-n", str(self.jobs if self.jobs > 1 else 0), "--dist", "worksteal"]
            command += [f"--outcomes=/dev/fd/{write}", f"@{names.name}"]
            with (
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env={**environment, "SEED": str(seed)},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write],
                ) as process,
                open(read, encoding="utf-8") as lines,
            ):
                os.close(write)
                outcomes: list[Outcome] = []
                for line in lines:
                    outcomes.append(Outcome(**json.loads(line)))
                    bar.update()
            if process.returncode not in _COMPLETE:
                output.seek(0)
                raise StoppedError("".join(output.readlines()[-20:]).rstrip())
        return outcomes


def repeat(test: str, seed: int) -> str:
    """Return the command that repeats one test with one seed."""
    return f"SEED={seed} .venv/bin/pytest {shlex.quote(test)}"


def soak(tests: Tests, asked_for: Sequence[str], run: Run, seeds: int, history: Path) -> Run:
    """Run the tests `asked_for` with `seeds` seeds, and store the run in `history` after each seed.

    `run` describes the run before its first seed; the function returns the run after its last seed.
    If StoppedError or KeyboardInterrupt is raised, the stored run counts the seeds that were
    finished.
    """
    row: Run | None = None
    chosen = asked_for
    with tqdm(unit=" tests", disable=None) as bar:
        for number in range(seeds):
            seed = run.first + number
            bar.set_description(f"SEED={seed}, {number + 1} of {seeds}")
            outcomes = tests.run(seed, chosen, bar)
            if row is None:
                chosen = [outcome.test for outcome in outcomes if outcome.seeded]
                bar.reset(len(chosen) * (seeds - 1))
                run = replace(run, tests=len(chosen))
            found = {test: list(failed) for test, failed in run.found.items()}
            for outcome in outcomes:
                if outcome.failed:
                    found.setdefault(outcome.test, []).append(seed)
                    bar.write(f"failed: {repeat(outcome.test, seed)}", file=sys.stdout)
            run = replace(run, seeds=number + 1, found=found)
            store(run, row, history)
            row = run
            if not chosen:
                break
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a test fails, 2 if not all seeds were run."""
    parser = OneLineParser(prog="soak", description=__doc__)
    parser.add_argument(
        "tests", nargs="*", metavar="TEST", help="files, folders, names (default: all)"
    )
    parser.add_argument("--all", action="store_true", help="not only the quick tests")
    parser.add_argument("--seeds", type=whole_number(1), default=10, metavar="N")
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=random.randrange(_LARGEST_FIRST_SEED),
        help="the first one (default: a fresh one)",
    )
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes")
    options = parser.parse_args(arguments)
    places = options.tests or ["verif"]
    chosen = f"{'' if options.all else 'quick '}tests of {' '.join(places)}"
    run = Run(today(), commit_and_changes(), chosen, options.seed, seeds=0, tests=0)
    tests = Tests(ROOT, () if options.all else ("--quick",), options.jobs)
    try:
        run = soak(tests, places, run, options.seeds, HISTORY)
    except KeyboardInterrupt:
        print("soak: interrupted; the history has the seeds that were finished", file=sys.stderr)
        return 2
    except StoppedError as error:
        print(f"{error}\nsoak: pytest has not run all tests", file=sys.stderr)
        return 2
    failures = sum(map(len, run.found.values()))
    print(f"{run.tests} tests with each of {run.seeds} seeds from {run.first}: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
