# SPDX-License-Identifier: Apache-2.0
"""The test of the end of a build, with scripts in place of the tools."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from systola.boards.bitstream import reason_of_failure, run_build, used_cells

FITS = "Info: \t  DFF:  15/  20  75%"
TOO_MANY = "Info: \t  DFF:  17536/  15552  112%"
NO_PLACE = "ERROR: Unable to find legal placement for cell 'a' after 9 attempts"


def build(tmp_path: Path, script: str) -> tuple[int, str]:
    """Return the status and the log of a build by `script`."""
    log = tmp_path / "build.log"
    return run_build(["sh", "-c", script], tmp_path, {}, log), log.read_text()


def test_a_build_that_fits_goes_on(tmp_path: Path) -> None:
    """Check that a build runs to its end, and that its cells are read."""
    status, log = build(tmp_path, f"echo '{FITS}'; sleep 0.1; echo end")
    assert (status, used_cells(log)) == (0, {"DFF": (15, 20)})
    assert log.endswith("end\n")


def test_a_build_that_does_not_fit_is_stopped(tmp_path: Path) -> None:
    """Check that a build stops when nextpnr reports more cells than the FPGA has."""
    started = time.monotonic()
    status, log = build(tmp_path, f"echo '{TOO_MANY}'; sleep 600")
    assert status
    assert time.monotonic() - started < 60
    assert "17,536 DFF of 15,552" in reason_of_failure(log, used_cells(log))


@pytest.mark.parametrize(
    ("log", "words"),
    [(NO_PLACE, "does not fit"), ("ERROR: no such pin", "no such pin"), ("", "a tool stopped")],
)
def test_reasons(log: str, words: str) -> None:
    """Check the line for other failures."""
    assert words in reason_of_failure(log, used_cells(log))
