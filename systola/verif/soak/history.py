# SPDX-License-Identifier: Apache-2.0
"""The history of `make soak`: one run a line in history.jsonl, and the page's table of runs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from systola.arch.pages import table

HISTORY = Path(__file__).with_name("history.jsonl")


@dataclass(frozen=True)
class Run:
    """A run of `make soak`: tests with `seeds` successive seeds, from seed `first` on."""

    date: str
    commit: str
    """The commit of the tested sources, with " with changes" if they differed from it."""
    chosen: str
    """The requested tests in words, such as "quick tests of verif/golden"."""
    first: int
    seeds: int
    tests: int
    """Number of tests that use a seed, and so ran with every seed."""
    found: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The seeds with which each failed test failed, by the test's name."""
    cause: str = ""
    """The reason of the failures and how it was mended, which a person writes after the run."""


def stored(path: Path = HISTORY) -> list[Run]:
    """Return the stored runs in the order in which they began, an empty list without a file."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def store(run: Run, former: Run | None, path: Path = HISTORY) -> None:
    """Store `run` in place of the stored run `former`, or at the end if there is none.

    The file is replaced as a whole, so a reader never finds a part of a row.
    """
    runs = stored(path)
    if former in runs:
        runs[runs.index(former)] = run
    else:
        runs.append(run)
    text = "".join(json.dumps({k: v for k, v in asdict(r).items() if v != ""}) + "\n" for r in runs)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def shown(runs: list[Run]) -> str:
    """Return a table of the runs for docs/trust.md, with the newest run first."""
    rows = [
        (
            f"{run.date}, {run.commit}",
            f"{run.tests} of the {run.chosen}",
            f"{run.seeds}, from {run.first}",
            _found(run),
        )
        for run in reversed(runs)
    ]
    return table(("When", "Tests", "Seeds", "Found"), rows)


def _found(run: Run) -> str:
    if not run.found:
        return "0 failures"
    failures = sum(map(len, run.found.values()))
    tests = "; ".join(
        f"`{test.removeprefix('verif/')}` with {', '.join(map(str, seeds))}"
        for test, seeds in run.found.items()
    )
    return f"{failures} {'failure' if failures == 1 else 'failures'}: {tests}. {run.cause}".strip()
