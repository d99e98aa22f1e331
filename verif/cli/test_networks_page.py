# SPDX-License-Identifier: Apache-2.0
"""What docs/networks.md shows works: its Python, its commands and its table of columns."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from systola.compiler.semantics import Semantics
from systola.runtime.report import LayerRow
from systola.verif.cli.test_errors import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "networks.md").read_text()
MODEL = "cnn_residual_dw_pool"
"""Stands for the network that the page trains."""


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
    assert len(commands) == 3
    for command in commands:
        assert run(f"{command}", capsys)[0] == 0, command


def test_columns_and_semantics() -> None:
    columns = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|.*$", section("The report"), re.M)))
    assert {each.name for each in fields(LayerRow)} <= {*columns, "work"}
    assert "`work`" in section("The report")
    table = section("The right bytes")
    for semantics in Semantics:
        assert f"| `{semantics.value}` |" in table


def test_messages() -> None:
    """The messages that the page quotes are those of the code."""
    root = Path(__file__).resolve().parents[2]
    text = "".join(
        path.read_text()
        for folder in ("arch", "compiler")
        for path in (root / folder).rglob("*.py")
    )
    # Parts of a text that stand in several lines; then everything that is filled in.
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    for kind in ("float32", "int8"):
        text = text.replace(f"is {kind}", "is {}")
    text = re.sub(r"\{[^{}]*\}", "{}", text)
    quoted = re.findall(
        r"^\| ([^|]*) \| [^|]* \|$", section("If a network is refused"), re.MULTILINE
    )
    assert len(quoted) == 8 and quoted[:2] == ["message", "---"]
    for message in quoted[2:]:
        filled = re.sub(r"float32|(?<=is )int8|(?<=')\w+(?=')|\d+(?= lines)", "{}", message)
        assert filled in text, message


@pytest.mark.parametrize("title", ["From Keras", "From PyTorch"])
def test_examples_are_python(title: str) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    compile(script, title, "exec")
