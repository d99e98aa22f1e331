# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that makes reports of failures short.

A failure's report begins and ends with the failed assertion and the command that repeats the test.
Captured output of more than SHOWN_LINES lines goes to a file, and the report has the file's name
and the last lines. The output of a cocotb test goes to a file as a whole if its first failure is
known.
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
"""Largest number of lines that the report shows of a section of captured output."""
MESSAGE_LINES = 12
"""Largest number of lines that a report shows of an assertion's message."""
FAILURES_AT_END = 5
"""Largest number of failures that pytest lists again at the end of a run."""
SETTINGS = ("SEED", "PRESET", "SIM", "NETLIST")
"""Environment variables on which tests depend, so that the command to repeat a test sets them."""
_TITLE = ", and how to repeat it"
"""End of the title of the section with the assertion and the command that repeats the test."""

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
            # The traceback of the pytest function that started cocotb is left out.
            report.longrepr = str(error)
            text = error.summary
        else:
            text = f"{_headline(item, report.longrepr)}\nrepeat with: {repeat_command(item)}"
            _put_first(report.longrepr, text)
        report.sections.append((f"{type(error).__name__}{_TITLE}", text))
    return report


def repeat_command(item: pytest.Item) -> str:
    """Return the command that runs a test again, with the same environment variables SETTINGS."""
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)]
    options = ["--exhaustive"] if item.get_closest_marker("exhaustive") else []
    return " ".join([*settings, ".venv/bin/pytest", *options, f"'{item.nodeid}'"])


def _headline(item: pytest.Item, shown: Any) -> str:
    """Return a text with source file, line and message of a failed assertion."""
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
    """Return a section of captured output (title and text), shortened if it is long.

    A long section's text is written to a file. The section then has the file's name and last lines.
    """
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
