# SPDX-License-Identifier: Apache-2.0
"""The first lines of a file that is handed over: its licence, and its maker."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]


def file_header(machine: str, begin: str, end: str = "") -> str:
    """Return comment lines with the licence, Systola's version and commit, and a machine's name.

    `begin` and `end` stand around the text of each line, such as "//", or "<!--" and " -->". Equal
    sources give equal lines: there is no date in them.
    """
    made_by = f"Systola {version('systola')}{_commit()}, machine '{machine}'"
    lines = ("SPDX-License-Identifier: Apache-2.0", made_by)
    return "".join(f"{begin} {line}{end}\n" for line in lines)


@cache
def _commit() -> str:
    """Return the commit of this checkout, "-dirty" if files differ; "" if there is none."""
    if not (_CHECKOUT / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        run = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return f", commit {run.stdout.strip()}" if run.returncode == 0 else ""
