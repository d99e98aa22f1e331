# SPDX-License-Identifier: Apache-2.0
"""Pages in docs/ that are made from the code, and the command that writes or checks them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

Pages = Mapping[str, Callable[[], str]]
"""File name and generator of each page."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, with a blank line behind it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(header) + "|" + " --- |" * len(header) + "\n" + "".join(map(line, rows))


def write_or_check(pages: Pages, module: str, arguments: Sequence[str] | None = None) -> int:
    """What `python -m MODULE --write DIR` and `--check DIR` do; the exit status.

    It is 1 where a page is missing or out of date.
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
