# SPDX-License-Identifier: Apache-2.0
"""Reads the first failure from the results of cocotb tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

MOST_TEXT = 1000
"""Largest number of characters of a message that is printed in one line."""
_ADDRESS = re.compile(r"^ *\+ +where .* object at 0x[0-9a-f]+>.*\n?", re.MULTILINE)
"""Lines of an assertion's message that name nothing but the object of a method."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (?!expect$)', re.MULTILINE)
"""A line of a traceback; lines of `expect`, which compares values for tests, are left out."""


@dataclass(frozen=True)
class FirstFailure:
    """A cocotb test that failed, before any other test did."""

    test: str
    """Name of the test, with its parameters."""
    headline: str
    """File and line of the assertion, and its message."""
    traceback: str
    simulated: str
    """Simulated time from the start of the test to its failure, with the unit of time."""


def first_failure(results: Path) -> FirstFailure | None:
    """Return the first failure in cocotb's results.xml, None if no test failed.

    The line of the assertion is the innermost one that is not in an installed package.
    """
    for case in ElementTree.parse(results).iter("testcase"):
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        if failure is None:
            continue
        traceback = _ADDRESS.sub("", failure.text or "").rstrip()
        frames = _FRAME.findall(traceback)
        own = [frame for frame in frames if "site-packages" not in frame[0]] or frames
        place = f"{_shown(own[-1][0])}:{own[-1][1]}: " if own else ""
        message = _ADDRESS.sub("", f"{failure.get('message') or ''}\n").splitlines()
        told = "; ".join(line.strip(" +") for line in message if line.strip(" +"))[:MOST_TEXT]
        kept = {each.get("name"): each.get("value") for each in case.iter("property")}
        return FirstFailure(
            case.get("name") or "",
            f"{place}{failure.get('type') or 'failure'}: {told}",
            traceback,
            f"{kept.get('sim_time_duration')} {kept.get('sim_time_unit')}",
        )
    return None


def _shown(path: str) -> str:
    """Return a path as short as it can be from the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
