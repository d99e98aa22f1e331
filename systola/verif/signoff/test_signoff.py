# SPDX-License-Identifier: Apache-2.0
"""Tests that the sign-off checklist has OpenTitan's items, and that its evidence exists."""

from __future__ import annotations

import re

import pytest

from systola.arch.pages import DOCS
from systola.verif.kit.checkout import PACKAGE
from systola.verif.signoff.page import (
    FOUND,
    ROOT,
    STAGES,
    VERDICTS,
    assumptions,
    bugs,
    checklist,
    facts,
    point_waivers,
)

LINES = """
D2 NEW_FEATURES BLOCK_DIAGRAM DOC_INTERFACE DOC_INTEGRATION_D2 MISSING_FUNC FEATURE_FROZEN
   FEATURE_COMPLETE PORT_FROZEN ARCHITECTURE_FROZEN REVIEW_TODO STYLE_X CDC_SYNCMACRO LINT_PASS
   CDC_SETUP RDC_SETUP AREA_CHECK TIMING_CHECK SEC_CM_DOCUMENTED
D3 NEW_FEATURES_D3 DOC_INTEGRATION_D3 TODO_COMPLETE LINT_COMPLETE CDC_COMPLETE RDC_COMPLETE
   REVIEW_RTL REVIEW_DELETED_FF REVIEW_SW_CHANGE REVIEW_SW_ERRATA
V2 DESIGN_DELTAS_CAPTURED_V2 DV_DOC_COMPLETED FUNCTIONAL_COVERAGE_IMPLEMENTED
   ALL_INTERFACES_EXERCISED ALL_ASSERTION_CHECKS_ADDED SIM_TB_ENV_COMPLETED SIM_ALL_TESTS_PASSING
   FPV_ALL_ASSERTIONS_WRITTEN FPV_ALL_ASSUMPTIONS_REVIEWED SIM_FW_SIMULATED
   SIM_NIGHTLY_REGRESSION_V2 SIM_CODE_COVERAGE_V2 SIM_FUNCTIONAL_COVERAGE_V2 FPV_CODE_COVERAGE_V2
   FPV_COI_COVERAGE_V2 PRE_VERIFIED_SUB_MODULES_V2 SEC_CM_PLANNED NO_HIGH_PRIORITY_ISSUES_PENDING
   ALL_LOW_PRIORITY_ISSUES_ROOT_CAUSED DV_DOC_TESTPLAN_REVIEWED V2S_CHECKLIST_SCOPED
   V3_FUNCTIONAL_CHECKLIST_SCOPED
V3 DESIGN_DELTAS_CAPTURED_V3 X_PROP_ANALYSIS_COMPLETED FPV_ASSERTIONS_PROVEN_AT_V3
   SIM_NIGHTLY_REGRESSION_AT_V3 SIM_CODE_COVERAGE_AT_100 SIM_FUNCTIONAL_COVERAGE_AT_100
   FPV_CODE_COVERAGE_AT_100 FPV_COI_COVERAGE_AT_100 ALL_TODOS_RESOLVED NO_TOOL_WARNINGS_THROWN
   TB_LINT_COMPLETE PRE_VERIFIED_SUB_MODULES_V3 NO_ISSUES_PENDING
"""
"""Items of the checklist of lowRISC/opentitan, doc/project_governance/checklist, 34ceb5e."""
PAGES = [DOCS / name for name in ("signoff.md", "errata.md", "energy.md")]


def test_lines():
    expected: list[tuple[str, str]] = []
    stage = ""
    for word in LINES.split():
        if word in STAGES:
            stage = word
        else:
            expected.append((stage, word))
    assert [(line.stage, line.name) for line in checklist()] == expected


def test_verdicts():
    assert {line.verdict for line in checklist()} <= set(VERDICTS)
    assert all(line.evidence for line in checklist())
    assert {bug.found for bug in bugs()} <= set(FOUND)
    assert all(re.fullmatch("[0-9a-f]{7}", bug.commit) for bug in bugs())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_evidence_is_there(page):
    """Check that files, links, headings and commands that a page names exist."""
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) <= targets
    for name in re.findall(r"`((?:verif|hdl|sim|arch|timing|synth)/[\w./]+)`", text):
        assert (ROOT / name).exists() or (PACKAGE / name).exists(), name
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, heading = target.partition("#")
        path = DOCS / file if file else page
        assert path.exists(), target
        if heading:
            found = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found]
            assert heading in anchors, target


def test_counts():
    """Check that the checklist quotes all facts and no others, and that some facts are right."""
    names = re.findall(r"\{(\w+)\}", " ".join(line.evidence for line in checklist()))
    assert set(names) == set(facts())
    assert int(facts()["proofs"]) == int(facts()["bounded"]) + int(facts()["induction"])
    texts = [each for found in assumptions().values() for each in found]
    assert "transfer stays" in texts and "`~waited.all()`" in texts


def test_waivers_are_counted():
    """Check the text with the counts of waivers, and its note on a run before the waivers."""
    patterns = ["faults: one", "line a: b", "branch a: *", "branch line a: c", "probes: line d"]
    before = ["bins 1 covered, 0 missing", "bare, line 1 covered, 1 missing"]
    text = "1 waivers of lines and 2 of branches"
    assert point_waivers(patterns, before) == f"{text}, all made after that run"
    assert point_waivers(patterns, [*before, "bare, branch 2 covered, 1 waived, 0 missing"]) == text
    file = (PACKAGE / "verif" / "coverage" / "waivers.toml").read_text(encoding="utf-8")
    kinds = re.findall(r"^[\"'](line|branch) .*? = ", file, re.MULTILINE)
    found = re.match(r"(\d+) waivers of lines and (\d+) of branches", facts()["point_waivers"])
    assert found is not None
    assert [int(count) for count in found.groups()] == [kinds.count("line"), kinds.count("branch")]
