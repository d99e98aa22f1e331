# SPDX-License-Identifier: Apache-2.0
"""Tests that units keep their promises for random inputs, and that a fault breaks each promise."""

import ast
from pathlib import Path

import pytest

from systola.hdl import module_of
from systola.verif.plan.selection import thorough
from systola.verif.units.promise_bench import broken_promise
from systola.verif.units.promise_benches import BENCHES
from systola.verif.units.promise_faults import BROKEN, Broken

SEEDS = 8
"""The number of seeds tried for a fault, as with some seeds it breaks another promise first."""
SOME = BROKEN[::10]
"""The faults that are planted in the quick tests."""


OF_USERS = {
    "a row of weights is taken that is not there",
    "a tile is swapped in before it is there",
    "a core is not ready for an answer",
}
"""Promises that only a unit's users can break, by inputs that the bench keeps legal."""


def promises_of(path: str) -> list[str]:
    """Return the messages of all promises in a source file of hdl/."""
    found: list[str] = []
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "message":
            found += [ast.literal_eval(node.value)]
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("promised"):
            found += [
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
    return found


@pytest.mark.parametrize("bench", BENCHES)
def test_promises_are_kept(bench: str) -> None:
    assert broken_promise(BENCHES[bench], None, seed=1) is None


def test_every_promise_can_be_broken() -> None:
    """Check that each promise in the file of a unit with a bench has a fault that breaks it."""
    told = {each.promise for each in BROKEN}
    for name in BENCHES:
        path = module_of(name).__file__
        assert path is not None
        missing = set(promises_of(path)) - told - OF_USERS
        assert missing == set(), name


@pytest.mark.parametrize(
    "broken",
    [each if each in SOME else thorough(each) for each in BROKEN],
    ids=lambda each: f"{each.bench}: {each.promise}",
)
def test_a_fault_breaks_a_promise(broken: Broken) -> None:
    found = set[str | None]()
    for seed in range(SEEDS):
        found.add(broken_promise(BENCHES[broken.bench], broken.fault, seed))
        if broken.promise in found:
            return
    pytest.fail(f"{broken.promise}: {found}")
