# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/survey.py, which compiles and runs each model file in a folder.

The outcome of a file is "right", "wrong" or a reason for refusal, for example."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from systola.bench.survey import cause, table
from systola.verif.compiler import float_tflite
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.kit.seeds import random_seed


@pytest.mark.thorough
def test_outcomes(tmp_path: Path) -> None:
    """Check the outcomes of four files.

    The files are an int8 network, a float network, a network with an operator that the machine
    lacks, and a text file.
    """
    rng = np.random.default_rng(random_seed())
    (tmp_path / "float.tflite").write_bytes(float_tflite.weights_of_float16(rng))
    writer = ModelWriter()
    x, y = writer.tensor((1, 6), scale=0.1), writer.tensor((1, 4), scale=0.3)
    writer.fully_connected(x, y, rng.integers(-127, 128, (4, 6), np.int8), None, 0.02)
    (tmp_path / "int8.tflite").write_bytes(writer.content([x], [y]))
    net = OnnxWriter()
    content = net.content((net.node("Det", net.input((1, 3, 3), "float32")), "float32", (1,)))
    (tmp_path / "host.onnx").write_bytes(content)
    (tmp_path / "text.onnx").write_text("no model")
    command = [sys.executable, "-m", "systola.bench.survey", tmp_path, "--preset", "small"]
    result = subprocess.run(
        [*command, "--json", tmp_path / "o.json"], capture_output=True, text=True, check=True
    )
    outcomes = {each["file"]: each for each in json.loads((tmp_path / "o.json").read_text())}
    assert outcomes["float.tflite"]["outcome"] == "right after quantising"
    assert (outcomes["int8.tflite"]["outcome"], outcomes["int8.tflite"]["form"]) == (
        "right",
        "int8",
    )
    assert outcomes["host.onnx"]["outcome"] == "refused after quantising"
    assert outcomes["text.onnx"]["outcome"] == "not quantised"
    assert result.stdout.startswith("4 files\nfloat32: 1 of 2 run (50%)")
    assert "  refused after quantising: node N (Det): this kind of operator" in result.stdout


def test_wrong_results_and_tracebacks_fail() -> None:
    """Check the table of outcomes, in which refusals or errors with similar reasons are one line.

    Similar reasons differ only in numbers and names.
    """
    assert (
        cause("operator 3 (ADD): its input 'a' is int7; and more") == "ADD: its input '...' is intN"
    )
    outcomes = [
        {"form": "int8", "outcome": "wrong", "reason": f"off by 0.{number} of the range"}
        for number in (25, 31)
    ]
    outcomes += [
        {"form": "int8", "outcome": "right", "reason": "", "share": share}
        for share in (None, 0.79, 0.8, 1.0)
    ]
    assert table(outcomes) == (
        "6 files\nint8: 4 of 6 run (67%): 4 right, 2 wrong\n"
        "2 of 3 with products have 80% of them on the machine\n"
        "    2  wrong: off by N.N of the range"
    )
