# SPDX-License-Identifier: Apache-2.0
"""The roofline of the paper's Figure 5 as a picture, with the paper's applications and ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from systola.arch.config import PRESETS
from systola.bench.original.paper import MEASURED
from systola.bench.original.result import MHZ, PRESET, Result
from systola.compiler.plan import tile_cycles
from systola.views.plots import PORT_COLOURS, TOTAL_COLOUR, new_figure

if TYPE_CHECKING:
    from systola.views.plots import Figure

X, Y = (10.0, 10_000.0), (1.0, 200.0)
"""Ranges of the axes: multiply-accumulates for each byte of weights, and TOPS."""
THEIRS, OURS = PORT_COLOURS["weights"], PORT_COLOURS["host"]


def roofline(results: Mapping[str, Result]) -> Figure:
    """Draw the roof, a ring for each application of the paper, and a dot for each of ours."""
    config = PRESETS[PRESET]
    peak = 2 * config.peak_macs * MHZ / 1e6
    bytes_a_cycle = float(config.tile_bytes / tile_cycles(config))
    slope = 2 * bytes_a_cycle * MHZ / 1e6
    """Slope of the roof: TOPS for each multiply-accumulate a byte of weights."""
    figure = new_figure(8, 4.6)
    axes: Any = figure.add_subplot()
    axes.set(
        title=f"{peak:.0f} TOPS at {MHZ} MHz, weights at {bytes_a_cycle:.1f} bytes a cycle",
        xscale="log",
        yscale="log",
        xlim=X,
        ylim=Y,
        xlabel="multiply-accumulates for each byte of weights",
        ylabel="TOPS",
    )
    axes.grid(color="#d8dee4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.plot([X[0], peak / slope, X[1]], [slope * X[0], peak, peak], color=TOTAL_COLOUR)
    theirs = [(measured.macs_a_byte, measured.tops) for measured in MEASURED.values()]
    ours = [(each.macs / each.weight_bytes, each.tops) for each in results.values()]
    for places, colour, face, label in (
        (theirs, THEIRS, "none", "the original, as its paper has it"),
        (ours, OURS, OURS, "this machine, on the RTL"),
    ):
        axes.plot(
            [x for x, _ in places],
            [y for _, y in places],
            marker="o",
            linestyle="none",
            markersize=7,
            markeredgewidth=2,
            color=colour,
            markerfacecolor=face,
            label=label,
        )
    for name, place in zip(MEASURED, theirs, strict=True):
        axes.annotate(
            name.upper(),
            place,
            xytext=(9, -7),
            textcoords="offset points",
            fontsize=8,
            va="center",
        )
    # There is room for labels on the right of a dot below the flat part of the roof.
    axes.legend(loc="lower right", fontsize=9)
    return figure
