# SPDX-License-Identifier: Apache-2.0
"""When something was measured, and on what; `make bench` leaves its own moment in moment.json."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

STORED = Path(__file__).with_name("moment.json")


def today() -> str:
    """The date, YYYY-MM-DD, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def commit() -> str:
    """The commit that is checked out; "unknown" outside a repository."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    here = Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"


def commit_and_changes() -> str:
    """Return the commit, with " with changes" where sources differ from it or git fails."""
    command = ["git", "status", "--porcelain", "--", ":/*.py", ":/*.cpp"]
    here = Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return f"{commit()} with changes" if run.stdout.strip() or run.returncode else commit()


def store() -> None:
    """Leaves the moment of a measurement of all workloads."""
    STORED.write_text(json.dumps({"date": today(), "commit": commit()}, indent=1) + "\n")


def stored_line() -> str:
    """What is said of it under the tables."""
    moment = json.loads(STORED.read_text())
    return f"Measured on {moment['date']}, commit {moment['commit']}."


def computer() -> str:
    """Processor and number of cores."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return f"{processor}, {os.cpu_count()} cores"
