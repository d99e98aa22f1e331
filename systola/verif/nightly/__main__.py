# SPDX-License-Identifier: Apache-2.0
"""`make nightly`: random programs of every kind and tests, with a fresh seed, and a history.

A part is the random programs of one kind, or the tests. All parts run, even if a part fails. The
nightly run gets a line in history.jsonl, and docs/trust.md shows all lines as a table. The exit
status is 1 if a part has failed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from systola.bench.moment import commit_and_changes, today
from systola.cli.arguments import OneLineParser, whole_number
from systola.verif.nightly.history import HISTORY, Night, store
from systola.verif.regress.cases import KINDS

PROGRAMS = 200
"""Number of programs of each kind on each preset."""
SOAKED = "verif/golden"
"""Folder of the tests that also run with a fresh seed."""
_SEEDS = 1_000_000_000


@dataclass(frozen=True)
class Part:
    """A part of a nightly run, which runs `python -m MODULE ARGUMENTS`.

    `repeat` is the command, such as `make regress ...`, with which a user repeats the part.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    repeat: str


def parts(seed: int, programs: int) -> list[Part]:
    """Return all parts of a nightly run with this seed."""
    found = [
        Part(
            kind,
            "systola.verif.regress",
            ("--kind", kind, "--programs", str(programs), "--seed", str(seed)),
            f"make regress KIND={kind} N={programs} SEED={seed}",
        )
        for kind in KINDS
    ]
    soak = ("--seeds", "1", "--seed", str(seed), SOAKED)
    repeat = f"make soak N=1 SEED={seed} TESTS={SOAKED}"
    return [*found, Part("tests", "systola.verif.soak", soak, repeat)]


def run(chosen: Sequence[Part], seed: int, history: Path = HISTORY) -> Night:
    """Run the chosen parts, add an entry for this run to the history, and return the entry."""
    started = time.monotonic()
    results: dict[str, str] = {}
    failed: list[str] = []
    for part in chosen:
        print(f"== {part.repeat}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", part.module, *part.arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(done.stdout, end="", flush=True)
        lines = done.stdout.strip().splitlines() or [f"status {done.returncode}"]
        results[part.name] = lines[-1]
        if done.returncode:
            failed.append(part.repeat)
    seconds = round(time.monotonic() - started)
    night = Night(today(), commit_and_changes(), seed, seconds, results, failed)
    store(night, history)
    return night


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make nightly` and return the exit status, 1 if a part has failed."""
    parser = OneLineParser(prog="make nightly", description=__doc__)
    parser.add_argument("--programs", type=whole_number(1), default=PROGRAMS, metavar="N")
    parser.add_argument("--seed", type=whole_number(0, _SEEDS), default=random.randrange(_SEEDS))
    options = parser.parse_args(arguments)
    night = run(parts(options.seed, options.programs), options.seed)
    print(f"SEED={night.seed}: {len(night.failed)} of {len(night.results)} parts failed")
    return int(bool(night.failed))


if __name__ == "__main__":
    sys.exit(main())
