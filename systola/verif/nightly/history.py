# SPDX-License-Identifier: Apache-2.0
"""The history of `make nightly`: one run a line in history.jsonl, and the page's table."""

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
    """The commit of the tested sources, with " with changes" if they differed from it."""
    seed: int
    seconds: int
    results: dict[str, str]
    """The last line that each part printed, by the part's name."""
    failed: list[str]
    """The commands that repeat the parts that failed."""
    cause: str = ""
    """The reason of the failures and how it was mended, which a person writes after the run."""


def stored(path: Path = HISTORY) -> list[Night]:
    """Return the stored runs, the oldest first, an empty list without a file."""
    if not path.exists():
        return []
    return [Night(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def store(night: Night, path: Path = HISTORY) -> None:
    """Add a run at the end of the history."""
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
    """Return the sums of the parts' counts, such as "8 programs, 900 cycles"."""
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
