# SPDX-License-Identifier: Apache-2.0
"""The figures of runs, with matplotlib: layers, the roofline, and the causes of cycles."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Any

from systola.arch.config import Config
from systola.arch.registers import CycleClass
from systola.compiler.printable import printable
from systola.runtime.report import HOST, Report
from systola.runtime.report_table import compact, short_name, shortened
from systola.runtime.roofline import Dot, roofline
from systola.views.missing_library import MissingLibraryError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PORT_COLOURS = {"host": "#2a6fb0", "weights": "#c44536"}
PORT_NAMES = {"host": "host port, each way", "weights": "weight port"}
TOTAL_COLOUR = "#24292f"
CLASS_COLOURS = {
    CycleClass.ARRAY_ACTIVE: "#2a7f62",
    CycleClass.WEIGHT_STALL: "#c44536",
    CycleClass.WEIGHT_SHIFT: "#e09f3e",
    CycleClass.INPUT_STALL: "#335c81",
    CycleClass.OPERAND_STALL: "#7d5ba6",
    CycleClass.ACCUMULATOR_STALL: "#b084cc",
    CycleClass.VECTOR: "#d4a373",
    CycleClass.OUTPUT_STALL: "#8d6a4f",
    CycleClass.HOST_WAIT: "#5b8e7d",
    CycleClass.FETCH: "#9aa0a6",
    CycleClass.DRAIN: "#d0d4d9",
}
NAME_WIDTH = 28
"""Largest length of a layer's name, in characters."""
LEGEND_LINES = 28
"""Number of layer names in one column of the legend."""
TOUCHING = 0.012
"""Distance, as a share of the axes, below which dots share one label."""


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure, in inches, with parts that make room for each other.

    Raises MissingLibraryError without matplotlib. No window is opened, and no global state of
    matplotlib is changed: a notebook shows the figure by itself.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibraryError(
            "pictures are drawn by matplotlib: pip install 'systola[plots]'"
        ) from None

    class ShownFigure(Figure):
        """A figure that notebooks show.

        Of other figures, notebooks show only figures of pyplot, which has global state.
        """

        def _repr_png_(self) -> bytes:
            drawn: Any = self
            content = io.BytesIO()
            drawn.savefig(content, format="png")
            return content.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def to_svg(figure: Figure, *, transparent: bool = False) -> bytes:
    """Return the figure as SVG, the same bytes each time.

    `transparent` leaves the background to the page.
    """
    import matplotlib

    # matplotlib's own types are incomplete.
    library: Any = matplotlib
    drawn: Any = figure
    content = io.BytesIO()
    with library.rc_context({"svg.hashsalt": "systola", "svg.fonttype": "none"}):
        drawn.savefig(content, format="svg", metadata={"Date": None}, transparent=transparent)
    return content.getvalue()


def as_label(text: str) -> str:
    """Return `text` for matplotlib to show unchanged: dollar signs do not begin mathematics."""
    return printable(text).replace("$", r"\$")


