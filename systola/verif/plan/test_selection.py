# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice of quick tests, the tests that depend on a unit, and the time budget."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from systola.verif.plan import budget
from systola.verif.plan.dependents import WHOLE_MACHINE, UnknownUnitError, dependents

TESTS = """
import pytest
from systola.verif.plan.selection import thorough

@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize("variant", ["first", "second"])
@pytest.mark.parametrize("seed", [1, thorough(2)])
def test_unit(simulator, variant, seed): pass

@pytest.mark.thorough
def test_long(): pass

def test_short(): pass
"""
ON_ICARUS = "test_unit[1-first-icarus]"
ON_VERILATOR = "test_unit[1-first-verilator]"


def chosen(folder, *options, **environment):
    """Return the names of the tests that pytest collects, and pytest's error messages."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    plugin = ["-p", "systola.verif.plan.selection", "-W", "ignore"]
    done = subprocess.run(
        [*command, *plugin, *options, "."],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", **environment},
        capture_output=True,
        text=True,
    )
    names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    return names, done.stderr


@pytest.fixture(params=["units/parts", "system"])
def folder(request, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough\n")
    tests = tmp_path / "verif" / request.param
    tests.mkdir(parents=True)
    (tests / "test_walker.py").write_text(TESTS)
    return tests


def test_quick_and_rest_are_all(folder):
    quick, rest, everything = (chosen(folder, *o)[0] for o in (["--quick"], ["--rest"], []))
    icarus = shutil.which("iverilog") and folder.name == "parts"
    assert quick == [ON_ICARUS if icarus else ON_VERILATOR, "test_short"]
    other = "verilator" if icarus else "icarus"
    repeated = [name for name in everything if other in name and folder.name == "parts"]
    assert len(everything) == 10 and len(repeated) == (4 if folder.name == "parts" else 0)
    assert sorted([*quick, *rest, *repeated]) == sorted(everything)


def test_of_a_unit(folder):
    names, _ = chosen(folder, "--quick", UNIT="walker")
    assert bool(names) == (folder.name == "parts")
    assert chosen(folder, UNIT="mxu")[0] == []
    names, said = chosen(folder, UNIT="waker")
    assert names == [] and "unknown unit 'waker' (did you mean walker?)" in said


def test_nothing_is_left_of_both(folder):
    assert "together leave nothing" in chosen(folder, "--quick", "--rest")[1]


@pytest.mark.parametrize(
    ("unit", "tests"),
    [
        (
            "walker",
            {
                *("parts/test_walker", "matrix/test_matrix_unit"),
                *("activation/test_activation_unit", "activation/test_reservations"),
                "test_promise_faults",
            },
        ),
        (
            "decoder",
            {
                *("control/test_decoder", "control/test_sequenced_decoder"),
                *("control/test_numbered_scoreboard", "control/test_command_memory"),
            },
        ),
        (
            "multiplier_row_ecp5",
            {
                *("matrix/test_multiplier_row", "matrix/test_mxu_tile"),
                *("matrix/test_mxu", "matrix/test_matrix_unit"),
            },
        ),
        ("tpu", set()),
    ],
)
def test_dependents(unit, tests):
    """Check that the tests found for a unit instantiate it, directly or inside another unit.

    Tests that only use a constant of the unit are not found.
    """
    assert dependents(unit) == {*(f"units/{test}" for test in tests), *WHOLE_MACHINE}


def test_a_file_without_a_unit():
    assert {"units/control/test_decoder", "units/parts/test_walker"} < dependents("commands")
    with pytest.raises(UnknownUnitError, match=r"unknown unit 'mux' \(did you mean mxu"):
        dependents("mux")


REPORT = """<testsuites><testsuite>
<testcase classname="verif.units.matrix.test_mxu" name="test_mxu[a]"><properties>
<property name="processor_seconds" value="2.5"/></properties></testcase>
<testcase classname="verif.units.matrix.test_mxu" name="test_mxu[b]"><properties>
<property name="processor_seconds" value="1"/></properties></testcase>
</testsuite></testsuites>"""


def test_measured(tmp_path):
    (tmp_path / "tests.xml").write_text(REPORT)
    assert budget.measured(tmp_path / "tests.xml") == {
        "units/matrix/test_mxu": {"tests": 2, "seconds": 3.5}
    }


def test_over_the_budget():
    stored = {"modules": {"units/matrix/test_mxu": {"tests": 2, "seconds": budget.BUDGET + 1.0}}}
    (line,) = budget.problems(stored, {"units/matrix/test_mxu": 2})
    assert line.endswith("most in units/matrix/test_mxu")


@pytest.mark.parametrize("count", [1, 3])
def test_other_tests_than_were_measured(count):
    stored = {"modules": {"units/matrix/test_mxu": {"tests": 2, "seconds": 1.0}}}
    assert budget.problems(stored, {"units/matrix/test_mxu": 2}) == []
    assert len(budget.problems(stored, {"units/matrix/test_mxu": count})) == 1
    assert len(budget.problems(stored, {"units/matrix/test_mxu": 2, "units/test_new": count})) == 1


def test_stored_times():
    """Check that the quick tests' stored processor times are within the budget.

    `make lint` compares the stored number of tests in each module with the present number.
    """
    stored = json.loads(budget.STORED.read_text())
    tests = {module: each["tests"] for module, each in stored["modules"].items()}
    assert budget.problems(stored, tests) == []
