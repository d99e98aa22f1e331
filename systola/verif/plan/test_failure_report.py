# SPDX-License-Identifier: Apache-2.0
"""Tests of failure reports, which begin and end with the assertion and the command to repeat."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from systola.sim.first_failure import first_failure

RESULTS = """<testsuites><testsuite tests="2" failures="1">
<testcase classname="m" name="right"/>
<testcase classname="m" name="wrong/rate=1.0"><failure
message="ready is 1, expected 0&#10; +  where get = &lt;m.Model object at 0x7f4bc01f0090&gt;.get"
type="AssertionError">Traceback (most recent call last):
  File "/a/verif/test_m.py", line 12, in wrong
    await bench.step()
  File "/a/site-packages/cocotb/task.py", line 3, in step
    assert self.get("ready") == 0
  File "/a/verif/kit/expect.py", line 19, in expect
    raise AssertionError
AssertionError: ready is 1, expected 0
</failure><properties><property name="sim_time_unit" value="ns"/>
<property name="sim_time_duration" value="375.0"/></properties></testcase>
</testsuite></testsuites>"""


def report_of(folder: Path, source: str, *options: str) -> list[str]:
    """Run pytest on a test file with this source, and return the lines that pytest prints."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "SEED": "17", "SYSTOLA_BUILD": str(folder / "build")}
    for name in ("PRESET", "SIM", "NETLIST", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    plugins = ["-p", "systola.verif.plan.failure_report", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, "test_it.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


def headed(lines: list[str], title: str) -> list[str]:
    """Return the lines that follow the heading with this title in pytest's output."""
    return lines[next(n for n, line in enumerate(lines) if f" {title} " in line) + 1 :]


def test_an_assertion(tmp_path: Path) -> None:
    lines = report_of(tmp_path, "def test_sum():\n    total = 3\n    assert total == 4\n")
    told = [
        "test_it.py:3: assert 3 == 4",
        "repeat with: SEED=17 .venv/bin/pytest 'test_it.py::test_sum'",
    ]
    assert headed(lines, "test_sum")[:2] == told
    # Pytest's very last line, with the number of failed tests, is not compared.
    assert lines[-3:-1] == told


@pytest.mark.parametrize("known", [True, False])
def test_a_cocotb_test(known: bool, tmp_path: Path) -> None:
    """Check that a simulator's log goes to a file, and that the report has the file's name.

    The report shows the log's last lines only if the cocotb test's first failure is not known.
    """
    source = f"""
from systola.sim.runner import TestFailure
def test_unit():
    print(*(f"log {{n}}" for n in range(100)), sep="\\n")
    raise TestFailure("m.py:1: x is 0\\nmore", known={known}, repeat="repeat with: make")
"""
    lines = report_of(tmp_path, source)
    report = headed(lines, "test_unit")
    assert report[:3] == ["m.py:1: x is 0", "repeat with: make", "more"]
    assert headed(lines, "TestFailure, and how to repeat it")[:2] == report[:2]
    assert lines[-3:-1] == report[:2]
    assert "log 79" not in lines
    assert ("log 80" in lines) != known
    (place,) = [line for line in lines if line.startswith("all 100 lines: ")]
    assert Path(place.removeprefix("all 100 lines: ")).read_text().splitlines()[99] == "log 99"


def test_many_failures(tmp_path: Path) -> None:
    """Check that pytest's last section lists five of seven failures, and counts the other two."""
    source = (
        "import pytest\n@pytest.mark.parametrize('n', range(7))\ndef test_n(n):\n    assert n < 0\n"
    )
    lines = report_of(tmp_path, source)
    assert lines[-2] == "... and 2 more, see above"
    assert len(headed(lines, "failed")) == 5 * 2 + 2


def test_first_failure(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(RESULTS)
    failure = first_failure(results)
    assert failure is not None
    assert failure.headline == "/a/verif/test_m.py:12: AssertionError: ready is 1, expected 0"
    assert (failure.test, failure.simulated) == ("wrong/rate=1.0", "375.0 ns")
    results.write_text(RESULTS.replace("<failure", "<skipped").replace("</failure", "</skipped"))
    assert first_failure(results) is None