def roofline_figure(config: Config, report: Report, title: str, *, names: bool = True) -> Figure:
    """Draw the layers of `report` in a roofline, as systola.runtime.roofline explains it.

    With `names`, the names of the layers stand beside the axes.
    """
    roof = roofline(config, report)
    columns = ceil((len(roof.dots) + 3) / LEGEND_LINES) if names else 1
    figure = new_figure(6.5 + 3.5 * columns, 5.5)
    axes: Any = figure.add_subplot()
    ridges = [roof.peak / each for each in roof.bandwidth.values()]
    xs = [*(dot.x for dot in roof.dots if dot.x < inf), *ridges]
    ys = [*(dot.y for dot in roof.dots), roof.peak]
    left, right = 10.0 ** floor(log10(min(xs)) - 0.1), 10.0 ** ceil(log10(max(xs)) + 0.1)
    axes.set(
        title=as_label(title),
        xscale="log",
        yscale="log",
        xlim=(left, right),
        ylim=(10.0 ** floor(log10(min(ys)) - 0.1), 2 * roof.peak),
        xlabel="MACs for each byte through the busiest memory port",
        ylabel="MACs in each cycle",
    )
    axes.grid(color="#d8dee4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.plot(
        [min(ridges), right],
        [roof.peak, roof.peak],
        color=TOTAL_COLOUR,
        label=f"array: {roof.peak:,} MACs a cycle",
    )
    slopes = sorted(roof.bandwidth.items(), key=lambda item: -item[1])
    for number, (port, bandwidth) in enumerate(slopes):
        axes.plot(
            [left, roof.peak / bandwidth],
            [left * bandwidth, roof.peak],
            color=PORT_COLOURS[port],
            # If two ports are equally fast, one is dashed, so that both can be seen.
            linestyle="--" if number else "-",
            label=f"{PORT_NAMES[port]}: {bandwidth:g} bytes a cycle",
        )
    for number, dot in enumerate(roof.dots):
        colour = TOTAL_COLOUR if dot.is_total else PORT_COLOURS[dot.port]
        axes.plot(
            # A dot that moves no bytes is at the right border.
            [min(dot.x, right)],
            [dot.y],
            marker="o",
            linestyle="none",
            markersize=8 if dot.is_total else 6,
            color=colour,
            markerfacecolor="white" if dot.is_open else colour,
            clip_on=False,
            zorder=3,
            gid=f"roofline-{number}",
            label=as_label(f"{dot.label} {dot.name}".strip())
            + (" (open: begun before)" * dot.is_open)
            if names
            else None,
        )
    for dot, text in _labels(roof.dots, right, axes):
        axes.annotate(
            as_label(text),
            (min(dot.x, right), dot.y),
            xytext=(6, -10),
            textcoords="offset points",
            fontsize=8,
        )
    # The legend is beside the axes: on them it could cover the roof.
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        fontsize=8,
        frameon=False,
        ncols=columns,
        borderaxespad=0,
    )
    return figure


def _labels(dots: Sequence[Dot], right: float, axes: Any) -> list[tuple[Dot, str]]:
    """Return the labels of the dots; dots that touch have one label."""
    groups: list[tuple[Dot, list[str]]] = []
    to_axes = axes.transScale + axes.transLimits
    places = to_axes.transform([(min(dot.x, right), dot.y) for dot in dots])
    seen: list[Any] = []
    for dot, place in zip(dots, places, strict=True):
        for number, other in enumerate(seen):
            if max(abs(place - other)) < TOUCHING:
                groups[number][1].append(dot.label)
                break
        else:
            seen.append(place)
            groups.append((dot, [dot.label]))
    return [
        (dot, ", ".join(names) if len(names) < 5 else f"{', '.join(names[:4])}, ...")
        for dot, names in groups
    ]


def layers_figure(report: Report, title: str) -> Figure:
    """Draw for each layer its estimated and measured cycles, and the part of the machine that
    limits it.
    """
    rows = [row for row in report.rows if row.place != HOST]
    figure = new_figure(8, 1.2 + 0.32 * len(rows))
    axes: Any = figure.add_subplot()
    places = range(len(rows))
    estimated = [row.estimated_cycles or 0 for row in rows]
    measured = [row.measured_cycles or 0 for row in rows]
    axes.barh(places, estimated, height=0.75, color="#c9d1d9", label="estimated")
    axes.barh(places, measured, height=0.4, color="#2a7f62", label="measured")
    for place, row in enumerate(rows):
        what = f"{compact(max(0, row.cycles or 0))} {row.limit or ''}".strip()
        axes.annotate(
            what,
            (max(estimated[place], measured[place], 0), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    names = [as_label(shortened(short_name(row.operator), NAME_WIDTH)) for row in rows]
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.35, y=0.02)
    axes.set(title=as_label(title), xlabel="cycles of one inference")
    axes.legend(loc="lower right", fontsize=8)
    return figure


def cycles_figure(title: str, results: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """Draw the causes of cycles: a bar for each of `results`, a label and a mapping.

    The mapping has `cycles` and `counters`. Counters have the name of a CycleClass in lower case.
    """
    figure: Any = new_figure(9, 1.4 + 0.27 * len(results))
    axes = figure.add_subplot()
    places = range(len(results))
    left = [0.0] * len(results)
    for which, colour in CLASS_COLOURS.items():
        name = which.name.lower()
        shares = [100 * each["counters"][name] / each["cycles"] for _, each in results]
        axes.barh(places, shares, left=left, color=colour, label=name.replace("_", " "))
        left = [start + share for start, share in zip(left, shares, strict=True)]
    axes.set_yticks(places, [label for label, _ in results], fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    for place, (_, each) in enumerate(results):
        axes.annotate(
            f"{each['cycles']:,}",
            (100, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set(title=title, xlim=(0, 100), xlabel="% of all cycles, and how many there are")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    return figure
