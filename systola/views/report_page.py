# SPDX-License-Identifier: Apache-2.0
"""A page of HTML about a run, without other files: layers, roofline, memories, timeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING

from jinja2 import Environment

from systola.arch.assembler import disassemble
from systola.compiler.printable import printable
from systola.compiler.program import Program
from systola.runtime.backend import Result
from systola.runtime.report import HOST, LayerRow, Report
from systola.runtime.report_table import (
    compact,
    cycles,
    joules,
    percent,
    shape_text,
    short_name,
    tops_per_watt,
)
from systola.runtime.roofline import Dot, roofline
from systola.runtime.run_result import RunResult
from systola.views.memory_use import Stay, WeightTiles, buffer_stays, weight_tiles
from systola.views.plots import roofline_figure, to_svg
from systola.views.program_plots import (
    Slice,
    buffer_figure,
    slices_between,
    timeline_figure,
    weights_figure,
)
from systola.views.timeline import Timeline, make_timeline

if TYPE_CHECKING:
    from systola.views.plots import Figure

TIMELINE_CYCLES = 4000
"""Largest number of cycles of a program in the timeline; the first ones by default."""
MARKS = 2000
"""Largest number of marks in a figure; a text below it has the number of marks left out."""

_Value = float | str | None
Column = tuple[str, Callable[[LayerRow], str], Callable[[LayerRow], _Value]]
"""Heading, the function for the cell of a row, and the function for its sort key; None comes last.
"""


def _name(row: LayerRow) -> str:
    return short_name(row.operator)


def _limit(row: LayerRow) -> str:
    return row.limit or (HOST if row.place == HOST else "")


COLUMNS: tuple[Column, ...] = (
    ("layer", _name, _name),
    ("result", lambda row: shape_text(row.shape), lambda row: row.elements),
    ("MACs", lambda row: compact(row.macs), lambda row: row.macs),
    ("estimated", lambda row: cycles(row.estimated_cycles), lambda row: row.estimated_cycles),
    ("measured", lambda row: cycles(row.measured_cycles), lambda row: row.measured_cycles),
    ("use", lambda row: percent(row.utilization), lambda row: row.utilization),
    ("limited by", _limit, _limit),
    ("in", lambda row: compact(row.host_in), lambda row: row.host_in),
    ("out", lambda row: compact(row.host_out), lambda row: row.host_out),
    ("weights", lambda row: compact(row.weights), lambda row: row.weights),
    ("share", lambda row: percent(row.share), lambda row: row.share),
)


@dataclass(frozen=True)
class _Chart:
    """A figure, the text of each mark by its name, and the numbers that the figure shows."""

    name: str
    title: str
    text: str
    svg: str
    tips: dict[str, list[str]]
    wide: bool = False
    """Whether the figure is as wide as it needs to be, and not as wide as the page."""


@dataclass
class _Page:
    """A page without its table: charts and figures."""

    charts: list[_Chart] = field(default_factory=list[_Chart])
    figures: dict[str, object] = field(default_factory=dict[str, object])


def report_page(
    run: RunResult,
    report: Report,
    title: str,
    figures: Mapping[str, object],
    window: tuple[int, int] | None = None,
) -> bytes:
    """Return the content of a .html file about `run`; `report` is the report of the same run.

    `figures` are plain data that the page holds as JSON, together with the data that it draws.
    Memories and timeline show the longest program that was recorded; without a recording they are
    missing. The timeline has the cycles since START from the first up to the second number of
    `window`, at most TIMELINE_CYCLES. Raises MissingLibraryError without matplotlib.
    """
    page = _Page(figures=dict(figures))
    _add_roofline(page, run, report)
    if run.recorded:
        _add_program(page, run, window or (0, TIMELINE_CYCLES))
    folder = files("systola.views") / "pages"
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    total = sum(run.counters.values())
    text = template.render(
        title=printable(title),
        style="".join(
            (folder / name).read_text(encoding="utf-8") for name in ("common.css", "report.css")
        ),
        script=(folder / "report.js").read_text(encoding="utf-8"),
        facts=_facts(run, report),
        headings=[heading for heading, _, _ in COLUMNS],
        rows=[_row(row) for row in report.rows],
        classes=[
            (name.replace("_", " "), f"{count:,}", percent(count / total), 100 * count / total)
            for name, count in sorted(run.counters.items(), key=lambda item: -item[1])
            if count
        ],
        energy=[
            (
                each.technology,
                joules(each.joules),
                tops_per_watt(each.tops_per_watt),
                [
                    (name, joules(each.units[name]), percent(share), 100 * share)
                    for name, share in each.largest
                ],
            )
            for each in report.energy
            if each.joules
        ],
        charts=page.charts,
        recorded=bool(run.recorded),
        tips=_embedded({name: tip for chart in page.charts for name, tip in chart.tips.items()}),
        figures=_embedded(page.figures),
    )
    return text.encode()


def _embedded(content: object) -> str:
    """Return JSON that can stand in a script element."""
    return json.dumps(content).replace("<", "\\u003c")


def _row(row: LayerRow) -> list[tuple[str, _Value]]:
    return [(cell(row), key(row)) for _, cell, key in COLUMNS]


def _facts(run: RunResult, report: Report) -> list[tuple[str, str]]:
    config = run.config
    facts = [
        ("machine", f"{config.name}: {config.rows} x {config.cols}"),
        ("samples", f"{run.samples:,}"),
        ("MACs of a sample", compact(run.macs)),
        (
            "cycles of a sample",
            f"{cycles(report.measured_cycles)} measured, "
            f"{cycles(report.estimated_cycles)} estimated",
        ),
    ]
    if run.utilization is not None:
        facts.append(("use of the array", percent(run.utilization)))
    if report.mhz and report.inferences_per_second:
        facts.append(
            (f"samples a second at {report.mhz:g} MHz", compact(report.inferences_per_second))
        )
    return facts


def _svg(figure: Figure) -> str:
    drawn = to_svg(figure, transparent=True).decode()
    return drawn[drawn.index("<svg") :]


def _add_roofline(page: _Page, run: RunResult, report: Report) -> None:
    roof = roofline(run.config, report)
    page.figures["roofline"] = {
        "peak": roof.peak,
        "bandwidth": dict(roof.bandwidth),
        "dots": [{**asdict(dot), "x": dot.x if isfinite(dot.x) else None} for dot in roof.dots],
    }
    page.charts.append(
        _Chart(
            "roofline",
            "Roofline",
            "How much each layer computes for a byte it moves, and in a cycle; the lines are what "
            "array and memory ports allow.",
            _svg(roofline_figure(run.config, report, "", names=False)),
            {f"roofline-{number}": _dot_tip(dot) for number, dot in enumerate(roof.dots)},
        )
    )


def _dot_tip(dot: Dot) -> list[str]:
    moved = f"{dot.x:,.1f} MACs for each byte" if isfinite(dot.x) else "no byte moved"
    begun = ["begun before the layer before it had ended"] if dot.is_open else []
    return [
        f"{dot.label} {dot.name}".strip(),
        f"{dot.y:,.1f} MACs in a cycle",
        f"{moved}, {dot.port} port",
        *begun,
    ]


def _add_program(page: _Page, run: RunResult, window: tuple[int, int]) -> None:
    program, result = max(run.recorded, key=lambda each: each[1].cycles or 0)
    assert result.recording is not None
    layers = [short_name(each.operator) for each in program.layers]
    timeline = make_timeline(run.config, program.image, result.recording)
    code = program.image.program
    stays = buffer_stays(run.config, code, timeline, layers)
    tiles = weight_tiles(code, timeline, layers)
    which = f"Of the longest of {len(run.recorded)} runs of programs. " * (len(run.recorded) > 1)
    _add_buffer(page, run, program, result, stays, which)
    if tiles:
        _add_weights(page, run, tiles, which)
    _add_timeline(page, program, timeline, window, result.cycles or 0, which)


def _add_buffer(
    page: _Page,
    run: RunResult,
    program: Program,
    result: Result,
    stays: Sequence[Stay],
    which: str,
) -> None:
    spilled = ", ".join(
        f"{printable(name)} ({size:,} bytes)" for name, size in program.spilled.items()
    )
    page.figures["buffer"] = [asdict(stay) for stay in stays]
    shown = stays[:MARKS]
    end = shown[-1].end if len(shown) < len(stays) else result.cycles or 0
    page.charts.append(
        _Chart(
            "buffer",
            "Unified buffer",
            f"{which}What lies on which lines, from its first write to its last read. "
            + (f"Spilled to host memory: {spilled}." if spilled else "Nothing is spilled.")
            + _cut(shown, stays),
            _svg(buffer_figure(run.config, shown, end)),
            {f"buffer-{number}": _stay_tip(stay) for number, stay in enumerate(shown)},
        )
    )


def _stay_tip(stay: Stay) -> list[str]:
    return [
        f"{stay.layer}: {stay.mnemonic}",
        f"lines {stay.first:,} to {stay.first + stay.count - 1:,}",
        f"cycles {stay.begin:,} to {stay.end:,}, read by {stay.reads:,} instructions",
    ]


def _add_weights(page: _Page, run: RunResult, tiles: Sequence[WeightTiles], which: str) -> None:
    size = run.config.tile_bytes
    page.figures["weights"] = [asdict(each) for each in tiles]
    shown = tiles[:MARKS]
    page.charts.append(
        _Chart(
            "weights",
            "Weight memory",
            f"{which}The tiles of {size:,} bytes that each layer takes.{_cut(shown, tiles)}",
            _svg(weights_figure(shown)),
            {
                f"weights-{number}": [
                    each.layer,
                    f"tiles {each.tile:,} to {each.tile + each.count - 1:,}, "
                    f"{each.count * size:,} bytes",
                    "read once" if each.times == 1 else f"read {each.times:,} times",
                ]
                for number, each in enumerate(shown)
            },
        )
    )


def _add_timeline(
    page: _Page,
    program: Program,
    timeline: Timeline,
    window: tuple[int, int],
    cycles: int,
    which: str,
) -> None:
    begin, end = window
    if begin < cycles:
        end = min(end, cycles)
        shows = f"Cycles {begin:,} to {end:,} of {cycles:,}"
    else:
        shows = f"It ended before cycle {begin:,}, after {cycles:,}"
    slices = slices_between(timeline, begin, end)
    texts = disassemble(program.image.program).splitlines()
    shown = slices[:MARKS]
    page.figures["timeline"] = [asdict(each) for each in slices]
    page.charts.append(
        _Chart(
            "timeline",
            "Timeline",
            f"{which}{shows}; --report-window FROM:TO chooses others, "
            f"--timeline has all.{_cut(shown, slices)}",
            _svg(timeline_figure(shown, begin, end)),
            {
                f"timeline-{number}": _slice_tip(each, timeline, texts)
                for number, each in enumerate(shown)
            },
            wide=True,
        )
    )


def _slice_tip(each: Slice, timeline: Timeline, texts: Sequence[str]) -> list[str]:
    when = f"{each.track.value}, cycles {each.begin:,} to {each.end:,}"
    if each.work is None:
        return ["burst of instructions", when]
    work = timeline.work[each.work]
    waits = [
        f"waited {wait.cycles} cycles for {wait.resource} "
        f"(instruction {timeline.work[wait.source].number})"
        for wait in work.waits
    ]
    return [f"{work.number}: {texts[work.number].strip()}", when, *waits]


def _cut(shown: Sequence[object], everything: Sequence[object]) -> str:
    left = len(everything) - len(shown)
    return f" The first {len(shown):,} are shown, {left:,} more are not." if left else ""
