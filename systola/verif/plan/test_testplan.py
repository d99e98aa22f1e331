# SPDX-License-Identifier: Apache-2.0
"""Tests that the testplan agrees with the tests and the machine, and that its checks work."""

from dataclasses import replace

import pytest

from systola.arch.isa import Opcode
from systola.verif.kit.checkout import ROOT
from systola.verif.plan.testplan import (
    RESULTS,
    features,
    main,
    page,
    problems,
    summary,
    verdicts,
)

RUN = """<testsuites><testsuite>
<testcase classname="verif.system.test_faults" name="test_faults[verilator]"/>
<testcase classname="verif.system.test_faults" name="test_many_faults[1]"><failure/></testcase>
<testcase classname="verif.units.matrix.test_mxu" name="test_mxu[a]"><skipped type="pytest.skip"/>
</testcase>
<testcase classname="verif.units.matrix.test_mxu" name="test_mxu[b]"><skipped type="pytest.xfail"/>
</testcase>
</testsuite></testsuites>"""


def named(name):
    return next(feature for feature in features() if feature.name == name)


def test_plan_is_complete():
    assert problems(features()) == []


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "testplan.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", ["isa.convolve", "fault.loop", "unit.mxu"])
def test_a_missing_feature_is_noticed(name):
    assert f"{name} is not in the plan" in problems([f for f in features() if f.name != name])


def test_every_instruction_is_expected():
    missing = problems([])
    for opcode in Opcode:
        assert any(f"isa.{opcode.name.lower()} " in line for line in missing)


def test_a_module_without_a_feature_is_noticed():
    assert "units/matrix/test_mxu is in no feature's tests" in problems([])


@pytest.mark.parametrize("test", ["units/test_nothing", "units/matrix/test_mxu:nothing"])
def test_a_missing_test_is_noticed(test):
    feature = replace(named("unit.mxu"), tests=(test,))
    assert f"unit.mxu: no test {test}" in problems([feature])


def test_a_feature_without_tests_is_noticed():
    assert "unit.mxu: no tests" in problems([replace(named("unit.mxu"), tests=())])


def test_an_unknown_stage_is_noticed():
    assert "unit.mxu: no stage 4" in problems([replace(named("unit.mxu"), stage=4)])


def test_verdicts(tmp_path):
    file = tmp_path / "tests.xml"
    file.write_text(RUN)
    found = verdicts(file)
    assert summary(named("unit.mxu"), found) == {"skipped": 1, "expected failure": 1}
    function = replace(named("fault.loop"), tests=("system/test_faults:test_faults",))
    assert summary(function, found) == {"passed": 1}
    inside = replace(function, tests=("system/test_faults:bus_error",))
    assert summary(inside, found) == {"passed": 1, "failed": 1}


def test_report(tmp_path, capsys):
    file = tmp_path / "tests.xml"
    file.write_text(RUN)
    assert main([RESULTS, str(file)]) == 1
    lines = [
        line.split("stage")[0].rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()
    ]
    assert ["NOT SHOWN", "unit.mxu"] in lines
    assert ["shown", "unit.tpu"] not in lines
    file.write_text(RUN.replace("<failure/>", ""))
    main([RESULTS, str(file)])
    assert "shown     fault.illegal_field " in capsys.readouterr().out


def test_report_without_a_run(tmp_path, capsys):
    assert main([RESULTS, str(tmp_path / "none.xml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
