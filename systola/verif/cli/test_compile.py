# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu compile`, and of `tpu run` with a compiled program, on the golden model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.verif.cli.test_errors import run
from systola.verif.compiler.model_writer import ModelWriter, interpret

MODELS = Path(str(files("systola.models")))
SOME = sorted(path.stem for path in MODELS.glob("*.tflite"))[::4]
"""Models that these tests compile twice; verif/compiler/test_fuzz.py compiles all models twice."""


def outputs(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("name", ["cnn_residual_dw_pool", "lstm_digits_rows_k2", "mlp_floatio"])
def test_program(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, y, figures = tmp_path / "p", tmp_path / "y.npz", tmp_path / "f.json"
    model, samples = MODELS / f"{name}.tflite", MODELS / f"{name}.npz"
    status, out, err = run(f"compile {model} -o {program} --preset small --batch 5", capsys)
    assert (status, err) == (0, "")
    for text in ("on the machine:", "lines of the buffer", "estimate", "up to 5 samples"):
        assert text in out
    assert "on the host: operator 8 (SOFTMAX)" in out or name != "cnn_residual_dw_pool"
    assert "spilled" not in out
    expected = outputs(samples)["y_ref"]
    command = f"run {program} --input {samples} --output {y} --backend iss --json {figures}"
    # The runs have full batches and a rest, a single sample, and options that repeat the file's.
    for options, count in (("", len(expected)), ("--limit 1", 1), ("--batch 5 --limit 10", 10)):
        assert run(f"{command} {options} --preset small", capsys)[0] == 0
        assert np.array_equal(outputs(y)["y"], expected[:count])
        found = json.loads(figures.read_text())
        assert (found["samples"], found["batch"], found["preset"]) == (count, 5, "small")
        assert found["semantics"] == "litert-2"
        assert (found["cycles"], found["utilization"]) == (None, None)
        assert found["estimated_cycles_per_sample"] > 0
        assert [row["measured_cycles"] for row in found["layers"] if row["measured_cycles"]] == []


@pytest.mark.thorough
def test_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check a run's figures on the RTL with slow memories, as text, JSON and picture."""
    name = MODELS / "cnn_residual_dw_pool"
    figures, picture = tmp_path / "f.json", tmp_path / "r.svg"
    status, out, _ = run(
        f"run {name}.tflite --input {name}.npz --output {tmp_path / 'y.npz'} --preset small "
        f"--latency 9 --stall 0.1 --seed 3 --mhz 80 --json {figures} --roofline {picture}",
        capsys,
    )
    assert status == 0
    assert np.array_equal(outputs(tmp_path / "y.npz")["y"], outputs(Path(f"{name}.npz"))["y_ref"])
    found = json.loads(figures.read_text())
    assert (found["latency"], found["stall"], found["seed"]) == (9, 0.1, 3)
    assert found["utilization"] == pytest.approx(found["macs"] / (64 * found["cycles"]))
    assert found["inferences_per_second"] == pytest.approx(14 * 80e6 / found["cycles"])
    layers = found["layers"]
    assert [row["operator"] for row in layers][-1] == "operator 8 (SOFTMAX)"
    assert sum(row["macs"] for row in layers) * 14 == found["macs"]
    measured = sum(row["measured_cycles"] or 0 for row in layers)
    assert measured == pytest.approx(found["cycles_per_sample"])
    for text in ("0 CONV_2D", "on the host", "8 SOFTMAX", "inferences a second at 80 MHz"):
        assert text in out
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_two_inputs_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = ModelWriter()
    a, b, total, product = (writer.tensor((1, 3, 4), "int8", 0.1, zero) for zero in (0, 3, -5, 7))
    writer.operator("ADD", [a, b], [total])
    writer.operator("MUL", [a, b], [product])
    model, x, y = tmp_path / "m.tflite", tmp_path / "x.npz", tmp_path / "y.npz"
    rng = np.random.default_rng(5)
    x0, x1 = (rng.integers(-128, 128, (7, 1, 3, 4), dtype=np.int8) for _ in range(2))
    np.savez(x, x0=x0, x1=x1, left=x0, right=x1, few=x1[:2])
    content = writer.content([a, b], [total, product])
    model.write_bytes(content)
    theirs = [
        interpret(writer.content([a, b], order), x0, x1)
        for order in ([total, product], [product, total])
    ]
    command = f"run {model} --backend iss --preset small --input {x} --output {y}"
    for options in ("", "--key x0,x1", "--key left,right", "--batch 3"):
        assert run(f"{command} {options}", capsys)[0] == 0
        found = outputs(y)
        assert list(found) == ["y0", "y1"]
        assert np.array_equal(found["y0"], theirs[0])
        assert np.array_equal(found["y1"], theirs[1])
    for keys, says in (
        ("x0", "--key has 1 names, the model has 2 inputs"),
        ("x0,x1,x1", "--key has 3 names"),
        ("x0,few", "the inputs have different numbers of samples: 7, 2"),
        ("x0,", "has no array ''"),
    ):
        status, _, err = run(f"{command} --key {keys}", capsys)
        assert status == 2
        assert says in err


def test_spilling_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the output names a value that is spilled to host memory.

    A feature map of 4096 lines is added to itself on a machine with a buffer of 1024 lines.
    """
    writer = ModelWriter()
    a, b = (writer.tensor((1, 32, 32, 4), "int8", 0.1, zero) for zero in (0, 3))
    c = writer.tensor((1, 32, 32, 4), "int8", 0.2, -3)
    writer.operator("RELU", [a], [b])
    writer.operator("ADD", [a, b], [c])
    model, program = tmp_path / "m.tflite", tmp_path / "p"
    model.write_bytes(writer.content([a], [c]))
    status, out, err = run(f"compile {model} -o {program} --preset tiny", capsys)
    assert (status, err) == (0, "")
    assert re.search(r"spilled to host memory, .*: t\d \([\d,]+ bytes\)", out)


def test_semantics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, program = MODELS / "fc_perchannel_06.tflite", tmp_path / "p"
    samples = MODELS / "fc_perchannel_06.npz"
    stored = outputs(samples)
    assert not np.array_equal(stored["y_ref"], stored["y_ref12"])
    for name, expected in (("litert-2", "y_ref"), ("litert-1.2", "y_ref12")):
        assert run(f"compile {model} -o {program} --semantics {name}", capsys)[0] == 0
        for source in (program, model):
            command = f"run {source} --input {samples} --key x0 --output {tmp_path / 'y.npz'}"
            assert run(f"{command} --backend iss --semantics {name}", capsys)[0] == 0
            assert np.array_equal(outputs(tmp_path / "y.npz")["y"], stored[expected])


def test_host_stage_without_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the error for a text with a word that is not in the network's vocabulary."""
    with np.load(MODELS / "lstm_text_100.npz") as stored:
        x = stored["x"][:2].astype(np.int64)
    x[1, 0, 3] = 1000
    np.savez(tmp_path / "x.npz", x=x)
    status, out, err = run(
        f"run {MODELS / 'lstm_text_100.tflite'} --input {tmp_path / 'x.npz'} "
        f"--output {tmp_path / 'y.npz'} --backend iss",
        capsys,
    )
    assert (status, out) == (2, "")
    assert err.endswith("operator 0 (GATHER): an index is outside 0 to 999\n")
    assert err.count("\n") == 1
    assert not (tmp_path / "y.npz").exists()


def fingerprints(hash_seed: int, folder: Path) -> dict[str, Any]:
    """Return the SHA-256 of the compiled program of each model in SOME, by the model's name.

    The models are compiled in a separate process with `hash_seed` as Python's PYTHONHASHSEED.
    """
    script = (
        "import hashlib, json\n"
        "from systola.verif.cli.test_compile import MODELS, SOME\n"
        "from systola.runtime import api\n"
        "print(json.dumps({name: hashlib.sha256(api.compile("
        "MODELS / f'{name}.tflite', batch=5).to_bytes()).hexdigest() for name in SOME}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def test_compiling_is_deterministic(tmp_path: Path) -> None:
    first = fingerprints(0, tmp_path)
    assert set(first) == set(SOME)
    assert len(set(first.values())) == len(SOME)
    assert first == fingerprints(1, tmp_path)
