# SPDX-License-Identifier: Apache-2.0
"""No command writes over a file that it reads, nor twice into one."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.verif.cli.test_errors import MODEL, run

RUN = "run m.tflite --backend iss --preset tiny"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files that have further names in it."""
    monkeypatch.chdir(tmp_path)
    Path("m.tflite").write_bytes((files("systola.models") / MODEL).read_bytes())
    np.savez("a.npz", x=np.zeros((1, 1, 64), np.int8))
    Path("s.s").write_text("halt\n")
    os.symlink("a.npz", "symbolic.npz")
    os.link("a.npz", "hard.npz")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"{RUN} --input a.npz --output a.npz", "a.npz is named twice"),
        (f"{RUN} --input a.npz --output ./a.npz", "./a.npz is a.npz, too"),
        (f"{RUN} --input a.npz --output symbolic.npz", "symbolic.npz is a.npz, too"),
        (f"{RUN} --input a.npz --output hard.npz", "hard.npz is a.npz, too"),
        (f"{RUN} --input a.npz --output m.tflite", "m.tflite is named twice"),
        (f"{RUN} --input a.npz --output y.npz --json y.npz", "y.npz is named twice"),
        (f"{RUN} --input a.npz --output y.npz --json a.npz", "a.npz is named twice"),
        (f"{RUN} --input a.npz --output y.svg --roofline ./y.svg", "./y.svg is y.svg, too"),
        (f"{RUN} --input a.npz --output - --json -", "- is named twice"),
        ("compile m.tflite -o m.tflite", "m.tflite is named twice"),
        ("asm s.s -o s.s", "s.s is named twice"),
    ],
)
def test_refused(command: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert err.startswith("tpu: error: ") and err.count("\n") == 1
    assert says in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_devices_can_be_named_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{RUN} --input a.npz --output /dev/null --json /dev/null"
    assert run(command, capsys)[0] == 0
