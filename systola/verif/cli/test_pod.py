# SPDX-License-Identifier: Apache-2.0
"""Tests of the option --cores: results, reports, and errors for options that --cores excludes."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.cli.pod import core_table, pipeline_bound
from systola.runtime import api
from systola.runtime.pod.result import CoreRun
from systola.verif.cli.test_errors import run

MODEL = "mlp_tutorial_pc_softmax.tflite"
RUN = "run m.tflite --input x.npz --output y.npz --preset tiny"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Enter a working directory with a model and samples, and return the expected results."""
    monkeypatch.chdir(tmp_path)
    content = (files("systola.models") / MODEL).read_bytes()
    Path("m.tflite").write_bytes(content)
    x = np.random.default_rng(4).integers(-128, 128, (7, 1, 64), dtype=np.int8)
    np.savez("x.npz", x=x)
    model = api.compile(content, preset="tiny", batch=3)
    Path("p.tpu").write_bytes(model.to_bytes())
    return model.run(x, backend="iss").y


@pytest.mark.parametrize(
    ("command", "split"),
    [
        (f"{RUN} --backend iss --cores 3", False),
        (f"{RUN} --backend iss --cores 2 --split --batch 2", True),
        ("run p.tpu --input x.npz --output y.npz --backend iss --cores 3", False),
    ],
)
def test_run(
    command: str, split: bool, folder: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(f"{command} --json f.json", capsys)
    assert (status, err) == (0, "")
    with np.load("y.npz") as archive:
        assert np.array_equal(archive["y"], folder)
    figures = json.loads(Path("f.json").read_text())
    assert (figures["split"], figures["cycles"], figures["samples"]) == (split, None, 7)
    samples = [core["samples"] for core in figures["cores"]]
    assert samples == ([7, 7] if split else [3, 2, 2])
    assert len(figures["layers"]) == figures["pieces"] == (2 if split else 1)
    assert "7 samples of " in out and f"on {len(samples)} cores of 'tiny'" in out


def test_rtl(folder: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(f"{RUN} --cores 2 --mhz 50 --json f.json", capsys)
    assert status == 0
    with np.load("y.npz") as archive:
        assert np.array_equal(archive["y"], folder)
    figures = json.loads(Path("f.json").read_text())
    cycles = [core["cycles"] for core in figures["cores"]]
    assert figures["cycles"] == max(cycles)
    assert figures["efficiency"] == pytest.approx(sum(cycles) / 2 / max(cycles))
    assert figures["inferences_per_second"] == pytest.approx(7 * 50e6 / max(cycles))
    for core in figures["cores"]:
        assert sum(core["counters"].values()) == core["cycles"] == core["end"]
    assert f"{max(cycles):,} cycles of the pod" in out
    assert "inferences a second at 50 MHz" in out
    status, out, _ = run(f"{RUN} --cores 2 --split --batch 2", capsys)
    assert status == 0
    assert "4 batches through 2 pieces: at most 80.00 % busy" in out
    assert "core 1\nlayer " in out


def test_gemm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.json"
    for backend in ("iss", "rtl"):
        command = f"gemm 9 7 5 --preset tiny --cores 4 --backend {backend} --json {path}"
        status, out, err = run(command, capsys)
        assert (status, err.count("WRONG")) == (0, 0)
        assert "9 x 7 x 5 on 4 cores of 'tiny'" in out and "every byte equals numpy" in out
        figures = json.loads(path.read_text())
        assert figures["bit_exact"] and len(figures["cores"]) == 4
    cycles = [core["cycles"] for core in figures["cores"]]
    assert figures["cycles"] == max(cycles)
    assert sum(figures["counters"].values()) == sum(cycles)
    assert figures["utilization"] == pytest.approx(9 * 7 * 5 / (4 * 16 * max(cycles)))
    status, out, _ = run("gemm 2 3 3 --preset tiny --cores 4", capsys)
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()[-3:-1]] == [["2", "-"], ["3", "-"]]


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = run("info --preset small", capsys)
    status, out, _ = run("info --preset small --cores 3", capsys)
    assert status == 0
    assert out.startswith(plain) and "A pod of 3 such cores" in out[len(plain) :]
    one = json.loads(run("info --preset small --json", capsys)[1])
    pod = json.loads(run("info --preset small --cores 3 --json", capsys)[1])
    assert pod.pop("pod") == {
        "cores": 3,
        "peak_macs_per_cycle": 3 * one["peak_macs_per_cycle"],
        "memory_bytes_total": 3 * one["memory_bytes_total"],
        "host_bytes_per_cycle": 3 * one["host_bus_bytes"],
        "weight_bytes_per_cycle": 3 * one["weight_bytes_per_cycle"],
    }
    assert pod == one


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("gemm 4 4 4 --cores 0", "--cores: must be at least 1, not 0"),
        ("gemm 4 4 4 --cores 1025", "--cores: must be at most 1024, not 1025"),
        ("gemm 4 4 4 --cores two", "--cores: 'two' is not a whole number"),
        ("gemm 4 4 4 --cores 2 --timeline t.json", "--timeline shows one core"),
        ("gemm 4 4 4 --cores 2 --backend serial --port p", "--backend serial is one core"),
        ("info --cores -3", "--cores: must be at least 1, not -3"),
        (f"{RUN} --split", "--split goes with --cores"),
        (f"{RUN} --scheduler tcp://localhost:1", "--scheduler goes with --cores"),
        (f"{RUN} --cores 2 --report r.html", "--report shows one core"),
        (f"{RUN} --cores 2 --roofline r.svg", "--roofline shows one core"),
        (f"{RUN} --cores 2 --waves 0:9", "--waves shows one core"),
        (f"{RUN} --cores 2 --backend serial", "--backend serial is one core"),
        (f"{RUN} --cores 2 --json y.npz", "y.npz is named twice"),
        (f"{RUN} --cores 2 --semantics onnx", "m.tflite: a TensorFlow Lite model has"),
        ("run x.npz --input x.npz --output y.npz --cores 2", "x.npz: not a compiled program"),
        (
            "run p.tpu --input x.npz --output y.npz --cores 2 --split",
            "p.tpu: a compiled program stays in one piece",
        ),
        (
            "run p.tpu --input x.npz --output y.npz --cores 2 --batch 2",
            "p.tpu is compiled with --batch 3",
        ),
    ],
)
def test_mistakes(
    command: str, says: str, folder: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(command, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not Path("y.npz").exists()


def test_table() -> None:
    busy = CoreRun(3, 100, 150, {"array_active": 60, "fetch": 40})
    idle = CoreRun(0, None, 0, {})
    table = core_table([busy, idle], "samples", ["3"]).splitlines()
    assert table[0].split() == ["array", "fetch", "idle"]
    assert table[1].split() == ["core", "samples", "cycles", "active"]
    assert table[2].split() == ["0", "3", "100", "40.0", "%", "26.7", "%", "33.3", "%"]
    assert table[3].split() == ["1", "-", "0", "0.0", "%", "0.0", "%", "100", "%"]
    assert pipeline_bound(16, 4, 4) == "16 batches through 4 pieces: at most 84.21 % busy"
    assert pipeline_bound(3, 2, 4).startswith("3 batches through 2 pieces: at most 37.50 % busy, ")
