# SPDX-License-Identifier: Apache-2.0
"""The roofline of a machine, and the layers of a network below it, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from xml.sax.saxutils import escape

from systola.arch.config import Config
from systola.runtime.report import MACHINE, LayerRow, Report
from systola.runtime.report_table import compact, shape_text, short_name

WIDTH, HEIGHT = 560, 400
"""Of the plot, in pixels."""
LEFT, TOP, BOTTOM = 62, 40, 52
LEGEND, LEGEND_LINE = 250, 14
"""Width of a column of the legend, and height of a line in it."""
ALL = "all layers"
CHARACTER = 6
"""Width of one, more or less."""
TOUCHING = 11
"""Dots nearer than that have one label."""

STYLE = """
svg { color-scheme: light dark; font: 11px sans-serif; }
.paper { fill: #ffffff; } .ink { fill: #24292f; } .faint { fill: #57606a; }
.grid { stroke: #d8dee4; } .array, .total { stroke: #24292f; } .dot { stroke: #ffffff; }
.open { fill: #ffffff; stroke-width: 2; }
.weights { stroke: #c44536; } .host { stroke: #2a6fb0; }
.dot-weights { fill: #c44536; } .dot-host { fill: #2a6fb0; } .dot-total { fill: #24292f; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; } .ink { fill: #e6edf3; } .faint { fill: #9198a1; }
.grid { stroke: #30363d; } .array, .total { stroke: #e6edf3; } .dot { stroke: #0d1117; }
.open { fill: #0d1117; }
.weights { stroke: #ff8577; } .host { stroke: #6cb6ff; }
.dot-weights { fill: #ff8577; } .dot-host { fill: #6cb6ff; } .dot-total { fill: #e6edf3; }
}
""".strip()


@dataclass(frozen=True)
class _Dot:
    label: str
    """Number of the operator."""
    name: str
    port: str
    """`host` or `weights`: the port that has most to do."""
    x: float
    """Multiply-accumulates for each byte through that port; infinite where it moves none."""
    y: float
    """Multiply-accumulates in each cycle, no more than the roof allows."""
    is_open: bool
    """Whether it would lie above the roof."""
    is_total: bool


def roofline(config: Config, report: Report, title: str) -> str:
    """An SVG with a dot for each layer that has multiply-accumulates, and one for the network.

    A dot stands at the bytes of the port that has most to do for it: host reads and host writes go
    side by side, and so do weights. The slope of that port and the height of the array are bounds.
    Cycles count from the end of the layer before, and layers overlap: one that would lie above the
    roof, as it was begun or had its weights by then, is an open dot on it.
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
    return _Picture(config.peak_macs, bandwidth, dots).svg(title)


def _dot(row: LayerRow, bandwidth: dict[str, float], peak: int) -> _Dot:
    moved = {"host": max(row.host_in, row.host_out), "weights": row.weights}
    port = max(moved, key=lambda each: moved[each] / bandwidth[each])
    assert row.cycles
    label, _, name = short_name(row.operator).partition(" ")
    x = row.macs / moved[port] if moved[port] else inf
    y = row.macs / row.cycles
    roof = min(peak, x * bandwidth[port])
    return _Dot(
        label=label,
        name=f"{name} {shape_text(row.shape)}",
        port=port,
        x=x,
        y=min(y, roof),
        is_open=y > roof,
        is_total=row.operator == ALL,
    )


class _Picture:
    def __init__(self, peak: int, bandwidth: dict[str, float], dots: Sequence[_Dot]) -> None:
        self._peak, self._bandwidth, self._dots = peak, bandwidth, dots
        ridges = [peak / bytes_a_cycle for bytes_a_cycle in bandwidth.values()]
        xs = [*(dot.x for dot in dots if dot.x < inf), *ridges]
        ys = [*(dot.y for dot in dots), peak]
        self._x = floor(log10(min(xs)) - 0.1), ceil(log10(max(xs)) + 0.1)
        self._y = floor(log10(min(ys)) - 0.1), log10(max(ys)) + 0.3

    def svg(self, title: str) -> str:
        lines = HEIGHT // LEGEND_LINE
        columns = -(-len(self._dots) // lines)
        width = LEFT + WIDTH + 24 + columns * LEGEND
        height = TOP + HEIGHT + BOTTOM
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}">',
                f"<style>{STYLE}</style>",
                '<rect class="paper" width="100%" height="100%"/>',
                f'<text class="ink" x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
                *self._axes(),
                *self._roofs(),
                *self._points(),
                *self._legend(lines),
                "</svg>",
                "",
            ]
        )

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a place."""
        (low_x, high_x), (low_y, high_y) = self._x, self._y
        return (
            LEFT + WIDTH * (log10(x) - low_x) / (high_x - low_x),
            TOP + HEIGHT * (high_y - log10(y)) / (high_y - low_y),
        )

    def _axes(self) -> list[str]:
        parts: list[str] = []
        bottom, right = TOP + HEIGHT, LEFT + WIDTH
        for power in range(self._x[0], self._x[1] + 1):
            x, _ = self._at(10.0**power, 1)
            parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
            parts.append(
                f'<text class="faint" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">'
                f"{_tick(power)}</text>"
            )
        for power in range(self._y[0], floor(self._y[1]) + 1):
            _, y = self._at(1, 10.0**power)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
            parts.append(
                f'<text class="faint" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{_tick(power)}</text>"
            )
        middle = TOP + HEIGHT / 2
        parts.append(
            f'<text class="ink" x="{LEFT + WIDTH / 2}" y="{bottom + 38}" text-anchor="middle">'
            "MACs for each byte through the busiest memory port</text>"
        )
        parts.append(
            f'<text class="ink" x="16" y="{middle}" text-anchor="middle" '
            f'transform="rotate(-90 16 {middle})">MACs in each cycle</text>'
        )
        return parts

    def _roofs(self) -> list[str]:
        """The height of the array, and the slope of each port up to it."""
        parts: list[str] = []
        right, top = self._at(10.0 ** self._x[1], self._peak)
        ridge = min(self._peak / each for each in self._bandwidth.values())
        left, _ = self._at(ridge, self._peak)
        parts.append(
            f'<path class="array" stroke-width="2" fill="none" d="M{left:.1f} {top:.1f}H{right}"/>'
        )
        parts.append(
            f'<text class="ink" x="{right - 4:.1f}" y="{top - 20:.1f}" text-anchor="end">'
            f"array: {self._peak:,} MACs a cycle</text>"
        )
        slopes = sorted(self._bandwidth.items(), key=lambda item: -item[1])
        for number, (port, bandwidth) in enumerate(slopes):
            x = max(10.0 ** self._x[0], 10.0 ** self._y[0] / bandwidth)
            x1, y1 = self._at(x, x * bandwidth)
            x2, y2 = self._at(self._peak / bandwidth, self._peak)
            # Of ports that are equally fast one is dashed, so that both can be seen.
            dash = ' stroke-dasharray="6 6"' if number else ""
            parts.append(
                f'<path class="{port}" stroke-width="2" fill="none"{dash} '
                f'd="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
            )
            label = "host port, each way" if port == "host" else "weight port"
            parts.append(
                f'<circle class="dot-{port}" cx="{LEFT + 12}" cy="{TOP + 13 + 16 * number}" r="4"/>'
                f'<text class="ink" x="{LEFT + 22}" y="{TOP + 17 + 16 * number}">'
                f"{label}: {bandwidth:g} bytes a cycle</text>"
            )
        if any(dot.is_open for dot in self._dots):
            y = TOP + 13 + 16 * len(slopes)
            parts.append(
                f'<circle class="open total" cx="{LEFT + 12}" cy="{y}" r="4"/>'
                f'<text class="ink" x="{LEFT + 22}" y="{y + 4}">'
                "open: begun, or loaded, before the layer before had ended</text>"
            )
        return parts

    def _points(self) -> list[str]:
        parts: list[str] = []
        labels: list[tuple[float, float, list[str]]] = []
        for dot in self._dots:
            # What moves nothing is at the right border.
            x, y = self._at(min(dot.x, 10.0 ** self._x[1]), dot.y)
            kind, radius = ("total", 6) if dot.is_total else (dot.port, 4.5)
            look = f"open {kind}" if dot.is_open else f"dot-{kind}"
            moved = f"{compact(dot.x)} a byte" if dot.x < inf else "nothing moved"
            parts.append(
                f'<circle class="dot {look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
                f"<title>{escape(dot.name)}: {compact(dot.y)} MACs a cycle, {moved}</title>"
                "</circle>"
            )
            for near_x, near_y, names in labels:
                if abs(near_x - x) < TOUCHING and abs(near_y - y) < TOUCHING:
                    names.append(dot.label)
                    break
            else:
                labels.append((x, y, [dot.label]))
        return [*parts, *_labels(labels)]

    def _legend(self, lines: int) -> list[str]:
        parts: list[str] = []
        for number, dot in enumerate(self._dots):
            x = LEFT + WIDTH + 24 + number // lines * LEGEND
            y = TOP + 10 + number % lines * LEGEND_LINE
            parts.append(
                f'<text class="ink" x="{x}" y="{y}">{dot.label}</text>'
                f'<text class="ink" x="{x + 24}" y="{y}">{escape(dot.name)}</text>'
            )
        return parts


def _labels(labels: Sequence[tuple[float, float, list[str]]]) -> list[str]:
    """The names beside their dots, at a place that no other label has, where there is one."""
    parts: list[str] = []
    boxes = [(x - 5, x + 5, y - 5, y + 5) for x, y, _ in labels]
    for x, y, names in labels:
        text = ", ".join(names) if len(names) < 5 else f"{', '.join(names[:4])}, ..."
        size = CHARACTER * len(text)
        places = [(x + dx, y + dy) for dy in (13, -6, 26, -19) for dx in (7, -7 - size)]
        left, base = next((place for place in places if _is_free(boxes, *place, size)), places[0])
        boxes.append((left, left + size, base - 9, base + 2))
        parts.append(f'<text class="ink" x="{left:.1f}" y="{base:.1f}">{text}</text>')
    return parts


def _is_free(
    boxes: Sequence[tuple[float, float, float, float]], left: float, base: float, size: float
) -> bool:
    return not any(
        low < left + size and left < high and top < base + 2 and base - 9 < bottom
        for low, high, top, bottom in boxes
    )


def _tick(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
