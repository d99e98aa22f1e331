# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/operators.md, the page of the supported operators, is complete and up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from systola.compiler.onnx import translate as onnx_translate
from systola.compiler.reference import PAGES, main, operators_page
from systola.compiler.tflite import translate
from systola.verif.kit.checkout import ROOT

DOCS = ROOT / "docs"


def test_docs_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(DOCS)]) == 0, capsys.readouterr().err


def test_check_notices_a_stale_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)
    assert main(["--check", str(tmp_path)]) == 0
    with (tmp_path / "operators.md").open("a") as page:
        page.write("\n")
    assert main(["--check", str(tmp_path)]) == 1
    assert "operators.md is out of date: run python -m" in capsys.readouterr().err


def test_every_operator_is_there_and_explained() -> None:
    tflite, onnx = operators_page().split("## ONNX")
    for page, translators in (
        (tflite, translate.TRANSLATORS),
        (onnx, onnx_translate.TRANSLATORS),
    ):
        for kind in translators:
            assert f"`{kind}`" in page, kind
        for line in page.splitlines():
            if line.startswith("| `"):
                assert len(line.split("|")[2].split()) > 0, line
                assert "Raises" not in line, line
