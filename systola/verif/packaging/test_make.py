# SPDX-License-Identifier: Apache-2.0
"""Tests of mistakes on the command line of `make`.

One line must name the mistake before anything is installed or run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from systola.verif.kit.checkout import ROOT


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("sim SIM=foo", "unknown SIM 'foo'"),
        ("sim NETLIST=foo", "unknown NETLIST 'foo'"),
        ("sim PRESET=foo", "unknown preset 'foo'"),
        ("sim SEED=abc", "SEED must be a number of zero or more, not 'abc'"),
        ("regress KIND=foo", "--kind: invalid choice: 'foo'"),
        ("soak N=0", "--seeds: must be at least 1, not 0"),
        ("regress N=0", "--programs: must be at least 1, not 0"),
        ("verilog FABRIC=foo", "--fabric: invalid choice: 'foo'"),
        ("synth TARGET=foo", "unknown target 'foo'"),
        ("synth SEEDS=foo", "'foo' is not a whole number"),
        ("bitstream BOARD=foo", "unknown board 'foo'"),
        ("chain N=x", "'x' is not a whole number"),
        ("coverage N=x", "'x' is not a whole number"),
        ("mutate N=x", "'x' is not a whole number"),
        ("arithmetic N=x", "'x' is not a whole number"),
        ("formal PART=foo", "foo"),
    ],
)
def test_mistakes(arguments: str, says: str) -> None:
    # If `make test` has started these tests, its variables would change the inner make, so they are
    # removed from the environment.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    tools = ["BIN=" + str(Path(sys.executable).parent), "--old-file=.venv/ready"]
    done = subprocess.run(
        ["make", *tools, *arguments.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line]
    assert says in lines[0]
    # After the line that names the mistake, only make's report of a failed command may follow.
    assert all(line.startswith("make: ***") for line in lines[1:])
