# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that chooses the tests of a run.

`make test` runs the quick tests (`--quick`), and `make test-all` runs all tests. `--quick` leaves
out tests that are marked thorough. If a test has several simulators or variants of a unit,
`--quick` runs the first variant on one simulator. `--rest` runs the tests that `--quick` leaves
out. It runs unit tests on one simulator only, as Verilator takes a quarter of an hour to build the
units. The environment variable UNIT keeps only the tests that depend on this hardware unit
(systola.verif.plan.dependents).
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
"""Names of test parameters of which --quick runs only one value."""


def thorough(*parameters: Any) -> Any:
    """Return a pytest parameter set marked thorough, so that only `make test-all` runs it."""
    return pytest.param(*parameters, marks=pytest.mark.thorough)


def exhaustive(*parameters: Any) -> Any:
    """Return a pytest parameter set that runs only with the option --exhaustive."""
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
    """Return the quick tests among `items`: of each test, one simulator and one variant.

    Tests of units run on Icarus Verilog if it is installed, as it needs no build time. Tests of the
    whole machine run on Verilator, and share one simulator that is built once.
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
    """Return the unit tests among `items` that only repeat a test on a second simulator."""
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
