# SPDX-License-Identifier: Apache-2.0
"""Tests of the output and the files of commands that succeed, on the golden model."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.arch.config import PRESETS
from systola.arch.registers import CycleClass
from systola.cli.gemm import random_gemm
from systola.cli.report import cycle_table
from systola.runtime.reference import layer_reference
from systola.verif.cli.test_errors import run
from systola.verif.compiler.products import product
from systola.verif.kit.seeds import random_seed


def test_gemm_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text("something longer " * 100)
    status, out, err = run(f"gemm 5 7 9 --preset tiny --backend iss --json {path}", capsys)
    assert (status, err) == (0, "")
    assert "every byte equals numpy" in out
    figures = json.loads(path.read_text())
    assert figures["bit_exact"] is True
    assert figures["macs"] == 5 * 7 * 9
    assert figures["counters"] == {}
    for key in ("cycles", "utilization", "simulated_cycles_per_second"):
        assert figures[key] is None
    status, out, _ = run("gemm 5 7 9 --preset tiny --backend iss --json -", capsys)
    assert status == 0
    assert json.loads(out) == figures


def test_gemm_operands_spread_over_all_codes() -> None:
    seed = random_seed()
    for k in (1, 20, 700):
        a, layer = random_gemm(60, k, 60, seed)
        result = layer_reference(a, layer)
        assert np.array_equal(result, product(a, layer))
        assert len(np.unique(result)) > 150
        assert np.mean((result == -128) | (result == 127)) < 0.2


def test_gemm_seed(capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = random_gemm(3, 3, 3, 1)
    assert np.array_equal(first, random_gemm(3, 3, 3, 1)[0])
    assert not np.array_equal(first, random_gemm(3, 3, 3, 2)[0])
    assert run(f"gemm 3 3 3 --backend iss --seed {2**59 - 1}", capsys)[0] == 0


@pytest.mark.parametrize("name", ["mlp_tutorial_pc_softmax", "mlp_floatio"])
def test_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = Path(str(files("systola.models")))
    output, figures = tmp_path / "y.npz", tmp_path / "figures.json"
    command = f"run {models / name}.tflite --backend iss --preset tiny --output {output}"
    inputs = f"--input {models / name}.npz"
    with np.load(models / f"{name}.npz") as stored:
        x, expected = stored["x"], stored["y_ref"]

    status, out, err = run(f"{command} {inputs} --batch 4 --json {figures}", capsys)
    assert (status, err) == (0, "")
    assert f"{len(x)} samples" in out
    found = json.loads(figures.read_text())
    assert found["samples"] == len(x)
    assert "energy of an inference" in out and found["activity"]["macs"] > found["macs"] / len(x)
    for each in found["energy"].values():
        assert sum(each["units"].values()) == pytest.approx(each["joules"])
    with np.load(output) as archive:
        assert archive.files == ["y"]
        assert np.array_equal(archive["y"], expected)
        assert archive["y"].dtype == expected.dtype

    assert run(f"{command} {inputs} --limit 3", capsys)[0] == 0
    with np.load(output) as archive:
        assert np.array_equal(archive["y"], expected[:3])

    # A single sample may lack the axis of samples. The array of inputs may have any name, and
    # may be float64 for a float32 input.
    np.savez(
        tmp_path / "one.npz", one=x[0].astype(np.float64 if x.dtype == np.float32 else x.dtype)
    )
    assert run(f"{command} --input {tmp_path / 'one.npz'} --key one --limit 5", capsys)[0] == 0
    with np.load(output) as archive:
        assert np.array_equal(archive["y"], expected[0])


def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    status, out, err = run(f"demo --backend iss --json {figures}", capsys)
    assert status == 0
    assert "360/360" in err
    assert "360 test images" in out
    assert "every byte equals the golden model: yes" in out
    assert "every byte equals ai-edge-litert 2.3.0: yes (stored), yes (run just now)" in out
    assert json.loads(figures.read_text())["accuracy"] > 0.97


def test_assembler_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, program = tmp_path / "p.s", tmp_path / "p.bin"
    source.write_text("# two\nread_weights tile=1, count=2\nhalt\n")
    assert run(f"asm {source} -o {program}", capsys) == (0, "", "")
    assert len(program.read_bytes()) == 32
    status, out, _ = run(f"disasm {program}", capsys)
    assert (status, out) == (0, "read_weights tile=1, count=2\nhalt\n")


def test_assembler_knows_what_a_preset_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, program = tmp_path / "p.s", tmp_path / "p.bin"
    source.write_text(
        "set_config_window height=1, width=1, pitch=1, kernel_height=1, kernel_width=1, "
        "stride_y=1, stride_x=1, dilation_y=1, dilation_x=1, out_height=1, out_width=1\n"
        "depthwise buffer=0, taps=0, destination=r1, blocks=1, parameter=0\nhalt\n"
    )
    assert run(f"asm {source} -o {program}", capsys) == (0, "", "")
    assert len(program.read_bytes()) == 48
    status, _, err = run(f"asm {source} -o {tmp_path / 'none'} --preset tiny", capsys)
    assert status == 2
    assert err.strip().endswith(
        "p.s: line 2: depthwise: configuration 'tiny' has no depthwise lanes"
    )
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", PRESETS)
def test_info(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = PRESETS[name]
    status, text, _ = run(f"info --preset {name}", capsys)
    assert status == 0
    assert f"{config.peak_macs:,} MACs a cycle" in text
    status, out, _ = run(f"info --preset {name} --json", capsys)
    facts = json.loads(out)
    assert status == 0
    assert facts["peak_macs_per_cycle"] == config.rows * config.cols
    assert facts["memory_bytes"]["unified_buffer"] == config.buffer_lines * config.line_bytes
    assert facts["registers"]["control"] == 8
    path = tmp_path / "facts.json"
    assert run(f"info --preset {name} --json {path}", capsys)[:2] == (0, text)
    assert json.loads(path.read_text()) == facts


def test_v1_has_the_sizes_of_the_original(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(run("info --preset v1 --json", capsys)[1])
    assert facts["memory_bytes"]["unified_buffer"] == 24 << 20
    assert facts["memory_bytes"]["accumulators"] == 4 << 20
    assert facts["weight_bytes_per_cycle"] == pytest.approx(34e9 / 700e6, rel=1e-3)


@pytest.mark.parametrize(("maker", "cores"), [("generate", ""), ("generate_pod", "--cores 2")])
def test_verilog_names_its_origin(
    maker: str,
    cores: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that `tpu verilog` puts licence, version and machine above the Verilog."""

    def make(*_: object) -> str:
        return "module tpu; endmodule\n"

    monkeypatch.setattr(f"systola.hdl.verilog.{maker}", make)
    status, text, _ = run(f"verilog --preset tiny-links {cores} -o -", capsys)
    assert status == 0
    licence, origin, rest = text.split("\n", 2)
    assert licence == "// SPDX-License-Identifier: Apache-2.0"
    assert origin.startswith(f"// Systola {version('systola')}")
    assert origin.endswith(", machine 'tiny-links'")
    assert rest == "module tpu; endmodule\n"


def test_cycle_table() -> None:
    counters = {which.name.lower(): 0 for which in CycleClass}
    counters |= {"array_active": 900, "drain": 99, "fetch": 1}
    lines = cycle_table(counters).splitlines()
    assert [line.split("  ")[1].strip() for line in lines] == [
        "array active",
        "fetch",
        "drain",
        "total",
    ]
    assert "90.00 %" in lines[0]
    assert "1,000" in lines[-1]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("--help", capsys)
    assert status == 0
    for command in ("gemm", "compile", "run", "asm", "disasm", "verilog", "info", "demo"):
        assert command in out
        assert run(f"{command} --help", capsys)[0] == 0
