# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture of docs/synthesis.md, made from the baseline.

`python -m systola.synth.page --write docs` writes them. `--check docs` exits with status 1 if one
is missing or out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.synth import baseline
from systola.synth.picture import picture
from systola.synth.report import fmax
from systola.synth.targets import TARGETS


def synthesis_page() -> str:
    """Return the text of docs/synthesis.md."""
    figures = baseline.stored()
    targets = table(
        ("Target", "Device", "Speed", "Place and route"),
        (
            (
                f"`{target.name}`",
                target.device.removesuffix(", synthesis only"),
                ", ".join(filter(None, target.speeds)) or "-",
                target.place_and_route or "none: synthesis only",
            )
            for target in TARGETS.values()
        ),
    )
    parts = {
        "targets": targets,
        "figures": f"{_resources(figures)}\n{_speeds(figures)}",
        "too-large": _too_large(figures),
        "crossings": f"`small` has {figures[_PLACED]['crossings']}.",
    }
    return filled(DOCS / "synthesis.md", **parts)


def synthesis_picture() -> str:
    """Return the text of docs/synthesis.svg: the first whole machine in the baseline, by unit."""
    for figures in baseline.stored().values():
        if figures["unit"] is None:
            title = f"{figures['device']}, preset {figures['preset']}, by unit"
            return picture(title, figures["units"])
    return picture("no whole machine in the baseline yet", {})


_PICTURE = "synthesis.svg"
_PLACED = "ecp5-85f_small"
"""Name of the design in the baseline that is a whole machine with all figures."""
_LARGEST = 5
"""Number of the largest units that are named if a design does not fit."""
PAGES: Pages = {"synthesis.md": synthesis_page, _PICTURE: synthesis_picture}


def _resources(all_figures: Mapping[str, Any]) -> str:
    kinds = ("lut", "ff", "dsp", "block_ram", "large_ram")
    rows: list[tuple[str, ...]] = []
    for figures in all_figures.values():
        capacity = {kind.value: n for kind, n in TARGETS[figures["target"]].capacity.items()}
        cells = [_used(figures["resources"][kind], capacity.get(kind)) for kind in kinds]
        rows.append((*_design(figures), *cells, _optional(figures["macs_per_dsp"], "{:g}")))
    header = ("Target", "Design", "LUT", "FF", "DSP", "RAM", "large RAM", "MACs per DSP")
    return table(header, rows)


def _speeds(all_figures: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    for figures in all_figures.values():
        for clock in figures["clocks"].values():
            rows.append(
                (
                    *_design(figures),
                    figures["speed"] or "-",
                    fmax(clock, digits=0),
                    _optional(figures["gops"], "{:.1f}"),
                    _path(clock["critical_path"]),
                )
            )
    return table(("Target", "Design", "Speed", "Fmax", "GOPS", "Critical path"), rows)


def _too_large(all_figures: Mapping[str, Any]) -> str:
    rows = [
        (
            *_design(figures),
            ", ".join(figures["lacks"]),
            ", ".join(
                f"{name} {unit['lut']:,g}"
                for name, unit in sorted(
                    figures["units"].items(), key=lambda item: item[1]["lut"], reverse=True
                )[:_LARGEST]
            ),
        )
        for figures in all_figures.values()
        if figures["lacks"]
    ]
    header = ("Target", "Design", "Needs", "LUTs of the largest units")
    return f"\nSynthesised, but not placed:\n\n{table(header, rows)}"


def _path(path: Mapping[str, Any] | None) -> str:
    if path is None:
        return "-"
    times = f"{path['logic']:.1f} ns logic, {path['routing']:.1f} ns wires"
    return f"`{path['start']}` to `{path['end']}`, {times}"


def _design(figures: Mapping[str, Any]) -> tuple[str, str]:
    what = figures["preset"]
    if figures["unit"]:
        what = f"{figures['unit']} of {what}"
    elif figures["cores"]:
        what = f"{figures['cores']} cores of {what}"
    return f"`{figures['target']}`", what


def _used(count: float, available: int | None) -> str:
    if not available:
        return "-"
    return f"{count:,.0f} ({100 * count / available:.0f} %)"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page, and return the exit status."""
    return write_or_check(PAGES, "systola.synth.page", arguments)


if __name__ == "__main__":
    sys.exit(main())
