# SPDX-License-Identifier: Apache-2.0
"""Tests that `make nightly` runs all its parts, records failed parts, and keeps a history."""

from __future__ import annotations

from pathlib import Path

import pytest

from systola.verif.nightly.__main__ import Part, main, parts, run
from systola.verif.nightly.history import Night, shown, store, stored
from systola.verif.regress.cases import KINDS


def test_parts():
    """Check that a nightly run has a part for every kind of program, and one for tests.

    All parts have the run's seed.
    """
    found = parts(77, 3)
    assert [part.name for part in found] == [*KINDS, "tests"]
    assert all("77" in part.arguments and "SEED=77" in part.repeat for part in found)


def test_a_night(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Check that all parts run even if a part fails, and that the failed command is recorded."""
    good = Part("good", "platform", (), "make good")
    bad = Part("bad", "systola.verif.regress", ("--kind", "none"), "make bad SEED=5")
    history = tmp_path / "history.jsonl"
    night = run([bad, good], 5, history)
    assert (night.seed, night.failed) == (5, ["make bad SEED=5"])
    assert night.results["bad"] == "status 2" and night.results["good"]
    again = run([good], 6, history)
    assert stored(history) == [night, again]
    assert "== make bad SEED=5" in capfd.readouterr().out


def test_table(tmp_path: Path):
    results = {
        "programs": "1200 programs, 0 faults, 7 cycles: 0 failures",
        "loops": "8 programs, 0 faults, 2 cycles: 0 failures",
        "tests": "93 tests with each of 1 seeds from 5: 0 failures",
    }
    nights = [
        Night("2026-01-01", "abc1234", 1, 60, results, []),
        Night("2026-01-02", "abc1234", 2, 61, {"programs": "status 2"}, ["make x"], "Mended."),
    ]
    for night in nights:
        store(night, tmp_path / "h")
    text = shown(stored(tmp_path / "h"))
    first, second = text.splitlines()[2:]
    assert "2026-01-02" in first and "`make x` Mended." in first
    assert second.endswith("| 1,208 programs, 9 cycles, 93 tests | 0 failures |")


def test_a_wrong_option(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["--programs", "0"])
    assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1
