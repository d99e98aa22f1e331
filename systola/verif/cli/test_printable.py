# SPDX-License-Identifier: Apache-2.0
"""Tests that no name in a file or on the command line can control the terminal.

Hostile characters are all that are not printable, such as escapes and line ends. Commands also run
on copies of the files with question marks for the hostile characters. These runs give the number of
lines to expect.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest

from systola.cli import main
from systola.cli.parser import COMMANDS
from systola.compiler.errors import ModelError
from systola.compiler.printable import printable
from systola.runtime import api
from systola.runtime.plain_data import Packer
from systola.verif.cli.test_errors import MODEL as TFLITE

MODEL = "onnx_skl_mlp_48relu_qop_u8s8_pc.onnx"
HOSTILE = "(\x1b]0;x\x07\x1b[2J\n\r\t\x9b1m\u202e\u2066\u2028\x7f<b>$\\frac$"
"""A hostile name with escape sequences, line ends, marks of text direction, HTML, and a formula."""
SHOWN = "(?]0;x??[2J????1m????<b>$\\frac$"
"""A copy of HOSTILE with question marks for the characters that control a terminal."""
NAMES = {"hostile": HOSTILE, "shown": SHOWN}


def named(content: bytes, suffix: str) -> bytes:
    """Return an ONNX model with `suffix` after each of its names."""
    model = onnx.load_from_string(content)
    graph = model.graph
    model.producer_name = model.doc_string = graph.name = suffix
    model.metadata_props.add(key=suffix, value=suffix)
    for node in graph.node:
        node.name += f"n{suffix}"
        node.doc_string = suffix
        for names in (node.input, node.output):
            names[:] = [f"{name}{suffix}" if name else "" for name in names]
    for each in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        each.name += suffix
    return model.SerializeToString()


def renamed_tflite(content: bytes, name: str) -> bytes:
    """Return a TensorFlow Lite model with `name` at the start of its tensors' names.

    The lengths of the names stay the same.
    """
    found = [each for each in (b"serving_default", b"StatefulPartitionedCall") if each in content]
    assert found
    for each in found:
        content = content.replace(each, name.encode()[: len(each)].ljust(len(each), b"\x1b"))
    return content


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a working directory with files that contain hostile names, or harmless copies."""
    monkeypatch.chdir(tmp_path)
    content = (files("systola.models") / MODEL).read_bytes()
    np.savez("x.npz", x=np.zeros((2, 1, 64), np.float32))
    np.savez("narrow.npz", x=np.zeros((2, 1, 63), np.float32))
    pack = Packer.pack
    for kind, text in NAMES.items():
        Path(f"{kind}.onnx").write_bytes(onnx_file := named(content, text))
        # A program has names that a model lacks: the names of operators.
        with monkeypatch.context() as patch:
            patch.setattr(Packer, "pack", with_suffix(pack, text))
            program = api.compile(onnx_file, preset="tiny", batch=2).to_bytes()
        Path(f"{kind}.tpu").write_bytes(program)
        model = onnx.load_from_string(onnx_file)
        model.graph.node[0].op_type = f"Unknown{text}"
        Path(f"{kind}-unknown.onnx").write_bytes(model.SerializeToString())
        with zipfile.ZipFile(f"{kind}.npz", "w") as archive:
            archive.writestr(f"{text}.npy", b"")
        Path(f"{kind}.s").write_text(f"{text[:11]}\n")
        about = {"format": text, "layers": [{"kind": text}]}
        np.savez(f"{kind}-trained", about=json.dumps(about))
    return tmp_path


def with_suffix(pack, text: str):
    def packed(self: Packer, item: object) -> object:
        if type(item) is str and item.startswith(("node ", "output ")):
            item += text
        return pack(self, item)

    return packed


