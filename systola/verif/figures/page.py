# SPDX-License-Identifier: Apache-2.0
"""The page docs/trust.md with its tables, which `--write docs` writes and `--check docs` checks."""

from __future__ import annotations

import sys

from systola.arch.isa import BY_OPCODE, Fault
from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.verif.figures.campaigns import CAMPAIGNS
from systola.verif.figures.record import Figure, stored
from systola.verif.nightly import history as nightly
from systola.verif.plan.testplan import features
from systola.verif.soak import history


def page() -> str:
    """Return the text of docs/trust.md."""
    plan = features()
    known = stored()
    missing = [campaign.name for campaign in CAMPAIGNS if campaign.name not in known]
    rows = [
        (
            campaign.what,
            _result(figure),
            f"`{campaign.command.format(seed=figure.seed)}`",
            f"{figure.date}, {figure.commit}, {figure.seconds} s",
        )
        for campaign in CAMPAIGNS
        if (figure := known.get(campaign.name))
    ]
    text = (
        f"The testplan has {len(plan)} features; each of the {len(BY_OPCODE)} instructions,\n"
        f"each of the {len(Fault) - 1} causes of faults and each unit is one.\n"
    )
    campaigns = table(("What", "Result", "Again", "When"), rows)
    if missing:
        campaigns += f"\nNot run yet: {', '.join(missing)}.\n"
    nights = nightly.shown(nightly.stored())
    soak = history.shown(history.stored())
    return filled(DOCS / "trust.md", plan=text, campaigns=campaigns, soak=soak, nightly=nights)


def _result(figure: Figure) -> str:
    text = "; ".join(figure.results) or "no result"
    return text if figure.passed else f"FAILED: {text}"


PAGES: Pages = {"trust.md": page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.verif.figures.page"))
