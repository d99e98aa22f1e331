# SPDX-License-Identifier: Apache-2.0
"""Tests of accuracies from `tpu run --labels`, compared with accuracies from the interpreter."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.verif.cli.test_errors import run
from systola.verif.compiler import model_writer
from systola.verif.compiler.float_digits import as_onnx, digits
from systola.verif.kit.user_files import tree

SAMPLES = 10
LINE = "run m.tflite --input x.npz --output y --backend iss --preset 8x8"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a network and samples; the network gives 8 of them the right class."""
    monkeypatch.chdir(tmp_path)
    model = (Path(str(files("systola.models"))) / "cnn_residual_dw_pool.tflite").read_bytes()
    Path("m.tflite").write_bytes(model)
    x = (digits()["x"][:SAMPLES] * 255 - 128).astype(np.int8).reshape(-1, 8, 8, 1)
    classes = model_writer.interpret(model, x[:, np.newaxis]).reshape(SAMPLES, 10).argmax(axis=1)
    labels = classes.copy()
    labels[4:6] = (labels[4:6] + 1) % 10
    one = {"x1": x[:1], "y1": labels[:1]}
    np.savez(
        "x.npz", x=x, y=labels, float=labels / 2, few=labels[:3], many=np.arange(10, 20), **one
    )
    return tmp_path


@pytest.mark.parametrize(
    ("options", "accuracy"),
    [
        ("--labels y", 80.0),
        ("--labels y --limit 4", 100.0),
        ("--labels y --limit 6", 100 * 4 / 6),
        ("--labels y --cores 2", 80.0),
        ("--key x1 --labels y1", 100.0),
    ],
)
def test_accuracy(
    options: str, accuracy: float, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(f"{LINE} {options} --json j", capsys)
    assert status == 0 and out.endswith(f"\naccuracy {accuracy:.2f} %\n")
    assert json.loads(Path("j").read_text())["accuracy"] == pytest.approx(accuracy / 100)


def test_without_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(f"{LINE} --limit 1 --json j", capsys)
    assert "accuracy" not in out and json.loads(Path("j").read_text())["accuracy"] is None


@pytest.mark.thorough
def test_float_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that --calibrate prints the accuracy of the quantised network, here above 90 %."""
    Path("m.onnx").write_bytes(as_onnx())
    data = digits()
    np.savez("x.npz", x=data["x_test"], y=data["y_test"].astype(np.int64))
    line = f"{LINE.replace('m.tflite', 'm.onnx')} --calibrate x.npz --labels y"
    status, out, _ = run(line, capsys)
    found = re.search(r"^accuracy ([\d.]+) %$", out, re.MULTILINE)
    assert status == 0 and found and float(found[1]) > 90


@pytest.mark.parametrize("cores", ["", pytest.param(" --cores 2", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ("z", "x.npz has no array 'z'"),
        ("float", "array 'float': labels are 10 whole numbers here, not float64"),
        ("few", "array 'few': labels are 10 whole numbers here, not int64 of shape (3,)"),
        ("many", "array 'many': labels are from 10 to 19, classes 0 to 9"),
        ("x", "array 'x': labels are 10 whole numbers here, not int8 of shape (10, 8, 8, 1)"),
    ],
)
def test_mistakes(
    labels: str, says: str, cores: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Check that wrong labels give one line of error before the network runs, and no file."""
    before = tree(folder)
    status, out, err = run(f"{LINE} --labels {labels}{cores}", capfd)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"tpu: error: [^\n]+\n", err) and says in err, err
    assert tree(folder) == before
