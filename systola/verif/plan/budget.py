# SPDX-License-Identifier: Apache-2.0
"""The processor time of the quick tests, and a check that it stays within their budget.

As a pytest plugin, this module adds the processor time of each test to pytest's JUnit report. The
times are measured by a run of `make test` with nothing built. `--write FILE` then copies the times
from the report FILE to quick.json. `--check` exits with status 1 if the stored times exceed the
budget. It also does so if modules have more or fewer quick tests than were measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from systola.verif.kit.checkout import ROOT

BUDGET = 790
"""Budget of the quick tests in seconds of processor time, with nothing built before.

On two cores, this budget is six and a half minutes of wall time."""
STORED = Path(__file__).with_name("quick.json")
_PROPERTY = "processor_seconds"
_started = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_started] = _processor_time()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "teardown" and _started in item.stash:
        item.user_properties.append((_PROPERTY, f"{_processor_time() - item.stash[_started]:.2f}"))


def _processor_time() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measured(report: Path) -> dict[str, dict[str, float]]:
    """Return the number of tests, and their processor seconds, of each test module in a report.

    The report is a JUnit file. Modules have names such as "cli/test_gemm".
    """
    counts: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        names = case.attrib["classname"].partition("verif.")[2].split(".")
        module = "/".join(name for name in names if not name.startswith("Test"))
        counts[module] += 1
        for entry in case.iter("property"):
            if entry.attrib["name"] == _PROPERTY:
                seconds[module] += float(entry.attrib["value"])
    return {
        module: {"tests": counts[module], "seconds": round(seconds[module], 1)}
        for module in sorted(counts)
    }


def collected() -> Counter[str]:
    """Return the present number of quick tests in each test module, as pytest collects them."""
    command = [sys.executable, "-m", "pytest", "--quick", "--collect-only", "-q", "-p", "no:xdist"]
    environment = {k: v for k, v in os.environ.items() if k not in ("TEST", "UNIT", "SIM")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    names = (line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line)
    return Counter(name.removeprefix("verif/").removesuffix(".py") for name in names)


def problems(stored: Mapping[str, Any], tests: Mapping[str, int]) -> list[str]:
    """Return a line for each problem of the stored times.

    The times may exceed the budget, or a module may not have as many tests as were measured.
    """
    modules = stored["modules"]
    found = [
        f"{module}: {modules.get(module, {}).get('tests', 0)} quick tests were measured, "
        f"there are {tests.get(module, 0)}"
        for module in sorted({*modules, *tests})
        if modules.get(module, {}).get("tests", 0) != tests.get(module, 0)
    ]
    total = sum(each["seconds"] for each in modules.values())
    if total > BUDGET:
        slowest = sorted(modules, key=lambda module: -modules[module]["seconds"])[:5]
        found.append(
            f"the quick tests take {total:.0f} seconds of the {BUDGET} they may; most in "
            f"{', '.join(slowest)}"
        )
    return found


def main(arguments: Sequence[str]) -> int:
    """Run `--check`, or `--write FILE` and then the check, and return the exit status."""
    if arguments[0] == "--write":
        modules = measured(Path(arguments[1]))
        entry = {"measured": datetime.now(UTC).strftime("%Y-%m-%d"), "modules": modules}
        STORED.write_text(json.dumps(entry, indent=1) + "\n")
    found = problems(json.loads(STORED.read_text()), collected())
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("mark tests thorough, or measure again: make test-budget", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
