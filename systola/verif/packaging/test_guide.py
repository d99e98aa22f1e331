# SPDX-License-Identifier: Apache-2.0
"""The examples of verif/README.md: whole files, of which that for a unit runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.lib import data

from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.sim.runner import run
from systola.verif.units.unit import convert

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_name_is_known(example: str) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--quiet", "--isolated", "--select", "E9,F", "-"]
    done = subprocess.run(ruff, input=example, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.icarus
def test_unit_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "example_of_a_unit.py").write_text(EXAMPLES[1])
    unit = SkidBuffer(payload=data.StructLayout({"word": 8}))
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep + path if path else ''}")
    monkeypatch.syspath_prepend(tmp_path)
    run(convert(unit, "buffer"), "buffer", "example_of_a_unit", simulator="icarus")