def run(command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run `tpu` with the words of `command`; return exit status, standard output and error."""
    try:
        status = main.main(command)
    except SystemExit as exit_:
        status = int(str(exit_.code))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def check_text(text: str) -> None:
    """Check that a text has only printable characters and line feeds."""
    bad = {each for each in text if not each.isprintable() and each != "\n"}
    assert not bad, text


RUN = "run {} --backend iss --input x.npz --output y.npz"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("compile {}.onnx -o p.tpu --preset tiny --batch 2", 0),
        ("compile {}-unknown.onnx -o p.tpu", 2),
        (f"{RUN.format('{}.onnx')} --preset tiny", 0),
        (f"{RUN.format('{}.onnx')} --preset tiny --key x,y", 2),
        (f"{RUN.format('{}.onnx')} --preset tiny --cores 2", 0),
        (RUN.format("{}.tpu"), 0),
        (f"{RUN.format('{}.tpu')} --cores 2", 0),
        ("run {}.tpu --backend iss --input narrow.npz --output y.npz", 2),
        ("run {}.onnx --backend iss --input {}.npz --output y.npz", 2),
        ("asm {}.s -o p.bin", 2),
        ("train {}-trained.npz --data x.npz", 2),
        ("train 64,10 --data {}.npz", 2),
    ],
)
def test_names_in_files(
    command: str, status: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the output has no hostile character, and the expected number of lines."""
    printed = [run(command.format(kind, kind).split(), capsys) for kind in NAMES]
    assert [each[0] for each in printed] == [status, status], printed
    for _, out, err in printed:
        check_text(out + err)
    # No name may change the number of lines.
    assert [out.count("\n") for _, out, _ in printed] == [printed[1][1].count("\n")] * 2
    assert [err.count("\n") for _, _, err in printed] == [printed[1][2].count("\n")] * 2


def test_a_tflite_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (files("systola.models") / TFLITE).read_bytes()
    Path("m.tflite").write_bytes(renamed_tflite(content, HOSTILE))
    status, out, err = run(["compile", "m.tflite", "-o", "p.tpu", "--preset", "tiny"], capsys)
    assert (status, err) == (0, "")
    assert "input (?]0;x??[2J" in out
    check_text(out)


@pytest.mark.thorough
def test_written_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that pictures, pages and JSON have no hostile character.

    HTML and formulas in a name must appear as plain text.
    """
    name = f"a{HOSTILE}.onnx"
    Path(name).write_bytes(Path("hostile.onnx").read_bytes())
    written = ["--report", "r.html", "--roofline", "r.svg", "--json", "j"]
    words = ["run", name, "--backend", "iss", "--input", "x.npz", "--output", "y.npz"]
    assert run([*words, *written], capsys)[0] == 0
    page, picture, figures = (Path(each).read_text() for each in ("r.html", "r.svg", "j"))
    for text in (page, picture, figures):
        check_text(text)
    assert "<b>" not in page
    assert "&lt;b&gt;$\\frac$.onnx on &#39;base&#39;</h1>" in page
    assert "$\\frac$.onnx on 'base'" in picture
    assert json.loads(figures)["model"] == name


@pytest.mark.parametrize("command", COMMANDS)
def test_words_of_the_command_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that unknown words and missing files are named in one line."""
    for words in ([HOSTILE], ["--preset", HOSTILE], [HOSTILE, "--json", HOSTILE, "-o", HOSTILE]):
        status, out, err = run([command, *words], capsys)
        assert (status, out) == (2, "")
        assert err.startswith("tpu: error: ")
        assert err.count("\n") == 1
        check_text(err)


def test_a_file_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["run", HOSTILE, "--input", "x.npz", "--output", "y.npz"],
        ["run", "hostile.onnx", "--input", HOSTILE, "--output", "y.npz"],
        ["compile", HOSTILE, "-o", "p"],
        ["train", f"{HOSTILE}.keras", "--data", "x.npz"],
        ["disasm", HOSTILE],
    ):
        status, out, err = run(words, capsys)
        assert (status, out, err.count("\n")) == (2, "", 1)
        check_text(err)
        assert "[2J" in err


def test_errors_in_python(folder: Path) -> None:
    """Check that error messages in Python have no hostile character, either."""
    model = api.load("hostile.tpu")
    narrow = {f"x{HOSTILE}y": np.zeros((1, 64), np.float32)}
    with pytest.raises(ModelError) as wrong:
        model.run(narrow, backend="iss")
    check_text(str(wrong.value))
    check_text(repr(model))
    model.run({f"x{HOSTILE}": np.zeros((1, 64), np.float32)}, backend="iss")


def test_printable() -> None:
    assert printable("") == ""
    assert printable("Größe 3, 重み '$x'") == "Größe 3, 重み '$x'"
    assert printable(HOSTILE) == SHOWN
    assert printable("\udcff\ud800\U000e0001\u200b") == "????"
