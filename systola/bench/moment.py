# SPDX-License-Identifier: Apache-2.0
"""The date, commit and computer of a measurement; moment.json has the last `make bench`."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

STORED = Path(__file__).with_name("moment.json")


def today() -> str:
    """Return the date, YYYY-MM-DD, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def commit() -> str:
    """Return the commit that is checked out; "unknown" outside a repository."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    here = Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"


def commit_and_changes() -> str:
    """Return the commit; " with changes" is added if sources differ from it or git fails."""
    command = ["git", "status", "--porcelain", "--", ":/*.py", ":/*.cpp"]
    here = Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return f"{commit()} with changes" if run.stdout.strip() or run.returncode else commit()


def store() -> None:
    """Store date and commit of a measurement of all workloads."""
    STORED.write_text(json.dumps({"date": today(), "commit": commit()}, indent=1) + "\n")


def stored_line() -> str:
    """Return the line with date and commit under the tables."""
    moment = json.loads(STORED.read_text())
    return f"Measured on {moment['date']}, commit {moment['commit']}."


def computer() -> str:
    """Return the processor and the number of cores."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return f"{processor}, {os.cpu_count()} cores"
