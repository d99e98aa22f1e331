# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu` without UTF-8, with closed streams, file names of any bytes, and no PATH."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.verif.cli.test_errors import MODEL

ASCII = {"PYTHONIOENCODING": "ascii"}
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
BYTES = os.fsdecode(b"m\xff\xc3.tflite")
"""A file name with bytes that are not UTF-8."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a working directory with a model and samples."""
    monkeypatch.chdir(tmp_path)
    model = (files("systola.models") / MODEL).read_bytes()
    Path("m.tflite").write_bytes(model)
    Path(BYTES).write_bytes(model)
    Path("s.s").write_text("nop\nhalt\n")
    np.savez("x.npz", x=np.zeros((2, 1, 64), np.int8))
    return tmp_path


def run(
    *words: str, environment: dict[str, str] | None = None, shell: str = 'exec "$@"'
) -> subprocess.CompletedProcess[bytes]:
    """Run `tpu` with the arguments `words` by the shell script `shell`; return the process."""
    return subprocess.run(
        ["/bin/sh", "-c", shell, "sh", sys.executable, "-m", "systola.cli.main", *words],
        # Unbuffered, Python would let argparse ignore a standard output that cannot be written.
        env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        check=False,
        timeout=600,
    )


RUN = ("run", "m.tflite", "--backend", "iss", "--preset", "tiny", "--input", "x.npz", "--output")


@pytest.mark.parametrize("environment", [ASCII, C_LOCALE], ids=["ascii", "C"])
@pytest.mark.parametrize("words", [("info",), (*RUN, "y.npz"), ("--help",), ("compile", BYTES)])
def test_terminals_that_are_not_utf_8(
    words: tuple[str, ...], environment: dict[str, str], folder: Path
) -> None:
    found = run(*words, environment=environment)
    assert found.returncode == (2 if words[0] == "compile" else 0)
    assert b"Traceback" not in found.stderr
    assert (found.stdout + found.stderr).isascii()


def test_characters_that_a_terminal_lacks() -> None:
    text = "8 \xd7 8 \xb5s \u2588\u2588 \u4e16 \udcff"
    script = f"""
from systola.cli.streams import prepare_streams, printable
prepare_streams()
print({text!a})
assert printable({text!a}) == {text!a}.replace("\\udcff", "\\\\xff")
"""
    for encoding, expected in (
        ("ascii", rb"8 x 8 us ## \u4e16 \xff"),
        ("latin-1", b"8 \xd7 8 \xb5s ## \\u4e16 \\xff"),
        ("utf-8", text[:-1].encode() + rb"\xff"),
    ):
        found = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (found.stdout, found.stderr) == (expected + b"\n", b"")


def test_names_that_are_not_utf_8(folder: Path) -> None:
    page, figures, result = (os.fsdecode(b"\xfe") + name for name in (".html", ".json", ".npz"))
    words = (*RUN[:1], BYTES, *RUN[2:], result, "--report", page, "--json", figures)
    found = run(*words)
    assert (found.returncode, found.stderr) == (0, b"")
    assert "m\\xff\\xc3.tflite" in Path(page).read_text("utf-8")
    assert json.loads(Path(figures).read_bytes())["model"] == "m\\xff\\xc3.tflite"
    assert np.load(result)["y"].shape == (2, 1, 10)
    found = run("run", os.fsdecode(b"\xfe"), *RUN[2:], "y")
    assert found.returncode == 2 and re.fullmatch(rb"tpu: error: [ -~]+\n", found.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("asm", "s.s", "-o", "-"),
        pytest.param(("info",), marks=pytest.mark.thorough),
        pytest.param((*RUN, "-"), marks=pytest.mark.thorough),
        pytest.param(("--version",), marks=pytest.mark.thorough),
    ],
)
def test_closed_and_full_outputs(words: tuple[str, ...], folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for shell, reason in (
        ('exec "$@" >&-', b"bad file descriptor"),
        ('exec "$@" >/dev/full', b"no space left on device"),
    ):
        found = run(*words, shell=shell)
        assert (found.returncode, found.stdout) == (2, b"")
        assert re.fullmatch(rb"tpu: error: [^\n]+\n", found.stderr), found.stderr
        assert reason in found.stderr
    found = run(*words, shell='"$@" | head -c 10 >&2; exit 0')
    assert len(found.stderr) <= 10
    # A file that gets the number of a closed stream must not get the stream's text.
    found = run(*words, shell='exec "$@" <&- 2>&-')
    assert found.returncode == 0 and found.stdout
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.thorough
def test_no_path(folder: Path) -> None:
    """Check that a missing tool is reported in one line if PATH is empty."""
    program = [sys.executable, "-m", "systola.cli.main", "gemm", "2", "2", "2", "--preset", "2x2"]
    environment = {"SYSTOLA_BUILD": str(folder), "PATH": "/nowhere"}
    found = subprocess.run(program, env=environment, capture_output=True, check=False)
    assert found.returncode != 0 and found.stdout == b""
    assert b"'g++' is not installed; Verilator needs g++, make and perl" in found.stderr
    assert b"Traceback" not in found.stderr
