# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture of docs/original.md, and the table of the README, from results.json.

`python -m systola.bench.original.page --write docs` writes them. `--check docs` exits with status 1
if one of them is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from systola.arch.pages import DOCS, Pages, filled, quoted, table, write_or_check
from systola.bench.energy import originals
from systola.bench.original.prediction import stored as predictions
from systola.bench.original.result import stored
from systola.bench.original.roofline import roofline
from systola.bench.original.shapes import applications
from systola.bench.original.table import energy, short_table, table_3, what_if
from systola.bench.table import README
from systola.views.plots import to_svg


def page() -> str:
    """Return the text of docs/original.md."""
    results = stored()
    runs = table(
        ("Application", "cycles", "timing model", "golden model", "simulation", "date, commit"),
        [
            (
                name.upper(),
                f"{result.cycles:,}",
                f"{result.estimate:,} ({100 * (result.estimate / result.cycles - 1):+.2f} %)",
                f"{result.golden_seconds} s",
                f"{result.seconds:,} s, {result.cycles / result.seconds:,.0f} cycles/s",
                f"{result.date}, {result.commit}",
            )
            for name, result in results.items()
        ],
    )
    assumptions = "".join(
        f"- **{application.title}**, {application.batch} at a time: "
        + " ".join(application.assumptions)
        + "\n"
        for application in applications().values()
    )
    return filled(
        DOCS / "original.md",
        table_3=table_3(results, predictions()),
        runs=runs,
        assumptions=assumptions,
        what_if=what_if(predictions()),
        energy=energy(originals(), results),
    )


PAGES: Pages = {
    "original.md": page,
    "original.svg": lambda: to_svg(roofline(stored())).decode(),
}


def write_pages() -> None:
    """Write the page, its picture, and the table of the README."""
    for name, content in PAGES.items():
        (DOCS / name).write_text(content(), encoding="utf-8")
    README.write_text(filled(README, original=short_table(stored(), predictions())))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page, and return the exit status."""
    status = write_or_check(PAGES, "systola.bench.original.page", arguments)
    if quoted(README, "original") != short_table(stored(), predictions()).strip():
        print("README.md is out of date: run make bench-original", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
