# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu check`, and of `tpu run` for a network that only partly runs on the machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from systola.verif.cli.test_errors import run
from systola.verif.compiler.model_writer import ModelWriter, interpret


def mixed() -> bytes:
    """Return a model with a dense layer of 4 x 6 in int8, and one of 3 x 4 in float32."""
    writer = ModelWriter()
    x, h = writer.tensor((1, 6), scale=0.5), writer.tensor((1, 4), scale=0.2)
    f, y = writer.tensor((1, 4), "float32"), writer.tensor((1, 3), "float32")
    writer.fully_connected(x, h, np.arange(24, dtype=np.int8).reshape(4, 6), None, 0.01)
    writer.operator("DEQUANTIZE", [h], [f])
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    operands = [f, writer.tensor((3, 4), "float32", data=weights)]
    writer.operator("FULLY_CONNECTED", operands, [y], keepNumDims=True)
    return writer.content([x], [y])


def floats() -> bytes:
    """Return a model with one dense layer in float32."""
    writer = ModelWriter()
    x, y = writer.tensor((1, 4), "float32"), writer.tensor((1, 3), "float32")
    weights = writer.tensor((3, 4), "float32", data=np.ones((3, 4), np.float32))
    writer.operator("FULLY_CONNECTED", [x, weights], [y], keepNumDims=True)
    return writer.content([x], [y])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mixed.tflite").write_bytes(mixed())
    Path("floats.tflite").write_bytes(floats())
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_parts(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("check mixed.tflite --preset tiny --json f.json", capsys)
    assert (status, err) == (0, "")
    lines = [line.split(maxsplit=5) for line in out.splitlines()]
    assert lines[1] == ["0", "FULLY_CONNECTED", "4", "24.0", "machine"]
    assert lines[2][:5] == ["1", "DEQUANTIZE", "4", "-", "host"]
    assert lines[3][:5] == ["2", "FULLY_CONNECTED", "3", "12.0", "host"]
    assert "its input is float32, supported is int8" in lines[3][5]
    assert "('tpu quantize' makes a float network int8)" in lines[3][5]
    assert "machine: 1 of 3 operators, 66.7 % of 36.0 MACs; host: 2 of 3" in out.splitlines()[-1]
    found = json.loads(Path("f.json").read_text())
    assert (found["runs"], found["machine_share"], found["preset"]) == (True, 24 / 36, "tiny")
    assert [each["place"] for each in found["operators"]] == ["machine", "host", "host"]
    assert found["operators"][2] == {
        "number": 2,
        "operator": "FULLY_CONNECTED",
        "shape": [1, 3],
        "macs": 12,
        "place": "host",
        "reason": "its input is float32, supported is int8",
        "remedy": "'tpu quantize' makes a float network int8",
    }


@pytest.mark.usefixtures("folder")
def test_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Check that `tpu check` prints its table for a refused network, too, and then the reason."""
    status, out, err = run("check floats.tflite", capsys)
    assert status == 2
    assert "refused" in out.splitlines()[1] and "'tpu quantize'" in out.splitlines()[1]
    assert out.splitlines()[-1].startswith("refused: 1 of 1 operators, 100 % of 12.0 MACs")
    assert err.startswith("tpu: error: floats.tflite: operator 0 (FULLY_CONNECTED): ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"no model at all", mixed()[:300]])
@pytest.mark.usefixtures("folder")
def test_no_model(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m").write_bytes(content)
    status, out, err = run("check m", capsys)
    assert (status, out) == (2, "")
    assert err.startswith("tpu: error: m: ") and err.count("\n") == 1


@pytest.mark.usefixtures("folder")
def test_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Check `tpu run` of a network of which the host runs an operator, also from a compiled file.

    A printed line has the machine's share of the work, and the reason for the host's operator. The
    results equal the interpreter's.
    """
    x = np.random.default_rng(1).integers(-128, 128, (3, 1, 6), np.int8)
    np.savez("x.npz", x=x)
    command = "--input x.npz --output y.npz --backend iss --json f.json"
    line = "66.7 % of 36 MACs a sample on the machine; on the host, by ai-edge-litert: "
    assert line in run("compile mixed.tflite -o m.tpu --preset tiny", capsys)[1]
    for model in ("mixed.tflite --preset tiny", "m.tpu"):
        status, out, err = run(f"run {model} {command}", capsys)
        assert (status, err) == (0, "")
        assert f"{line}2 FULLY_CONNECTED: its input is float32, supported is int8\n" in out
        assert json.loads(Path("f.json").read_text())["machine_share"] == 24 / 36
        with np.load("y.npz") as found:
            assert np.array_equal(found["y"], interpret(mixed(), x))
