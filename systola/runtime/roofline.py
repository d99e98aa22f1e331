# SPDX-License-Identifier: Apache-2.0
"""The roofline of a machine, and where the layers of a network lie below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from systola.arch.config import Config
from systola.runtime.report import MACHINE, LayerRow, Report
from systola.runtime.report_table import shape_text, short_name

ALL = "all layers"


@dataclass(frozen=True)
class Dot:
    """A layer as a dot in the roofline diagram."""

    label: str
    """Number of the operator."""
    name: str
    port: str
    """Port that is busy longest with the layer: `host` or `weights`."""
    x: float
    """Multiply-accumulates for each byte through `port`; infinite if this port moves no bytes."""
    y: float
    """Multiply-accumulates in each cycle, at most the height of the roof."""
    is_open: bool
    """True if the layer would lie above the roof."""
    is_total: bool


@dataclass(frozen=True)
class Roofline:
    """A roofline: the bounds of a machine, and the dots of its layers."""

    peak: int
    """Multiply-accumulates that the array can do in a cycle."""
    bandwidth: Mapping[str, float]
    """Bytes in a cycle of each port: `host`, for one direction, and `weights`."""
    dots: tuple[Dot, ...]


def roofline(config: Config, report: Report) -> Roofline:
    """Return a dot for each layer that has multiply-accumulates, and one for the network.

    Host reads, host writes and weights move at the same time, so only the port that is busy longest
    bounds a layer. The dot's x counts the bytes of this port. The roof is the lower of two bounds:
    the slope of this port, and the height of the array.

    A layer's cycles count from the end of the layer before, although layers overlap. A layer that
    begins, or gets its weights, before this end may lie above the roof. Its dot is then open, and
    is drawn on the roof.
    """
    bandwidth = {
        "host": float(config.host_bus_bytes),
        "weights": config.weight_bus_bytes * config.weight_throttle[0] / config.weight_throttle[1],
    }
    layers = [row for row in report.rows if row.place == MACHINE and row.macs and row.cycles]
    dots = [_dot(row, bandwidth, config.peak_macs) for row in layers]
    total = LayerRow(
        operator=ALL,
        place=MACHINE,
        shape=(),
        macs=report.macs,
        estimated_cycles=report.cycles,
        host_in=sum(row.host_in for row in report.rows),
        host_out=sum(row.host_out for row in report.rows),
        weights=sum(row.weights for row in report.rows),
    )
    if total.macs:
        dots.append(_dot(total, bandwidth, config.peak_macs))
    return Roofline(config.peak_macs, bandwidth, tuple(dots))


def _dot(row: LayerRow, bandwidth: dict[str, float], peak: int) -> Dot:
    moved = {"host": max(row.host_in, row.host_out), "weights": row.weights}
    port = max(moved, key=lambda each: moved[each] / bandwidth[each])
    assert row.cycles
    label, _, name = short_name(row.operator).partition(" ")
    x = row.macs / moved[port] if moved[port] else inf
    y = row.macs / row.cycles
    roof = min(peak, x * bandwidth[port])
    return Dot(
        label=label,
        name=f"{name} {shape_text(row.shape)}",
        port=port,
        x=x,
        y=min(y, roof),
        is_open=y > roof,
        is_total=row.operator == ALL,
    )
