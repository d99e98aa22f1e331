# SPDX-License-Identifier: Apache-2.0
"""Tests that Python, commands, messages and the table of columns in docs/networks.md are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.compiler.semantics import Semantics
from systola.runtime.report import LayerRow
from systola.verif.cli.test_errors import run
from systola.verif.compiler.float_digits import as_tflite, digits, trained
from systola.verif.kit.checkout import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "networks.md").read_text()
MODEL = "cnn_residual_dw_pool"
"""Name of the model that tests use in place of the network that the page trains."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    models = Path(str(files("systola.models")))
    for suffix in (".tflite", ".npz"):
        (tmp_path / f"digits{suffix}").write_bytes((models / f"{MODEL}{suffix}").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.thorough
def test_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", section("From Python"), re.DOTALL)
    exec(script, {})
    assert "operator 8 (SOFTMAX) host" in capsys.readouterr().out
    assert (folder / "digits.tpu").exists()


@pytest.mark.thorough
def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^tpu (.*digits\.t.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert run(f"{command}", capsys)[0] == 0, command


@pytest.mark.thorough
def test_from_a_float_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the page's commands print the output that the page shows.

    The int8 network must be less than a point (1 %) of accuracy worse than the float network.
    """
    monkeypatch.chdir(tmp_path)
    Path("digits_float.tflite").write_bytes(as_tflite())
    for name, end in (("digits_float", ""), ("digits_test", "_test")):
        data = digits()
        np.savez(f"{name}.npz", x=data[f"x{end}"], y=data[f"y{end}"].astype(np.int64))
    text = section("From a float model")
    (quantise,) = re.findall(r"^tpu (quantize .*)$", text, re.MULTILINE)
    (printed,) = re.findall(r"```\n(calibrated .*?)```", text, re.DOTALL)
    status, out, _ = run(f"{quantise}", capsys)
    # Printed numbers are masked, because sums of float32 depend on the processor.
    assert (status, masked(out)) == (0, masked(printed))
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert script.count("\n") <= 10
    exec(script, {})
    lines = capsys.readouterr().out.splitlines()
    float_accuracy, accuracy = map(float, lines[0].split()[:2])
    assert abs(float_accuracy - accuracy) < 0.01
    of_int8 = float(lines[1].split()[1])
    assert abs(of_int8 - np.mean(float_classes() == digits()["y_test"])) < 0.01
    (run_line,) = re.findall(r"`tpu (run digits_float.*?)`", text)
    assert run(f"{run_line} --backend iss", capsys)[0] == 0
    with np.load("y.npz") as results:
        assert of_int8 == np.mean(results["y"].argmax(axis=1) == digits()["y_test"])


def masked(text: str) -> str:
    """Return a text with a mark in place of each number."""
    return re.sub(r"[\d.,]*\d", "#", text)


def float_classes() -> NDArray[np.int64]:
    """Return the float network's classes for the test samples, on which it was not trained."""
    w1, b1, w2, b2 = trained()
    return (np.maximum(digits()["x_test"] @ w1 + b1, 0) @ w2 + b2).argmax(axis=1)


def test_columns_and_semantics() -> None:
    columns = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|.*$", section("The report"), re.M)))
    assert {each.name for each in fields(LayerRow)} <= {*columns, "work"}
    assert "`work`" in section("The report")
    table = section("The right bytes")
    for semantics in Semantics:
        assert f"| `{semantics.value}` |" in table


def test_messages() -> None:
    """Check that the error messages on the page are in the code."""
    text = "".join(
        path.read_text()
        for folder in ("arch", "compiler", "runtime")
        for path in (PACKAGE / folder).rglob("*.py")
    )
    # First join texts over several lines. Then replace all values that code fills in by {}.
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    for kind in ("float32", "int8"):
        text = text.replace(f"is {kind}", "is {}")
    text = re.sub(r"\{[^{}]*\}", "{}", text)
    quoted = re.findall(
        r"^\| ([^|]*) \| [^|]* \|$", section("If a network is refused"), re.MULTILINE
    )
    assert len(quoted) == 10 and quoted[:2] == ["message", "---"]
    for message in quoted[2:]:
        filled = re.sub(r"float32|(?<=is )int8|(?<=')\w+(?=')|\d+(?= lines)", "{}", message)
        assert filled in text, message


def example(title: str) -> str:
    (script,) = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    return script


@pytest.mark.parametrize("title", ["From Keras", "From PyTorch"])
def test_examples_are_python(title: str) -> None:
    """Check that ten lines are enough from the trained model to the accuracies of float and int8.

    The script on the page is the same as in examples/.
    """
    script = example(title)
    name = f"digits_{title.split()[-1].lower().removeprefix('py')}.py"
    assert f"`{name}`" in section(title)
    assert (ROOT / "examples" / name).read_text().split("\n\n", 1)[1] == script
    compile(script, title, "exec")
    last = script.rpartition("\n\n")[2]
    assert last.startswith("made = systola.quantize(model, ") and last.count("\n") <= 10


@pytest.mark.thorough
@pytest.mark.parametrize("title", ["From Keras", "From PyTorch"])
def test_examples(
    title: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check the page's examples with their frameworks: int8 loses less than a point of accuracy."""
    exporter = ["torch", "onnxscript"]
    environment = dict(os.environ)
    if title == "From Keras" and find_spec("tensorflow"):
        exporter = ["tensorflow"]
    elif title == "From Keras":
        environment["KERAS_BACKEND"] = "torch"
    for library in (*exporter, *(["keras"] if title == "From Keras" else [])):
        if not find_spec(library):
            pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    script = example(title).replace('"rtl"', '"iss"')
    # The example runs in a process of its own, since Keras has one back end for a process.
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    float_accuracy, accuracy = (float(line.split()[-1]) for line in out.stdout.splitlines()[-2:])
    assert float_accuracy > 0.9 and abs(float_accuracy - accuracy) < 0.01
    if title == "From PyTorch":
        (line,) = re.findall(r"^tpu (run digits\.onnx .*)$", section(title), re.MULTILINE)
        status, printed, _ = run(f"{line} --backend iss", capsys)
        assert status == 0 and f"accuracy {100 * accuracy:.2f} %" in printed
