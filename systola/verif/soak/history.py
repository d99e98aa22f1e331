# SPDX-License-Identifier: Apache-2.0
"""The runs of `make soak`, one a line in history.jsonl, and the table of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from systola.arch.pages import table

HISTORY = Path(__file__).with_name("history.jsonl")


@dataclass(frozen=True)
class Run:
    """Tests that have run with `seeds` seeds, `first` and those that follow it by number."""

    date: str
    commit: str
    """The commit; " with changes" follows where the sources differed from it."""
    chosen: str
    """The tests that were asked for, as on the command line: "quick tests of verif/golden"."""
    first: int
    seeds: int
    tests: int
    """Tests that ran with every seed, since they ask for one."""
    found: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The seeds with which a test failed, by the test's name."""
    cause: str = ""
    """Why the tests failed and how that was mended. A person writes it after the run."""


def stored(path: Path = HISTORY) -> list[Run]:
    """Return the runs in the order in which they began; none where nothing is stored."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def store(run: Run, former: Run | None, path: Path = HISTORY) -> None:
    """Put `run` in the place of `former`, or at the end. Whoever reads finds whole rows only."""
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
    """Return the table of the page, the newest run first."""
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
