# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/formal.md, made from the proofs.

`python -m systola.verif.formal.page --write docs` writes them. `--check docs` exits with status 1
if they are out of date.
"""

from __future__ import annotations

import sys

from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.verif.formal.proofs import PROOFS
from systola.verif.formal.reached import reached_table


def formal_page() -> str:
    """Return the text of docs/formal.md."""
    proofs = table(
        ("Unit", "Claim", "Proven", "Faults found"),
        (
            (f"`{proof.unit}`", proof.claim, proof.method, str(len(proof.faults)))
            for proof in PROOFS
        ),
    )
    return filled(DOCS / "formal.md", proofs=proofs, reached=reached_table())


PAGES: Pages = {"formal.md": formal_page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.verif.formal.page"))
