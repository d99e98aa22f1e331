# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin with the rules for all tests: one seed, the choice by TEST, reasons to skip.

The environment variable SEED is the seed of all random data; without it, a constant is taken. TEST
chooses the pytest and cocotb tests with this text in their names. With REQUIRE_ICARUS=1, the run
fails if Icarus Verilog is not installed, or no test on it passes.
"""

import difflib
import os
import re
import shutil
import time
from collections import Counter

import pytest

from systola.sim.build import build_root
from systola.sim.waves import how_to_look
from systola.verif.kit.checkout import ROOT
from systola.verif.kit.seeds import CONSTANT_SEED

# Tests run at the same time, one on each processor core, so numpy must not start further threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

STARTED = time.time()
TEST_NAME = re.compile(r"^(?:def test_|async def )(\w+)\((?!self)", re.MULTILINE)
"""Pattern that finds the names of test functions, of pytest and cocotb, in a module's source."""

HAS_ICARUS = shutil.which("iverilog") is not None
REQUIRE_ICARUS = os.environ.get("REQUIRE_ICARUS") == "1"
HOW_TO_GET_ICARUS = "on Debian and Ubuntu: apt-get install iverilog"

on_icarus: Counter[str] = Counter()
"""Number of tests on Icarus Verilog, by outcome (passed, failed, skipped)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="also run the exhaustive tests")


def pytest_configure() -> None:
    if REQUIRE_ICARUS and not HAS_ICARUS:
        raise pytest.UsageError(f"Icarus Verilog is missing ({HOW_TO_GET_ICARUS})")
    # SEED is set in the environment, since simulators and other processes of tests read it there.
    seed = os.environ.get("SEED") or str(CONSTANT_SEED)
    if not seed.isdecimal():
        raise pytest.UsageError(f"SEED must be a number of zero or more, not '{seed}'")
    os.environ["SEED"] = seed


def pytest_report_header() -> str:
    return f"seed: SEED={os.environ['SEED']}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = os.environ.get("TEST")
    if chosen:
        others = [item for item in items if not is_called(item, chosen)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    for item in items:
        if item.get_closest_marker("exhaustive") and not config.getoption("exhaustive"):
            item.add_marker(pytest.mark.skip(reason="only with --exhaustive"))
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "icarus" in callspec.params.values():
            item.add_marker(pytest.mark.icarus)
        if item.get_closest_marker("icarus") and not HAS_ICARUS:
            item.add_marker(pytest.mark.skip(reason="Icarus Verilog is missing"))


def is_called(item: pytest.Item, text: str) -> bool:
    """Return whether a test, or a cocotb test in its module, has `text` in its name."""
    names = {item.name}
    for value in vars(item.getparent(pytest.Module).obj).values():
        if hasattr(value, "generate_tests"):
            names.update(test.name for test in value.generate_tests())
    return any(text in name for name in names)


def names_like(text: str) -> list[str]:
    """Return test names, and words in test names, that are similar to `text`, a wrong TEST."""
    sources = [path.read_text() for path in (ROOT / "verif").glob("**/test_*.py")]
    names = {name for source in sources for name in TEST_NAME.findall(source)}
    words = {word for name in names for word in name.split("_")}
    return difflib.get_close_matches(text, sorted(names | words), n=4, cutoff=0.55)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "icarus" in report.keywords and (report.when == "call" or report.skipped):
        on_icarus[report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and os.environ.get("TEST"):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    if REQUIRE_ICARUS and not on_icarus["passed"] and "PYTEST_XDIST_WORKER" not in os.environ:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode
) -> None:
    chosen = os.environ.get("TEST")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and chosen:
        like = ", ".join(f"TEST={name}" for name in names_like(chosen))
        terminalreporter.line(
            f"no test has '{chosen}' in its name" + (f"; did you mean {like}?" if like else "")
        )
    if os.environ.get("WAVES"):
        for save in sorted((build_root() / "waves").glob("*.gtkw")):
            if save.stat().st_mtime >= STARTED:
                terminalreporter.line(how_to_look(save))
    if not HAS_ICARUS and on_icarus["skipped"]:
        terminalreporter.section("Icarus Verilog is missing")
        terminalreporter.line(
            f"Tests on it that were skipped: {on_icarus['skipped']}. To get it, {HOW_TO_GET_ICARUS}"
        )
    if REQUIRE_ICARUS and not on_icarus["passed"]:
        terminalreporter.section("REQUIRE_ICARUS is set, but no test passed on Icarus Verilog")
