# SPDX-License-Identifier: Apache-2.0
"""The stored results of campaigns with their dates, in figures.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True)
class Figure:
    """A figure of the page: the stored result of one campaign."""

    passed: bool
    results: tuple[str, ...]
    seed: int
    seconds: int
    """Elapsed seconds on the computer that ran the campaign."""
    date: str
    commit: str


def stored(path: Path = FIGURES) -> dict[str, Figure]:
    """Return the stored figures by the name of the campaign, or an empty dictionary."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Figure(**{**figure, "results": tuple(figure["results"])})
        for name, figure in content.items()
    }


def store(name: str, figure: Figure, path: Path = FIGURES) -> None:
    """Store one figure in place of the old figure of this name."""
    content = {known: asdict(of) for known, of in stored(path).items()} | {name: asdict(figure)}
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
