# SPDX-License-Identifier: Apache-2.0
"""Tests that the examples of verif/README.md are whole files that run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.lib import data

from systola.arch.config import preset
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.sim.runner import run
from systola.verif.kit.launch import machine_verilog
from systola.verif.units.unit import convert

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_name_is_known(example: str) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--quiet", "--isolated", "--select", "E9,F", "-"]
    done = subprocess.run(ruff, input=example, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def run_example(
    example: str,
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    verilog: str,
    top: str,
) -> None:
    """Write the example's source as the module `name` in `folder`, and run its cocotb tests."""
    (folder / f"{name}.py").write_text(example)
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep + path if path else ''}")
    monkeypatch.syspath_prepend(folder)
    run(verilog, top, name, simulator="icarus")


@pytest.mark.icarus
def test_unit_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = SkidBuffer(payload=data.StructLayout({"word": 8}))
    verilog = convert(unit, "buffer")
    name = "example_of_a_unit"
    run_example(EXAMPLES[1], name, tmp_path, monkeypatch, verilog=verilog, top="buffer")


@pytest.mark.icarus
@pytest.mark.thorough
def test_machine_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_PRESET", "tiny")
    verilog = machine_verilog(preset("tiny"))
    name = "example_of_a_machine"
    run_example(EXAMPLES[0], name, tmp_path, monkeypatch, verilog=verilog, top="tpu")
