# SPDX-License-Identifier: Apache-2.0
"""A check of the links in Markdown pages, to files and to headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`(?!\])")
"""Pattern of code in a line, except for code that is the whole text of a link."""


def dead_links(pages: Iterable[Path]) -> Iterator[str]:
    """Yield a message for each link that leads to no file or to no heading; web addresses are
    skipped.
    """
    for page in pages:
        text = _CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = page.parent / target if target else page
            if not file.exists():
                yield f"{page}: {link}: no such file"
            elif anchor and anchor not in _anchors(file.read_text(encoding="utf-8")):
                yield f"{page}: {link}: no such heading"


def _anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes for a page's headings."""
    headings = re.findall(r"^#+ +(.*?) *$", _FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}
