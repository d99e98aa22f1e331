# SPDX-License-Identifier: Apache-2.0
"""The history of `make nightly`: a line for each run in history.jsonl, and a table for a page."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from systola.arch.pages import table

HISTORY = Path(__file__).with_name("history.jsonl")


@dataclass(frozen=True)
class Night:
    """One run of `make nightly`, with a fresh seed."""

    date: str
    commit: str
    """The commit of the tested sources, followed by " with changes" for uncommitted changes."""
    seed: int
    seconds: int
    results: dict[str, str]
    """The last line that each part of the run printed, by the part's name."""
    failed: list[str]
    """The commands, such as `make regress ...`, that repeat the failed parts of the run."""
    cause: str = ""
    """The cause of the failures and its repair, as text that a person adds to history.jsonl."""


def stored(path: Path = HISTORY) -> list[Night]:
    """Return the stored nightly runs, the oldest first; an empty list if there is no file."""
    if not path.exists():
        return []
    return [Night(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def store(night: Night, path: Path = HISTORY) -> None:
    """Add a nightly run as the last line of the history file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(night)) + "\n")


def shown(nights: list[Night]) -> str:
    """Return a table of the runs for docs/trust.md, with the newest run first."""
    rows = [
        (
            f"{night.date}, {night.commit}",
            str(night.seed),
            f"{night.seconds:,} s",
            _counts(night.results),
            _found(night),
        )
        for night in reversed(nights)
    ]
    return table(("When", "Seed", "Took", "Counts of all parts", "Found"), rows)


def _counts(results: dict[str, str]) -> str:
    """Return the counts in the parts' result lines, added up, such as "8 programs, 900 cycles"."""
    sums: Counter[str] = Counter()
    for text in results.values():
        for count in text.partition(":")[0].partition(" with ")[0].split(", "):
            number, _, counted = count.partition(" ")
            if number.isdecimal():
                sums[counted] += int(number)
    return ", ".join(f"{number:,} {counted}" for counted, number in sums.items() if number)


def _found(night: Night) -> str:
    failed = "; ".join(f"`{each}`" for each in night.failed)
    return f"{failed or '0 failures'} {night.cause}".strip()
