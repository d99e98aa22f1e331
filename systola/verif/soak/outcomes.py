# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for `make soak` that writes each test's outcome, and whether it used a seed.

`--outcomes FILE` writes a line of JSON for each test as soon as it has ended.
"""

from __future__ import annotations

import json
from typing import IO

import pytest

from systola.verif.kit.seeds import asked

SEEDED = "asked_for_a_seed"
"""Name of the property in a report that marks a test as using a seed, also with --junitxml."""
_CRASHED = "???"
"""Name of the stage that xdist reports for a test when the test's process has crashed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="write the outcome of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes")
    # A worker of xdist has `workerinput`. All workers send their reports to the one process that
    # has none.
    if path and not hasattr(config, "workerinput"):
        file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  open for the session
        config.pluginmanager.register(_Writer(file))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "teardown" and item.nodeid in asked:
        item.user_properties.append((SEEDED, "yes"))


class _Writer:
    """A plugin that writes a line for each test.

    A test fails if its setup, its call or its teardown fails.
    """

    def __init__(self, file: IO[str]):
        self._file = file
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when in ("teardown", _CRASHED):
            seeded = (SEEDED, "yes") in map(tuple, report.user_properties)
            line = {
                "test": report.nodeid,
                "failed": report.nodeid in self._failed,
                "seeded": seeded,
            }
            self._file.write(json.dumps(line) + "\n")

    def pytest_unconfigure(self) -> None:
        self._file.close()
