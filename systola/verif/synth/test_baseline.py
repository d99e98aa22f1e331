# SPDX-License-Identifier: Apache-2.0
"""Tests of the limits for a design's resources and clock rates, compared with accepted figures.

A growth or a loss of speed is found if it exceeds the tolerance, and passes otherwise.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from systola.synth import baseline
from systola.synth.errors import SynthesisError, SynthesisUsageError

THEN: dict[str, Any] = {
    "resources": {"lut": 1000, "carry": 9, "ff": 500, "dsp": 64, "block_ram": 8, "large_ram": 0},
    "lacks": [],
    "crossings": 3,
    "clocks": {"clk": {"min": 90.0, "median": 100.0, "max": 110.0}},
}


def changed(part: str, key: str, value: Any) -> dict[str, Any]:
    now = copy.deepcopy(THEN)
    now[part][key] = value
    return now


@pytest.mark.parametrize(
    ("part", "key", "good", "bad"),
    [
        ("resources", "lut", 1030, 1031),
        ("resources", "ff", 515, 516),
        ("resources", "dsp", 64, 65),
        ("resources", "block_ram", 8, 9),
        ("resources", "large_ram", 0, 1),
    ],
)
def test_growth(part: str, key: str, good: int, bad: int) -> None:
    assert baseline.worse(changed(part, key, good), THEN) == []
    (line,) = baseline.worse(changed(part, key, bad), THEN)
    assert line.startswith(f"{key}: {bad:,}, was ")


def test_speed() -> None:
    assert baseline.worse(changed("clocks", "clk", {"median": 95.0}), THEN) == []
    (line,) = baseline.worse(changed("clocks", "clk", {"median": 94.9}), THEN)
    assert line == "clock clk: 94.9 MHz, was 100.0 (-5 % allowed)"
    assert baseline.worse({**THEN, "clocks": {}}, THEN) == ["clock clk is gone"]


def test_room() -> None:
    too_large = {**THEN, "lacks": ["38,330 LUT of 5,280"]}
    assert baseline.worse(too_large, too_large) == []
    assert baseline.worse(THEN, too_large) == []
    (line,) = baseline.worse(too_large, THEN)
    assert line == "does not fit any more: 38,330 LUT of 5,280"


def test_crossings() -> None:
    assert baseline.worse({**THEN, "crossings": 2}, THEN) == []
    assert baseline.worse({**THEN, "crossings": 4}, THEN) == [
        "unregistered paths between units: 4, was 3"
    ]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "baseline.json"
    path.write_text("{}")
    monkeypatch.setattr(baseline, "BASELINE", path)
    return path


def test_write_and_check(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = copy.deepcopy(THEN)
    monkeypatch.setattr(baseline, "_measure", lambda _: copy.deepcopy(measured))
    first, second = (each.name for each in baseline.SET[:2])

    assert baseline.main(["--write", "--only", second]) == 0
    assert baseline.main(["--write", "--only", first]) == 0
    assert list(json.loads(file.read_text())) == [first, second]
    assert baseline.main(["--check", "--only", first]) == 0

    measured["resources"]["lut"] *= 2
    capsys.readouterr()
    assert baseline.main(["--check", "--only", first]) == 1
    assert capsys.readouterr().out == f"{first}: lut: 2,000, was 1,000 (+3 % allowed)\n"
    assert baseline.main(["--check"]) == 1
    assert "not in the baseline (make synth-baseline)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status"), [(SynthesisUsageError("no tool"), 2), (SynthesisError("no room"), 1)]
)
def test_errors(
    error: Exception,
    status: int,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(baseline, "_measure", fail)
    assert baseline.main(["--write"]) == status
    assert capsys.readouterr().err == f"{error}\n"


def test_unknown_design(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        baseline.main(["--check", "--only", "nope"])
    assert exit_.value.code == 2
    assert "unknown design 'nope' (known: ecp5-85f_small_mxu," in capsys.readouterr().err


def test_stored_baseline_is_of_the_set() -> None:
    assert set(baseline.stored()) <= {design.name for design in baseline.SET}
