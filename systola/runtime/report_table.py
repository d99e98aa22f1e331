# SPDX-License-Identifier: Apache-2.0
"""A report as a table of text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from systola.compiler.printable import printable
from systola.runtime.report import HOST, LayerRow, Report
from systola.timing.energy import Energy

NOTHING = "-"
WIDTH = 118
"""Length of the longest line, in characters."""
OPERATOR_WIDTH = 22
SHAPE_WIDTH = 13
ENERGY_PARTS = 3
"""Largest number of parts of the machine that are named with their energy."""

Column = tuple[str, int, Callable[[LayerRow], str]]
"""A column: heading, width (negative if aligned to the left), and the function that writes the cell
of a row."""

COLUMNS: tuple[Column, ...] = (
    ("layer", -OPERATOR_WIDTH, lambda row: shortened(short_name(row.operator), OPERATOR_WIDTH)),
    ("result", -SHAPE_WIDTH, lambda row: shortened(shape_text(row.shape), SHAPE_WIDTH)),
    ("MACs", 6, lambda row: compact(row.macs) if row.macs else NOTHING),
    ("estimate", 10, lambda row: cycles(row.estimated_cycles)),
    ("measured", 10, lambda row: cycles(row.measured_cycles)),
    ("use", 6, lambda row: percent(row.utilization)),
    ("limited by", -10, lambda row: row.limit or (row.place if row.place == HOST else NOTHING)),
    ("in", 6, lambda row: compact(row.host_in) if row.host_in else NOTHING),
    ("out", 6, lambda row: compact(row.host_out) if row.host_out else NOTHING),
    ("weights", 7, lambda row: compact(row.weights) if row.weights else NOTHING),
    ("share", 6, lambda row: percent(row.share)),
)


def report_table(report: Report) -> str:
    """Write the layers of a network, one line each, and their sums, at most WIDTH columns wide.

    Cycles and bytes are averages of one inference. The work of the host is named below the table,
    because it takes none of the machine's cycles.
    """
    lines = [_line([_aligned(heading, width) for heading, width, _ in COLUMNS])]
    for row in report.rows:
        lines.append(_line([_aligned(cell(row), width) for _, width, cell in COLUMNS]))
    total = LayerRow(
        operator="total",
        place="",
        shape=(),
        macs=report.macs,
        estimated_cycles=report.estimated_cycles,
        measured_cycles=report.measured_cycles,
        utilization=report.utilization,
        host_in=sum(row.host_in for row in report.rows),
        host_out=sum(row.host_out for row in report.rows),
        weights=sum(row.weights for row in report.rows),
        share=1.0,
    )
    lines.append("-" * len(lines[0]))
    lines.append(_line([_aligned(cell(total), width) for _, width, cell in COLUMNS]))
    on_host = [
        f"{short_name(row.operator)} ({row.elements:,} elements, {percent(row.work)})"
        for row in report.rows
        if row.place == HOST and row.elements
    ]
    if on_host:
        text = f"on the host, with their share of all operations: {', '.join(on_host)}"
        lines += textwrap.wrap(text, WIDTH)
    if report.inferences_per_second is not None:
        lines.append(
            f"{significant(report.inferences_per_second)} inferences a second at {report.mhz:g} MHz"
        )
    return "\n".join([*lines, *energy_lines("an inference", report.energy)])


def energy_lines(work: str, energy: Sequence[Energy]) -> list[str]:
    """Return two lines about the energy of some work.

    The first line has the energy in each technology. The second line has the parts of the machine
    that take most of the energy in the first technology.
    """
    found = [each for each in energy if each.joules]
    if not found:
        return []
    texts = [
        f"{joules(each.joules)} at {each.technology} ({tops_per_watt(each.tops_per_watt)})"
        for each in found
    ]
    first = found[0]
    named = first.largest[:ENERGY_PARTS]
    parts = [f"{name} {percent(share)}" for name, share in named]
    if rest := 1 - sum(share for _, share in named):
        parts.append(f"others {percent(rest)}")
    return [
        f"energy of {work} by published constants: {', '.join(texts)}",
        f"  of that at {first.technology}: {', '.join(parts)}",
    ]


def joules(energy: float) -> str:
    """Write an energy in three digits or more: 1.20 uJ."""
    for unit, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")):
        if energy >= unit:
            return f"{significant(energy / unit)} {prefix}J"
    return f"{significant(energy / 1e-12)} pJ"


def tops_per_watt(tops: float | None) -> str:
    """Write 10^12 operations a second for each watt; None is a network without operations."""
    return "no operations" if tops is None else f"{tops:.3f} TOPS/W"


def _aligned(text: str, width: int) -> str:
    return text.ljust(-width) if width < 0 else text.rjust(width)


def _line(cells: list[str]) -> str:
    return " ".join(cells).rstrip()


def short_name(operator: str) -> str:
    """Return `3 CONV_2D` for `operator 3 (CONV_2D)`, and `3 Conv` for `node 3 (Conv 'name')`.

    Text before these stays, as in `transpose for 3 Conv`. Any other text stays, too, in printable
    characters.
    """
    short = re.sub(r"(?:operator|node) (\d+) \((\w+)[^()]*\)", r"\1 \2", operator)
    return printable(short)


def shape_text(shape: tuple[int, ...]) -> str:
    """Write the shape (1, 32, 32, 16) as `32x32x16`, without a leading 1."""
    return "x".join(map(str, shape[1:] if shape[:1] == (1,) and len(shape) > 1 else shape))


def shortened(text: str, width: int) -> str:
    """Return `text` in `width` characters; the end of a longer text is cut off."""
    return text if len(text) <= width else text[: width - 2] + ".."


def cycles(count: float | None) -> str:
    """Write a number of cycles; None is an unknown number."""
    if count is None:
        return NOTHING
    return f"{count:,.0f}" if count >= 100 else f"{count:.1f}"


def percent(share: float | None) -> str:
    """Write a share in per cent; None is an unknown share."""
    if share is None:
        return NOTHING
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 else "100 %"


def compact(number: float) -> str:
    """Write a number in five characters: 512, 12.3k, 4.72M."""
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{significant(number / unit)}{suffix}"
    return significant(number)


def significant(number: float) -> str:
    """Write a number with at least three digits."""
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}".removesuffix(".00")
