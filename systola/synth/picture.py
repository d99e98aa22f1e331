# SPDX-License-Identifier: Apache-2.0
"""The picture of the look-up tables and registers of a machine, by unit."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

_COLOURS = {"lut": ("LUT", "#2a7f62"), "ff": ("FF", "#335c81")}


def picture(title: str, units: Mapping[str, Mapping[str, float]]) -> str:
    """Return an SVG with a pair of bars for each unit, the largest first."""
    width, left, height, gap = 460, 140, 9, 8
    ordered = sorted(units.items(), key=lambda item: -item[1]["lut"])
    longest = max((unit[kind] for unit in units.values() for kind in _COLOURS), default=0) or 1
    step = 2 * height + gap
    bottom = 30 + len(ordered) * step
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {bottom + 24}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18">{escape(title)}</text>',
    ]
    for index, (name, unit) in enumerate(ordered):
        top = 30 + index * step
        label = escape(name.replace("_", " "))
        parts.append(f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{label}</text>')
        for row, (kind, (_, colour)) in enumerate(_COLOURS.items()):
            y, length = top + row * height, width * unit[kind] / longest
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{height}" fill="{colour}"/>'
            )
            parts.append(
                f'<text x="{left + length + 5:.0f}" y="{y + 8}" font-size="9">{unit[kind]:,.0f}'
                "</text>"
            )
    for index, (name, colour) in enumerate(_COLOURS.values()):
        x = left + 80 * index
        parts.append(f'<rect x="{x}" y="{bottom + 6}" width="12" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{bottom + 15}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
