# SPDX-License-Identifier: Apache-2.0
"""The roofline of the paper's Figure 5, with its applications and ours, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

from systola.arch.config import PRESETS
from systola.bench.original.paper import MEASURED
from systola.bench.original.result import MHZ, PRESET, Result
from systola.compiler.plan import tile_cycles

WIDTH, HEIGHT, LEFT, TOP = 640, 400, 60, 34
X, Y = (10.0, 10_000.0), (1.0, 200.0)
"""What the axes show: multiply-accumulates for each byte of weights, and TOPS."""
THEIRS, OURS = "#c44536", "#2a6fb0"


def roofline(results: Mapping[str, Result]) -> str:
    """An SVG: the roof, a ring for each application of the paper, a dot for each of ours."""
    config = PRESETS[PRESET]
    peak = 2 * config.peak_macs * MHZ / 1e6
    bytes_a_cycle = float(config.tile_bytes / tile_cycles(config))
    slope = 2 * bytes_a_cycle * MHZ / 1e6
    """TOPS for each multiply-accumulate that a byte of weights has."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} '
        f'{TOP + HEIGHT + 50}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18">{peak:.0f} TOPS at {MHZ} MHz, weights at '
        f'{bytes_a_cycle:.1f} bytes a cycle: <tspan fill="{THEIRS}">the original (rings)</tspan>, '
        f'<tspan fill="{OURS}">this machine on the RTL (dots)</tspan></text>',
    ]
    for x in (10, 100, 1_000, 10_000):
        parts.append(_line(x, Y[0], x, Y[1], "#d8dee4"))
        parts.append(_text(x, Y[0], f"{x:,}", dy=16, anchor="middle"))
    for y in (1, 10, 100):
        parts.append(_line(X[0], y, X[1], y, "#d8dee4"))
        parts.append(_text(X[0], y, f"{y}", dx=-8, dy=4, anchor="end"))
    parts.append(_line(X[0], slope * X[0], peak / slope, peak, "#24292f"))
    parts.append(_line(peak / slope, peak, X[1], peak, "#24292f"))
    middle, bottom = LEFT + WIDTH / 2, TOP + HEIGHT + 36
    parts.append(
        f'<text x="{middle}" y="{bottom}" text-anchor="middle">multiply-accumulates for each byte '
        "of weights</text>"
    )
    parts.append(
        f'<text transform="translate(16 {TOP + HEIGHT / 2}) rotate(-90)" '
        'text-anchor="middle">TOPS</text>'
    )
    for name, measured in MEASURED.items():
        x, y = _place(measured.macs_a_byte, measured.tops)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="{THEIRS}" '
            'stroke-width="2"/>'
        )
        parts.append(_text(measured.macs_a_byte, measured.tops, name.upper(), dx=9, dy=14))
        if result := results.get(name):
            x, y = _place(result.macs / result.weight_bytes, result.tops)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{OURS}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _place(x: float, y: float) -> tuple[float, float]:
    across = log10(x / X[0]) / log10(X[1] / X[0])
    up = log10(y / Y[0]) / log10(Y[1] / Y[0])
    return LEFT + WIDTH * across, TOP + HEIGHT * (1 - up)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    (a, b), (c, d) = _place(x1, y1), _place(x2, y2)
    return f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, dx: int = 0, dy: int = 0, anchor: str = "start") -> str:
    across, down = _place(x, y)
    return f'<text x="{across + dx:.1f}" y="{down + dy:.1f}" text-anchor="{anchor}">{text}</text>'
