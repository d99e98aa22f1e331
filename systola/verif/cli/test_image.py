# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu image`: a driver without this project can run a network from the files."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.golden.machine import Machine
from systola.runtime import api
from systola.verif.cli.test_errors import run
from systola.verif.compiler.model_writer import ModelWriter

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
MODELS = Path(str(files("systola.models")))


class Driver:
    """A host that knows only the files of `tpu image`, with numbers and offsets from image.h."""

    def __init__(self, folder: Path, config: Config) -> None:
        text = (folder / "image.h").read_text()
        numbers = re.findall(r"#define SYSTOLA_IMAGE\d*_(\w+) 0x([0-9a-f]+)u", text)
        self.numbers = {name: int(value, 16) for name, value in numbers}
        tables = re.findall(r"uint32_t systola_image\d*_(\w+)\[\d+\] = \{(.*?)\};", text, re.DOTALL)
        self.offsets = {
            name: [int(each) for each in re.findall(r"\d+", table)] for name, table in tables
        }
        self.host = np.fromfile(folder / "host.bin", np.uint8)
        self.weights = np.fromfile(folder / "weight.bin", np.uint8)
        self.machine = Machine(config)

    def run(self, **inputs: NDArray[np.int8]) -> None:
        """Write the inputs to the host window and run the program, which changes the window."""
        for name, values in inputs.items():
            self.host[self.offsets[name]] = values.reshape(-1).view(np.uint8)
        self.machine.run(self.host, self.weights, self.numbers["PROGRAM"])

    def output(self, name: str) -> NDArray[np.int8]:
        return self.host[self.offsets[name]].view(np.int8)


def from_hex(path: Path, word: int) -> bytes:
    """Return the bytes that Verilog's $readmemh reads from a file, with `word` bytes a word."""
    lines = [each for each in path.read_text().splitlines() if not each.startswith("//")]
    assert all(len(line) == 2 * word for line in lines)
    return b"".join(int(line, 16).to_bytes(word, "little") for line in lines)


@pytest.mark.parametrize(
    ("name", "model"),
    [("small-compact", "cnn_s2_valid5_same3_1x1"), ("6x10", "mlp_odd_relu6_tanh_sigmoid")],
)
def test_network(name: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check two runs in one host window, loaded once, against the interpreter."""
    command = f"image {MODELS / model}.tflite --preset {name} -o {tmp_path}/image"
    assert run(command, capsys)[::2] == (0, "")
    config = preset(name)
    driver = Driver(tmp_path / "image", config)
    with np.load(MODELS / f"{model}.npz") as stored:
        x, expected = stored["x"], stored["y_ref"]
    assert x.dtype == expected.dtype == np.int8
    for number in range(2):
        driver.run(input0=x[number])
        assert np.array_equal(driver.output("output0"), expected[number].reshape(-1))
    assert driver.numbers["GEOMETRY"] == config.cols << 16 | config.rows
    assert driver.numbers["HOST_BYTES"] == 4096 * driver.numbers["HOST_PAGES"] == driver.host.size
    assert driver.numbers["WEIGHT_BYTES"] == driver.weights.size


def test_hex_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that words of .hex files are as wide as the machine's port, or as --word demands.

    Zeros fill up the last word.
    """
    model = MODELS / "mlp_floatio.tflite"
    command = f"image {model} --preset 6x10 -o {tmp_path}/image"
    for options, word in (("", 16), (" --word 4", 4), (" --word 48", 48)):
        assert run(f"{command}{options}", capsys)[0] == 0
        for memory in ("host", "weight"):
            binary = (tmp_path / "image" / f"{memory}.bin").read_bytes()
            padded = binary + bytes(-len(binary) % word)
            assert from_hex(tmp_path / "image" / f"{memory}.hex", word) == padded


def test_header_compiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that image.h compiles if the model's names contain odd characters."""
    model = (MODELS / "mlp_floatio.tflite").read_bytes()
    evil = b"serving_*/\\\x1b[1m\\"
    assert model.count(b"serving_default_x") > 0
    (tmp_path / "m.tflite").write_bytes(model.replace(b"serving_default_x", evil.ljust(17, b"\n")))
    command = f"image {tmp_path}/m.tflite --preset tiny --batch 2 -o {tmp_path}/image"
    assert run(command, capsys)[0] == 0
    text = (tmp_path / "image" / "image.h").read_text()
    assert "serving_* //?[1m/" in text and "\x1b" not in text
    assert "Quantise(scale=0.0039" in text and "zero_point=-128" in text
    (tmp_path / "main.c").write_text(
        '#include "image/image.h"\n'
        "int main(void) { return systola_image_input0[127] + systola_image_output0[19]; }\n"
    )
    subprocess.run(["gcc", *STRICT, "main.c"], cwd=tmp_path, check=True)


@pytest.mark.thorough
def test_several_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the image of a model that is compiled to several programs, each in a folder of its own.

    The outputs of one program are the inputs of the next program.
    """
    config = replace(preset("tiny"), buffer_lines=64)
    content = (MODELS / "std_fc_autoencoder_ad.tflite").read_bytes()
    program = api.compile(content, preset=config, batch=8).to_bytes()
    (tmp_path / "p.tpu").write_bytes(program)
    assert run(f"image {tmp_path}/p.tpu -o {tmp_path}/image", capsys)[0] == 0
    folders = sorted(path for path in (tmp_path / "image").iterdir() if path.is_dir())
    assert [path.name for path in folders] == [f"stage{number}" for number in range(6)]
    with np.load(MODELS / "std_fc_autoencoder_ad.npz") as stored:
        values, expected = stored["x"][:8], stored["y_ref"][:8]
    both = '#include "image/stage0/image.h"\n#include "image/stage5/image.h"\n'
    (tmp_path / "main.c").write_text(
        f"{both}int main(void) {{ return systola_image5_output0[systola_image0_input0[0]]; }}\n"
    )
    subprocess.run(["gcc", *STRICT, "main.c"], cwd=tmp_path, check=True)
    for folder in folders:
        driver = Driver(folder, config)
        driver.run(input0=values)
        values = driver.output("output0")
    assert np.array_equal(values, expected.reshape(-1))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("image missing -o out", "cannot read missing"),
        ("image empty -o out", "empty: neither a TensorFlow Lite nor an ONNX model"),
        ("image p.tpu -o out --preset base", "is compiled with --preset tiny"),
        ("image p.tpu -o out --word 0", "--word: must be at least 1"),
        ("image p.tpu -o out/in/it --batch 7", "is compiled with --batch 3"),
        ("image p.tpu -o .", ". is not empty: it has "),
        ("image p.tpu -o empty", "cannot write empty: "),
        ("image p.tpu -o p.tpu/out", "cannot write p.tpu/out: "),
        ("image p.tpu", "-o"),
        ("image softmax.tflite -o out", "softmax.tflite: the host does all of this network"),
    ],
)
def test_refused(
    command: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    content = (MODELS / "mlp_floatio.tflite").read_bytes()
    Path("p.tpu").write_bytes(api.compile(content, preset="tiny", batch=3).to_bytes())
    Path("empty").write_bytes(b"")
    writer = ModelWriter()
    x, y = (writer.tensor((1, 8), "int8", 1 / 256, -128) for _ in range(2))
    writer.operator("SOFTMAX", [x], [y], beta=1.0)
    Path("softmax.tflite").write_bytes(writer.content([x], [y]))
    before = sorted(tmp_path.rglob("*"))
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"tpu: error: [^\n]+\n", err) and says in err, err
    assert sorted(tmp_path.rglob("*")) == before
