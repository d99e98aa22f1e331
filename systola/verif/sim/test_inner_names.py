# SPDX-License-Identifier: Apache-2.0
"""Tests of names of inner signals in the Verilog that simulators and coverage refer to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.sim.design import verilog_of
from systola.sim.events import with_events
from systola.sim.state import with_state
from systola.sim.verilator import environment, verilator_root
from systola.verif.coverage.probes import with_probes
from systola.verif.plan.selection import thorough


@pytest.mark.parametrize("add", [thorough(with_events), thorough(with_state), with_probes])
def test_names(add: Callable[[str], str], tmp_path: Path) -> None:
    """Check that Verilator finds each inner signal to which the added Verilog refers.

    The quick case adds the probes of coverage, which no other quick test builds.
    """
    file = tmp_path / "tpu.v"
    file.write_text(add(verilog_of(preset("tiny"))))
    options = ("--lint-only", "--no-timing", "-Wno-lint", "-Wno-style", "--top-module", "tpu")
    done = subprocess.run(
        [verilator_root() / "bin" / "verilator", *options, file],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
