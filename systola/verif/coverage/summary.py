# SPDX-License-Identifier: Apache-2.0
"""A summary of coverage: the bins and points that are covered, waived or missing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from systola.verif.coverage.functional import functional_bins
from systola.verif.coverage.probes import probe_name, probes
from systola.verif.coverage.record import Coverage

WAIVERS = Path(__file__).with_name("waivers.toml")
BARS = {"line": 0.95, "branch": 0.95}
"""Shares of lines and of branches that must be covered.

All functional bins and all probes must be covered.
"""


@dataclass(frozen=True)
class Part:
    """A part of the summary: a group of bins, or the points of a kind in a module.

    Names in `waived` begin with the part's name, as in waivers; names in `covered` and `missing` do
    not.
    """

    group: str
    name: str
    covered: Sequence[str]
    waived: Sequence[str]
    missing: Sequence[str]

    @property
    def share(self) -> float:
        """Return the covered share of all items that are not waived, 0 to 1."""
        wanted = len(self.covered) + len(self.missing)
        return len(self.covered) / wanted if wanted else 1.0


def waivers(path: Path = WAIVERS) -> Mapping[str, str]:
    """Return the waivers from a file: patterns of names, each with its reason."""
    return tomllib.loads(path.read_text())


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern, in which `*` stands for any text."""
    return _expression(pattern).fullmatch(name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def functional_parts(coverage: Coverage, waived: Iterable[str] = ()) -> list[Part]:
    """Return a part for each group of the instruction set's bins, and a part for all probes."""
    patterns = list(waived)
    parts: list[Part] = []
    for group, names in functional_bins().items():
        hit = {name for name in names if coverage.hits[f"{group}: {name}"]}
        parts.append(_split("instruction set", group, names, hit, patterns, f"{group}: "))
    seen: set[str] = set()
    for points in coverage.points.values():
        seen |= {
            probe_name(int(point.what))
            for point, count in points.items()
            if point.kind == "probe" and count
        }
    names = list(probes())
    return [*parts, _split("micro-architecture", "probes", names, seen, patterns, "probes: ")]


def _split(
    group: str,
    name: str,
    names: Sequence[str],
    seen: set[str],
    patterns: Sequence[str],
    prefix: str,
) -> Part:
    covered = [item for item in names if item in seen]
    rest = [item for item in names if item not in seen]
    waived = {item for item in rest if any(matches(prefix + item, p) for p in patterns)}
    return Part(
        group,
        name,
        covered,
        [prefix + item for item in rest if item in waived],
        [item for item in rest if item not in waived],
    )


def point_parts(coverage: Coverage, preset: str, waived: Iterable[str] = ()) -> list[Part]:
    """Return parts for the lines, branches and toggles of each module of a preset."""
    patterns = list(waived)
    found: dict[tuple[str, str], tuple[list[str], set[str]]] = {}
    for point, count in coverage.points[preset].items():
        if point.kind == "probe":
            continue
        names, seen = found.setdefault((point.kind, point.module), ([], set()))
        names.append(point.name)
        if count:
            seen.add(point.name)
    return [
        _split(kind, module, names, seen, patterns, f"{kind} {module}: ")
        for (kind, module), (names, seen) in sorted(found.items())
    ]


def idle(waived: Iterable[str], parts: Iterable[Part]) -> list[str]:
    """Return the waivers' patterns that match no waived item of these parts."""
    names = [name for part in parts for name in part.waived]
    return [pattern for pattern in waived if not any(matches(n, pattern) for n in names)]


def total(parts: Iterable[Part]) -> Part:
    """Return one part that has the items of all given parts."""
    many = list(parts)
    return Part(
        many[0].group if many else "",
        "all",
        [name for part in many for name in part.covered],
        [name for part in many for name in part.waived],
        [name for part in many for name in part.missing],
    )
