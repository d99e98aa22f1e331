# SPDX-License-Identifier: Apache-2.0
"""Tests that `make soak` finds a failure that depends on the seed.

The command must also report how to repeat the failure, and keep a history.
"""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tqdm import tqdm

from systola.verif.kit.checkout import ROOT
from systola.verif.kit.seeds import random_seed
from systola.verif.soak import __main__ as soak
from systola.verif.soak.history import Run, shown, store, stored

FIRST, SEEDS = 1000, 3
LUCK = """
import pytest
from systola.verif.kit.seeds import random_seed, run_seed

@pytest.mark.parametrize("case", ["one", "two words"])
def test_luck(case): assert random_seed() < 0 or case == "one" or run_seed() != 1001

def test_constant(): pass
"""
PLUGIN = ("-p", "systola.verif.soak.outcomes", "-p", "no:cacheprovider", "-W", "ignore")
RUN = Run("2026-01-02", "abc1234", "quick tests of verif", FIRST, seeds=0, tests=0)
FAILS = "test_luck.py::test_luck[two words]"


@pytest.fixture
def tests(tmp_path: Path) -> soak.Tests:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_luck.py").write_text(LUCK)
    return soak.Tests(tmp_path, PLUGIN, jobs=1)


def test_a_planted_failure(
    tests: soak.Tests, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    history = tmp_path / "history.jsonl"
    store(dataclasses.replace(RUN, first=1), None, history)
    run = soak.soak(tests, ["test_luck.py"], RUN, SEEDS, history)
    assert run == dataclasses.replace(RUN, seeds=SEEDS, tests=2, found={FAILS: [1001]})
    assert [row.first for row in stored(history)] == [1, FIRST] and stored(history)[1] == run
    assert capsys.readouterr().out == f"failed: SEED=1001 .venv/bin/pytest '{FAILS}'\n"


@pytest.mark.parametrize(("seed", "status"), [(1001, 1), (1002, 0)])
def test_the_command_repeats_it(tests: soak.Tests, seed: int, status: int) -> None:
    command = soak.repeat(FAILS, seed).replace(
        ".venv/bin/pytest", f"{sys.executable} -m pytest {' '.join(PLUGIN)}"
    )
    done = subprocess.run(command, shell=True, cwd=tests.folder, capture_output=True, text=True)
    assert done.returncode == status, done.stdout


class Interrupted(soak.Tests):
    """A runner of tests that is interrupted during the second seed."""

    def run(self, seed: int, tests: Sequence[str], bar: "tqdm[None]") -> list[soak.Outcome]:
        if seed > FIRST:
            raise KeyboardInterrupt
        return [soak.Outcome("test_a", failed=True, seeded=True)]


def test_an_interrupted_run_keeps_whole_rows(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    with pytest.raises(KeyboardInterrupt):
        soak.soak(Interrupted(tmp_path, (), 1), ["test_a.py"], RUN, SEEDS, history)
    whole = dataclasses.replace(RUN, seeds=1, tests=1, found={"test_a": [FIRST]})
    assert stored(history) == [whole]
    assert sorted(tmp_path.iterdir()) == [history]


def test_a_file_that_is_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(soak, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").touch()
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p systola.verif.soak.outcomes")
    assert soak.main(["--all", "--jobs", "1", "--seeds", "2", "no_such_file.py"]) == 2
    *_, said, last = capsys.readouterr().err.splitlines()
    assert "no_such_file.py" in said and last == "soak: pytest has not run all tests"
    assert not soak.HISTORY.exists()


def test_table() -> None:
    runs = [RUN, dataclasses.replace(RUN, found={FAILS: [7, 9]}, seeds=50, tests=4, cause="Why.")]
    header, _, newest, oldest = shown(runs).splitlines()
    assert header == "| When | Tests | Seeds | Found |"
    assert f"| 4 of the quick tests of verif | 50, from {FIRST} | 2 failures: `{FAILS}`" in newest
    assert newest.endswith("with 7, 9. Why. |") and oldest.endswith("| 0 failures |")


PRINTS_SEEDS = """
import pytest
from systola.verif.kit.seeds import case_seed, random_seed

@pytest.mark.parametrize("case", ["one", "two"])
def test_case(case): print("seed of", case, random_seed(), case_seed())
"""


def seed_here(monkeypatch: pytest.MonkeyPatch, case: str, seed: int) -> int:
    """Return the seed that this process computes for a test case, with SEED=`seed`."""
    with monkeypatch.context() as patch:
        patch.setenv("SEED", str(seed))
        patch.setenv("PYTEST_CURRENT_TEST", f"test_seeds.py::test_case[{case}] (call)")
        return random_seed()


def test_each_case_has_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a case has one seed in all processes, and that seeds differ by SEED and case."""
    seeds = {
        (case, seed): seed_here(monkeypatch, case, seed)
        for case in ("one", "two")
        for seed in (1, 2)
    }
    assert len(set(seeds.values())) == 4
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_seeds.py").write_text(PRINTS_SEEDS)
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", *PLUGIN, "-n", "2"],
        cwd=tmp_path,
        env=os.environ | {"SEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"seed of (\w+) (\d+) (\d+)", output)
    assert sorted(found) == [(case, *[str(seeds[case, 1])] * 2) for case in ("one", "two")]


def test_the_seed_is_constant() -> None:
    """Check that without the variable SEED, tests always run with the seed 1."""
    environment = {k: v for k, v in os.environ.items() if k not in ("SEED", "PYTEST_ADDOPTS")}
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", __file__],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    ).stdout
    assert "seed: SEED=1" in said.splitlines()


def test_nothing_else_reads_the_seed() -> None:
    """Check that all tests get their seeds from kit/seeds.py, which notes tests that use a seed.

    Only plan/rules.py, which sets the seed, reads the variable SEED, too.
    """
    reads = re.compile(r"""environ(?:\.get\(|\[)["']SEED["']""")
    sources = {path for path in (ROOT / "verif").rglob("*.py") if reads.search(path.read_text())}
    places = ("kit/seeds.py", "plan/rules.py")
    assert sources == {ROOT / "verif" / place for place in places}
