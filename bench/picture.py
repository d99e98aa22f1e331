# SPDX-License-Identifier: Apache-2.0
"""Where the cycles go, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from systola.arch.registers import CycleClass

COLOURS = {
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


def picture(title: str, results: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """An SVG with one bar for each result: a label, and a mapping with `cycles` and `counters`."""
    width, left, height, gap = 620, 210, 18, 6
    bottom = 30 + len(results) * (height + gap)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {bottom + 80}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18">{title}</text>',
    ]
    for index, (label, result) in enumerate(results):
        y = 30 + index * (height + gap)
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>')
        x = float(left)
        for which, colour in COLOURS.items():
            share = width * result["counters"][which.name.lower()] / result["cycles"]
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{share:.1f}" height="{height}" fill="{colour}"/>'
            )
            x += share
        parts.append(f'<text x="{x + 6:.0f}" y="{y + 13}">{result["cycles"]:,}</text>')
    for index, (which, colour) in enumerate(COLOURS.items()):
        x, y = left + 130 * (index % 5), bottom + 14 + 20 * (index // 5)
        name = which.name.lower().replace("_", " ")
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
