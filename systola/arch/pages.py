# SPDX-License-Identifier: Apache-2.0
"""Pages and parts of pages that are made from the code, and the command for them.

Some pages are made as a whole. In other pages only the parts between marks are made:

    <!-- NAME: written by COMMAND -->
    ...
    <!-- NAME: end -->
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
Pages = Mapping[str, Callable[[], str]]
"""File name of each page, with the function that makes it."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a Markdown table that ends with a newline."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(header) + "|" + " --- |" * len(header) + "\n" + "".join(map(line, rows))


def filled(page: Path, **parts: str) -> str:
    """Return the text of a page with each of `parts` between the marks of its name."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        before, _, after = _split(text, name)
        text = f"{before}\n{part.strip()}\n{after}"
    return text


def quoted(page: Path, name: str) -> str:
    """Return the text between the marks of `name` in a page."""
    return _split(page.read_text(encoding="utf-8"), name)[1].strip()


def _split(page: str, name: str) -> tuple[str, str, str]:
    """Split a page into the text up to the begin mark, the text between, and the rest."""
    end = f"<!-- {name}: end -->"
    found = re.search(rf"(<!-- {name}: written by [^>]+ -->)(.*?){end}", page, re.DOTALL)
    if found is None:
        raise LookupError(f"the page has no marks of '{name}'")
    return page[: found.end(1)], found[2], page[found.end(2) :]


def write_or_check(pages: Pages, module: str, arguments: Sequence[str] | None = None) -> int:
    """Write or check pages for `python -m MODULE --write DIR` or `--check DIR`; return the exit
    status.

    The status is 1 if a page is missing or out of date.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", metavar="DIR", type=Path, help="write the pages into DIR")
    action.add_argument("--check", metavar="DIR", type=Path, help="compare DIR with the pages")
    options = parser.parse_args(arguments)
    if options.write is not None:
        for name, page in pages.items():
            (options.write / name).write_text(page(), encoding="utf-8")
        return 0
    stale = [name for name, page in pages.items() if not _same(options.check / name, page())]
    for name in stale:
        print(
            f"{options.check / name} is out of date: run python -m {module} "
            f"--write {options.check}",
            file=sys.stderr,
        )
    return 1 if stale else 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
