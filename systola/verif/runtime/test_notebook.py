# SPDX-License-Identifier: Apache-2.0
"""Tests that the notebook in examples/ runs from top to bottom, and shows its figures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from systola.verif.kit.checkout import ROOT

NOTEBOOK = ROOT / "examples" / "seeing.ipynb"


def read() -> Any:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_stored_without_results() -> None:
    """Check that the notebook is stored without results.

    Stored results would depend on the author's computer, and change with each commit.
    """
    for cell in read().cells:
        assert not cell.get("outputs")
        assert not cell.get("execution_count")


@pytest.mark.thorough
@pytest.mark.filterwarnings("default")  # libraries of the Jupyter kernel may warn
def test_it_runs() -> None:
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = read()
    client.NotebookClient(notebook, timeout=600).execute(cwd=NOTEBOOK.parent)
    outputs: dict[str, Any] = {}
    text = ""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            outputs.setdefault(cell.source, {}).update(output.get("data", {}))
            text += output.get("text", "")
    assert "16 of 16 digits are right" in text
    assert "array_active" in text
    assert re.search(r"^\w+ waited \d+ cycles for ", text, re.MULTILINE)
    for figure in ("run.plot_layers()", "run.plot_roofline()"):
        assert len(outputs[figure]["image/png"]) > 10_000
