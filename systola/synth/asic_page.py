# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/asic.md, which `--write docs` writes and `--check docs` checks."""

from __future__ import annotations

import sys

from systola.arch.pages import DOCS, Pages, filled, write_or_check
from systola.synth.asic_report import report_table, stored
from systola.synth.removed_registers import removed_table


def page() -> str:
    """Return the text of docs/asic.md."""
    reports = "\n".join(map(report_table, stored())) or "Nothing has been mapped yet.\n"
    removed = "\n".join(
        f"`{report.preset}`: {removed_table(report.removed)}"
        for report in stored()
        if report.removed
    )
    return filled(DOCS / "asic.md", reports=reports, removed=removed)


PAGES: Pages = {"asic.md": page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.synth.asic_page"))
