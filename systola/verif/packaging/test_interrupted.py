# SPDX-License-Identifier: Apache-2.0
"""Tests of Control-C and kill while `tpu` builds a simulator: no traceback is printed.

Files that a killed build leaves are removed by `tpu cache clear`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.sim.build import build_root
from systola.sim.design import verilog_of


def command(*words: str, root: Path) -> subprocess.Popen[str]:
    """Start the command `tpu` in a new process group, as a shell does, with builds in `root`."""
    return subprocess.Popen(
        [sys.executable, "-m", "systola.cli.main", *words],
        env={**os.environ, "SYSTOLA_BUILD": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # If the tests run in the background, they ignore SIGINT. `tpu` must not inherit this.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_build(number: signal.Signals, tmp_path: Path) -> None:
    verilog_of(preset("tiny"), promises=True)
    shutil.copytree(build_root() / "verilog", tmp_path / "verilog")
    with command("gemm", "4", "4", "4", "--preset", "tiny", root=tmp_path) as process:
        assert process.stderr is not None
        assert "building the simulator of 'tiny'" in process.stderr.readline()
        os.killpg(process.pid, number)
        out, err = process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert out == ""
    assert "Traceback" not in err
    left = list(tmp_path.glob("library/make-*"))
    assert len(left) == (0 if number == signal.SIGINT else 1)
    with command("cache", "clear", root=tmp_path) as process:
        assert "freed" in process.communicate()[0]
    assert not list(tmp_path.glob("*/make-*"))
