# SPDX-License-Identifier: Apache-2.0
"""docs/trust.md: `python -m systola.verif.figures.page --write docs`, or `--check docs`."""

from __future__ import annotations

import sys

from systola.arch.isa import INSTRUCTIONS, Fault
from systola.arch.pages import Pages, table, write_or_check
from systola.verif.figures.campaigns import CAMPAIGNS
from systola.verif.figures.record import Figure, stored
from systola.verif.plan.testplan import features

_INTRODUCTION = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by `python -m systola.verif.figures.page --write docs` from verif/figures/figures.json.
     Edit verif/figures/ instead. -->

# How far the machine can be believed

Every row is a run at the commit that it names. `make figures` makes all of them again, which takes
hours, and `make figures CAMPAIGN=errors` some; the command in a row makes its run alone. A
smaller run of each belongs to `make test`.
"""

_END = """
The proofs, one by one, are in [formal.md](formal.md); each feature and the tests that show it in
[testplan.md](testplan.md). Which faults were not found, and what would find them, is in
[mutants.md](mutants.md).
"""


def page() -> str:
    """The text of docs/trust.md."""
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
        f"The testplan has {len(plan)} features; each of the {len(INSTRUCTIONS)} instructions,\n"
        f"each of the {len(Fault) - 1} causes of faults and each unit is one.\n"
    )
    parts = [_INTRODUCTION, text, table(("What", "Result", "Again", "When"), rows)]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    return "\n".join(parts) + _END


def _result(figure: Figure) -> str:
    text = "; ".join(figure.results) or "no result"
    return text if figure.passed else f"FAILED: {text}"


PAGES: Pages = {"trust.md": page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.verif.figures.page"))
