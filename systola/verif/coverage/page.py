# SPDX-License-Identifier: Apache-2.0
"""The HTML page that shows the coverage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from systola.verif.coverage.record import Coverage
from systola.verif.coverage.summary import Part, functional_parts, point_parts, total

_STYLE = """\
body { font: 15px sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .2em .8em; border-bottom: 1px solid #ccc; text-align: right; }
td:first-child, th:first-child { text-align: left; }
.bad { color: #b00; } li { font-family: monospace; }
"""
_KINDS = ("line", "branch", "toggle")


def page(coverage: Coverage, waivers: Mapping[str, str], heading: str) -> str:
    """Return the coverage page as HTML; `heading` names its subject."""
    return "\n".join(_lines(coverage, waivers, heading)) + "\n"


def _lines(coverage: Coverage, waivers: Mapping[str, str], heading: str) -> Iterator[str]:
    yield "<!doctype html><html lang='en'><meta charset='utf-8'><title>Coverage</title>"
    yield f"<style>{_STYLE}</style><h1>Coverage</h1><p>{escape(heading)}</p>"
    parts = functional_parts(coverage, waivers)
    yield "<h2>Functional bins</h2>"
    yield from _table(parts)
    yield from _missing(parts)
    for preset in coverage.points:
        yield f"<h2>Verilog of '{escape(preset)}'</h2>"
        modules = point_parts(coverage, preset, waivers)
        kinds = {kind: [part for part in modules if part.group == kind] for kind in _KINDS}
        yield from _table([total(found) for found in kinds.values() if found], names=_KINDS)
        for kind in _KINDS:
            yield f"<h3>{kind.capitalize()} by module</h3>"
            yield from _table(sorted(kinds[kind], key=lambda part: part.share))
        for kind in ("line", "branch"):
            yield f"<h3>{kind.capitalize()} that were never passed</h3>"
            yield from _missing(kinds[kind])
    yield "<h2>Waivers</h2><table><tr><th>what</th><th>why</th></tr>"
    for pattern, reason in waivers.items():
        yield f"<tr><td>{escape(pattern)}</td><td>{escape(reason)}</td></tr>"
    yield "</table></html>"


def _table(parts: Sequence[Part], names: Sequence[str] | None = None) -> Iterator[str]:
    yield "<table><tr><th></th><th>covered</th><th>waived</th><th>missing</th><th></th></tr>"
    for number, part in enumerate(parts):
        name = names[number] if names else part.name
        bad = " class='bad'" if part.missing else ""
        yield (
            f"<tr><td>{escape(name)}</td><td>{len(part.covered)}</td><td>{len(part.waived)}</td>"
            f"<td{bad}>{len(part.missing)}</td><td>{100 * part.share:.1f} %</td></tr>"
        )
    yield "</table>"


def _missing(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        if part.missing:
            summary = f"{escape(part.name)}: {len(part.missing)} missing"
            yield f"<details><summary>{summary}</summary><ul>"
            yield from (f"<li>{escape(name)}</li>" for name in part.missing)
            yield "</ul></details>"
