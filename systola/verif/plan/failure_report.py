# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin with which the report of a failure begins and ends with the assertion.

The command that repeats the test stands beside the assertion. Long output of a test goes to a file
that the report names. All output of a cocotb test goes to such a file, as the report already has
its first failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative

from systola.sim.build import build_root
from systola.sim.runner import TestFailure

SHOWN_LINES = 20
"""Number of lines of a section of captured output that the report shows."""
MESSAGE_LINES = 12
"""Number of lines of an assertion's message that the end of the report repeats."""
FAILURES_AT_END = 5
"""Number of failures that the end of a run repeats."""
SETTINGS = ("SEED", "PRESET", "SIM", "NETLIST")
"""Variables of the environment on which a test depends."""
_TITLE = ", and how to repeat it"
"""End of the title of a report's last section."""

_at_end: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        error = call.excinfo.value
        report.sections = [_shortened(item, error, *each) for each in report.sections]
        if isinstance(error, TestFailure):
            # The traceback from pytest to cocotb is left out, as it does not help.
            report.longrepr = str(error)
            text = error.summary
        else:
            text = f"{_headline(item, report.longrepr)}\nrepeat with: {repeat_command(item)}"
            _put_first(report.longrepr, text)
        report.sections.append((f"{type(error).__name__}{_TITLE}", text))
    return report


def repeat_command(item: pytest.Item) -> str:
    """Return the command that runs one test again, with the same settings and seed."""
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)]
    options = ["--exhaustive"] if item.get_closest_marker("exhaustive") else []
    return " ".join([*settings, ".venv/bin/pytest", *options, f"'{item.nodeid}'"])


def _headline(item: pytest.Item, shown: Any) -> str:
    """Return a text with file, line and message of a failure."""
    crash = getattr(shown, "reprcrash", None)
    if crash is None:
        return "\n".join(str(shown).splitlines()[-MESSAGE_LINES:])
    path = Path(crash.path)
    if path.is_absolute() and path.is_relative_to(item.config.rootpath):
        path = path.relative_to(item.config.rootpath)
    message: list[str] = crash.message.splitlines()
    more = [f"... {len(message) - MESSAGE_LINES} more lines"] * (len(message) > MESSAGE_LINES)
    return "\n".join([f"{path}:{crash.lineno}: {message[0]}", *message[1:MESSAGE_LINES], *more])


def _put_first(shown: Any, text: str) -> None:
    """Put `text` before the first traceback of a failure's report."""
    if isinstance(shown, ExceptionChainRepr):
        shown.chain[0][0].reprentries.insert(0, ReprEntryNative([f"{text}\n"]))


def _shortened(item: pytest.Item, error: BaseException, name: str, text: str) -> tuple[str, str]:
    """Return a section of captured output; if it is long, most of it goes to a file."""
    lines = text.splitlines()
    known = isinstance(error, TestFailure) and error.known
    limit = 0 if known else SHOWN_LINES
    if len(lines) <= limit:
        return name, text
    file = build_root() / "logs" / f"{re.sub(r'[^a-zA-Z0-9_.]+', '-', f'{item.nodeid} {name}')}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return name, "\n".join([f"all {len(lines)} lines: {file}", *lines[len(lines) - limit :]])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _at_end.extend(text for name, text in report.sections if name.endswith(_TITLE))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    yield
    if not _at_end:
        return
    terminalreporter.section("failed")
    for text in _at_end[:FAILURES_AT_END]:
        terminalreporter.line(text)
    if len(_at_end) > FAILURES_AT_END:
        terminalreporter.line(f"... and {len(_at_end) - FAILURES_AT_END} more, see above")
