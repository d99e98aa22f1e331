# SPDX-License-Identifier: Apache-2.0
"""Tests of the report on a netlist of standard cells, and of a run of the installed tools."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from systola.synth import asic
from systola.synth.asic_report import (
    Library,
    Memory,
    Report,
    Timing,
    Unit,
    read_library,
    read_units,
    report_table,
    store,
    stored,
)
from systola.synth.errors import SynthesisError
from systola.synth.removed_registers import Removed, removed_registers, removed_table

LIBERTY = """
library (made_up) {
  cell (NAND2) { area : 2; pin(A) { direction : input; } }
  cell ("DFF") { area : 1.25e1;
    ff (IQ, IQN) { clocked_on : "CLK"; } }
  cell (TAP) { pin(A) { direction : input; } }
}
"""
MACRO = {"type": "sram_1r1w", "parameters": {"WIDTH": "00001000", "DEPTH": "10000"}}
DESIGN = {
    "modules": {
        "tpu": {"cells": {"core": {"type": "core"}, "n": {"type": "NAND2"}}},
        "core": {"cells": {"a": {"type": "unit"}, "b": {"type": "unit"}}},
        "unit": {"cells": {"inner": {"type": "inner"}, "f": {"type": "DFF"}, "m": MACRO}},
        "inner": {"cells": {"n": {"type": "NAND2"}, "f": {"type": "DFF"}}},
    }
}
REPORT = Report(
    preset="tiny",
    top="tpu",
    library="made_up",
    tools=["Yosys 1"],
    ns=10,
    units=[Unit("core.a", 27, 2, 3), Unit("core.b", 27, 2, 3), Unit("tpu", 2, 0, 1)],
    memories=[Memory("core.a", 8, 16, 1), Memory("core.b", 8, 16, 1)],
    removed=[Removed("tpu.core", "spare", 3, "unused")],
    timing=Timing(1.5, "core.a", "core.b"),
    date="2026-01-01",
    commit="abc1234",
)


def library(folder: Path, text: str = LIBERTY) -> Path:
    path = folder / "made_up.lib"
    path.write_text(text)
    return path


def test_library(tmp_path: Path):
    found = read_library(library(tmp_path))
    assert found == Library({"NAND2": 2.0, "DFF": 12.5}, frozenset({"DFF"}))


def test_units():
    """Check areas by unit: modules of the first two levels, with the cells of deeper modules.

    Memories are listed by themselves, with their bits.
    """
    cells = Library({"NAND2": 2.0, "DFF": 12.5}, frozenset({"DFF"}))
    units, memories = read_units(DESIGN, "tpu", cells)
    assert [(unit.name, unit.area, unit.registers, unit.cells) for unit in units if unit.cells] == [
        ("core.a", 27, 2, 3),
        ("core.b", 27, 2, 3),
        ("tpu", 2, 0, 1),
    ]
    assert memories == REPORT.memories and memories[0].bits == 128


def test_removed_registers():
    """Check the list of register bits that synthesis removes.

    The design has a constant bit, unused bits, a bit under another name, and two copies of a
    module.
    """
    flip_flop = {"type": "$dff", "connections": {"Q": [2, 3, 4], "D": [5, 6, 7]}}
    names = {
        "state": {"hide_name": 0, "bits": [2, 3]},
        "spare": {"hide_name": 0, "bits": [4]},
        "port": {"hide_name": 0, "bits": [2]},
        "$1": {"hide_name": 1, "bits": [5, 6, 7]},
    }
    module = {"cells": {"f": flip_flop}, "netnames": names}
    kept = {"type": "DFF", "connections": {"Q": [9], "D": [8]}}
    left = {"port": {"bits": [9]}, "state": {"bits": [7, "0"]}}
    netlist = {"modules": {"lane_1": {"cells": {"f": kept}, "netnames": left}}}
    before = {"modules": {"lane_0": module, "lane_1": module}}
    found = removed_registers(before, netlist, frozenset({"DFF"}))
    assert found == [
        Removed("lane_*", "spare", 2, "unused"),
        Removed("lane_*", "state", 1, "constant"),
        Removed("lane_*", "state", 2, "unused"),
    ]
    text = removed_table(found)
    assert text.startswith("1 bits that never change, 4 that nothing uses.")
    assert "| `lane_*` | `spare` | 2 | unused |" in text


def test_a_cell_that_is_not_there():
    with pytest.raises(SynthesisError, match="'DFF'"):
        read_units(DESIGN, "tpu", Library({"NAND2": 2.0}, frozenset()))


def test_table_and_history(tmp_path: Path):
    path = tmp_path / "asic.json"
    store(REPORT, path)
    store(replace(REPORT, library="other", timing=None), path)
    again = replace(REPORT, commit="1234567")
    store(again, path)
    assert stored(path) == [again, replace(REPORT, library="other", timing=None)]
    text = report_table(REPORT)
    assert "Slack 1.50 ns of 10 ns, from `core.a` to `core.b`" in text
    assert "| `core.a` | 27 | 48.2 % | 3 | 2 | 128 |" in text
    assert "| **all** | 56 | 100 % | 7 | 4 | 256 |" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--preset", "nix"], "unknown preset"),
        (["--unit", "nix"], "unknown unit"),
        (["--lib", "none.lib"], "No such file"),
        (["--lib", "empty.lib"], "no Liberty file"),
    ],
)
def test_mistakes(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    Path("empty.lib").write_text("library (x) { }")
    assert asic.main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("asic: ") and says in err and err.count("\n") == 1


def test_without_yosys(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(asic, "read_library", lambda path: Library({}, frozenset()))
    assert asic.main(["--preset", "tiny"]) == 2
    assert "apt-get install yosys" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.skipif(not asic.LIBRARY.exists(), reason="qflow-tech-osu018 is not installed")
def test_a_unit():
    """Check that the tools' report on a buffer has all memory bits, an area, and registers."""
    report = asic.measure("tiny", "unified_buffer", asic.LIBRARY, asic.NS)
    config = asic.preset("tiny")
    bits = sum(memory.bits for memory in report.memories)
    assert bits == 8 * config.buffer_lines * config.line_bytes
    assert report.area > 0 and sum(unit.registers for unit in report.units) > 100
    assert report.timing is None or 0 < report.timing.slack < asic.NS
