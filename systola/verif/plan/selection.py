# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that chooses the tests of a run.

`make test` takes the quick tests (`--quick`), and `make test-all` takes all tests. `--quick` leaves
out tests that are marked thorough. If a test has several simulators or variants of a unit, it takes
the first variant on one simulator. `--rest` takes all other tests, but runs tests of units on one
simulator only, because Verilator takes a quarter of an hour to build them. The variable UNIT keeps
the tests that depend on a unit of the hardware (systola.verif.plan.dependents).
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from systola.verif.kit.checkout import module_name
from systola.verif.plan.dependents import UnknownUnitError, dependents

_OF_A_KIND = ("simulator", "variant")
"""Names of parameters of tests for which --quick takes one value only."""


def thorough(*parameters: Any) -> Any:
    """Return a set of parameters with a mark that leaves this run of a test to `make test-all`."""
    return pytest.param(*parameters, marks=pytest.mark.thorough)


def exhaustive(*parameters: Any) -> Any:
    """Return a set of parameters with marks that leave this run of a test to --exhaustive."""
    return pytest.param(*parameters, marks=[pytest.mark.thorough, pytest.mark.exhaustive])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="one test of each kind, no thorough ones")
    parser.addoption("--rest", action="store_true", help="what --quick leaves out; units once")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick") and config.getoption("--rest"):
        raise pytest.UsageError("--quick and --rest together leave nothing")
    if unit := os.environ.get("UNIT"):
        try:
            dependents(unit)
        except UnknownUnitError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = items
    if config.getoption("--quick"):
        quick = _quick(items)
        kept = [item for item in items if item in quick]
    elif config.getoption("--rest"):
        shown = _quick(items) | _repeated(items)
        kept = [item for item in items if item not in shown]
    if unit := os.environ.get("UNIT"):
        modules = dependents(unit)
        kept = [item for item in kept if module_name(item.path) in modules]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def _quick(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the quick tests: one test of each kind.

    Tests of units run on Icarus Verilog, which needs no build time. Tests of the machine share a
    simulator that Verilator builds once.
    """
    installed = shutil.which("iverilog") is not None
    kinds: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("thorough"):
            others = {k: v for k, v in _parameters(item).items() if k not in _OF_A_KIND}
            kinds[item.nodeid.partition("[")[0], repr(others)].append(item)
    return {
        min(kind, key=lambda item: _parameters(item).get("simulator") != _first(item, installed))
        for kind in kinds.values()
    }


def _repeated(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the repeated tests of units, which run another test on a further simulator."""
    installed = shutil.which("iverilog") is not None
    kinds: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if module_name(item.path).startswith("units/"):
            others = {k: v for k, v in _parameters(item).items() if k != "simulator"}
            kinds[item.nodeid.partition("[")[0], repr(others)].append(item)
    return {
        item
        for kind in kinds.values()
        for item in kind
        if len(kind) > 1 and _parameters(item).get("simulator") != _first(item, installed)
    }


def _first(item: pytest.Item, icarus: bool) -> str:
    return "icarus" if icarus and item.path.parent.name != "system" else "verilator"


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}
