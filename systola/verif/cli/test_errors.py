# SPDX-License-Identifier: Apache-2.0
"""Tests that a user's mistake gives one clear line on stderr and exit status 2, and no file."""

from __future__ import annotations

import io
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.cli import gemm, main
from systola.runtime import api

MODEL = "mlp_tutorial_pc_softmax.tflite"
CONVOLVE = "convolve buffer=0, accumulator=0, k_tiles=1, n_tiles=1, plane=1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a working directory with a model, a program, and good and bad inputs of all kinds."""
    monkeypatch.chdir(tmp_path)
    model = (files("systola.models") / MODEL).read_bytes()
    Path("m.tflite").write_bytes(model)
    program = api.compile(model, preset="tiny", batch=3).to_bytes()
    Path("p.tpu").write_bytes(program)
    Path("short.tpu").write_bytes(program[:-100])
    Path("flipped.tpu").write_bytes(program[:-9000] + bytes(range(256)) + program[-8744:])
    Path("short.tflite").write_bytes(model[:20000])
    Path("text.npz").write_text("no archive")
    Path("empty").write_bytes(b"")
    Path("directory").mkdir()
    np.save("array.npy", np.zeros(3))
    np.savez(
        "x.npz",
        x=np.zeros((2, 1, 64), np.int8),
        narrow=np.zeros((2, 1, 63), np.int8),
        floats=np.zeros((2, 1, 64), np.float32),
        none=np.zeros((0, 1, 64), np.int8),
        objects=np.array([{}], dtype=object),
    )
    Path("cut.npz").write_bytes(Path("x.npz").read_bytes()[:300])
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        huge, {"descr": "|i1", "fortran_order": False, "shape": (6 << 40, 1, 64)}
    )
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("x.npy", huge.getvalue())
    Path("empty.s").write_text("# nothing\n")
    Path("no_halt.s").write_text("nop\nsynchronize\n")
    Path("no_end.s").write_text("nop\nloop count=3\nnop\nhalt\n")
    Path("no_window.s").write_text("read_weights tile=0, count=1\n" + CONVOLVE + "halt\n")
    Path("bad.s").write_text("nop\nread_weights tile=0\n")
    Path("odd.bin").write_bytes(b"\x01" * 17)
    Path("binary.s").write_bytes(bytes(range(128, 256)))
    return tmp_path


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line of `tpu`, and return its exit status, standard output and error."""
    try:
        status = main.main(shlex.split(command))
    except SystemExit as exit_:
        status = int(str(exit_.code))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


RUN = "run m.tflite --backend iss --output y.npz"
RUN_SERIAL = "run m.tflite --backend serial --input x.npz --output y.npz"
RUN_P = "run p.tpu --backend iss --input x.npz --output y.npz"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("nonsense", "nonsense"),
        ("gemm 1 2", "N"),
        ("gemm 0 4 4", "M: must be at least 1, not 0"),
        ("gemm 4 0 4", "K: must be at least 1, not 0"),
        ("gemm 4 4 -1", "N: must be at least 1, not -1"),
        ("gemm four 4 4", "'four' is not a whole number"),
        ("gemm 4.5 4 4", "'4.5' is not a whole number"),
        ("gemm 1 16777216 1", "K is too large"),
        ("gemm 1 1 99999999999999999999", "N is too large"),
        ("gemm 99999999 99 9", "operands need"),
        ("gemm 4 4 4 --preset huge", "unknown preset 'huge' (known: tiny, small, base, v1"),
        ("gemm 4 4 4 --preset 1x4", "rows and cols must be 2 to 256"),
        ("gemm 4 4 4 --latency -1", "--latency: must be at least 0"),
        ("gemm 4 4 4 --latency 1e9", "--latency"),
        ("gemm 4 4 4 --stall 1", "--stall: must be at least 0 and below 1"),
        ("gemm 4 4 4 --stall -0.1", "--stall"),
        ("gemm 4 4 4 --stall nan", "--stall"),
        ("gemm 4 4 4 --stall much", "'much' is not a number"),
        ("gemm 4 4 4 --seed -1", "--seed: must be at least 0"),
        ("gemm 4 4 4 --seed x", "--seed: 'x' is not a whole number"),
        ("gemm 4 4 4 --backend fpga", "fpga"),
        ("gemm 4 4 4 --json nowhere/j", "cannot write nowhere/j: no such file or directory"),
        ("gemm 4 4 4 --json directory", "cannot write directory: is a directory"),
        ("gemm 4 4 4 --backend iss --json /dev/full", "cannot write /dev/full: no space left"),
        (f"{RUN} --input missing.npz", "cannot read missing.npz: no such file or directory"),
        (f"{RUN} --input directory", "cannot read directory: is a directory"),
        (f"{RUN} --input text.npz", "text.npz is not a .npz file"),
        (f"{RUN} --input empty", "empty is not a .npz file"),
        (f"{RUN} --input array.npy", "array.npy is not a .npz file"),
        (f"{RUN} --input cut.npz", "cut.npz"),
        (f"{RUN} --input x.npz --key z", "x.npz has no array 'z' (it has: x, narrow,"),
        (f"{RUN} --input x.npz --key narrow", "shape (2, 1, 63) does not fit"),
        (
            f"{RUN} --input x.npz --key floats",
            "'floats': an input is float32, the model takes int8",
        ),
        (f"{RUN} --input x.npz --key none", "has no samples"),
        (f"{RUN} --input x.npz --key objects", "cannot read array 'objects'"),
        (
            f"{RUN} --input huge.npz",
            "huge.npz: cannot read array 'x': it has 0 bytes of numbers",
        ),
        (f"{RUN} --input x.npz --limit 0", "--limit: must be at least 1"),
        (f"{RUN} --input x.npz --batch 0", "--batch: must be at least 1"),
        (f"{RUN} --input x.npz --json nowhere/j", "cannot write nowhere/j"),
        ("run m.tflite --input x.npz --output nowhere/y", "cannot write nowhere/y"),
        ("gemm 4 4 4 --backend serial", "--backend serial needs --port"),
        ("gemm 4 4 4 --port /dev/ttyUSB0", "--port goes with --backend serial"),
        ("gemm 4 4 4 --program-seconds 9", "--program-seconds goes with --backend serial"),
        (f"{RUN} --input x.npz --baud 9600", "--baud goes with --backend serial"),
        (f"{RUN} --input x.npz --baud 0", "--baud: must be at least 1, not 0"),
        (f"{RUN_SERIAL} --port nowhere", "cannot open serial port nowhere: no such file or"),
        (f"{RUN_SERIAL} --port directory", "cannot open serial port directory: is a directory"),
        (f"{RUN_SERIAL} --port empty", "cannot open serial port empty: "),
        ("run m.tflite --input x.npz", "--output"),
        ("run missing.tflite --input x.npz --output y.npz", "cannot read missing.tflite"),
        ("run short.tflite --input x.npz --output y.npz", "short.tflite: the model is damaged"),
        ("run x.npz --input x.npz --output y.npz", "x.npz: not a compiled program"),
        ("run cut.npz --input x.npz --output y.npz", "cut.npz: not a compiled program"),
        ("run empty --input x.npz --output y.npz", "empty: neither a TensorFlow Lite nor"),
        (f"{RUN} --input x.npz --key x,narrow", "--key has 2 names, the model has 1 inputs"),
        (f"{RUN} --input x.npz --key x --latency -1", "--latency: must be at least 0"),
        (f"{RUN} --input x.npz --stall 1", "--stall: must be at least 0 and below 1"),
        (f"{RUN} --input x.npz --mhz 0", "--mhz: must be above 0, not 0"),
        (f"{RUN} --input x.npz --mhz inf", "--mhz: must be above 0, not inf"),
        (f"{RUN} --input x.npz --mhz fast", "--mhz: 'fast' is not a number"),
        (f"{RUN} --input x.npz --roofline nowhere/r", "cannot write nowhere/r"),
        (f"{RUN} --input x.npz --roofline r.png", "--roofline: the picture is SVG: call it .svg"),
        (f"{RUN} --input x.npz --semantics tflite", "--semantics: invalid choice"),
        (f"{RUN} --input x.npz --semantics onnx", "m.tflite: a TensorFlow Lite model has the"),
        (f"{RUN_P} --preset base", "p.tpu is compiled with --preset tiny, it cannot run with"),
        (f"{RUN_P} --batch 4", "p.tpu is compiled with --batch 3, it cannot run with --batch 4"),
        (f"{RUN_P} --semantics onnx", "p.tpu is compiled with --semantics litert-2"),
        (f"{RUN_P} --key narrow", "array 'narrow': an input of shape (2, 1, 63) does not fit"),
        ("run short.tpu --input x.npz --output y.npz", "short.tpu: not a compiled program"),
        ("run flipped.tpu --input x.npz --output y.npz", "flipped.tpu: "),
        ("compile missing.tflite -o p", "cannot read missing.tflite"),
        ("compile m.tflite", "-o"),
        ("compile m.tflite -o nowhere/p", "cannot write nowhere/p"),
        ("compile m.tflite -o directory", "cannot write directory: is a directory"),
        ("compile m.tflite -o p --batch 0", "--batch: must be at least 1"),
        ("compile m.tflite -o p --preset huge", "unknown preset 'huge'"),
        ("compile short.tflite -o p", "short.tflite: the model is damaged"),
        ("compile empty -o p", "empty: neither a TensorFlow Lite nor an ONNX model"),
        ("compile p.tpu -o p", "p.tpu is compiled already"),
        ("asm missing.s -o p.bin", "cannot read missing.s"),
        ("asm bad.s -o p.bin", "bad.s: line 2: read_weights needs operand 'count'"),
        ("asm binary.s -o p.bin", "binary.s is not a text file"),
        ("asm empty.s -o p.bin", "empty.s: line 1: the program is empty"),
        ("asm no_halt.s -o p.bin", "no_halt.s: line 2: the program has no halt"),
        ("asm no_end.s -o p.bin", "no_end.s: line 2: loop without end_loop"),
        ("asm no_window.s -o p.bin", "line 2: convolve without set_config_window before it"),
        ("asm bad.s", "-o"),
        ("disasm odd.bin", "odd.bin: program of 17 bytes"),
        ("disasm missing.bin", "cannot read missing.bin"),
        ("verilog --preset nope -o v.v", "unknown preset 'nope'"),
        ("verilog --fabric fpga -o v.v", "--fabric: invalid choice: 'fpga'"),
        ("verilog --preset tiny -o nowhere/v.v", "cannot write nowhere/v.v"),
        ("synth --target nope", "unknown target 'nope' (known: ecp5-85f, up5k,"),
        ("synth --preset nope", "unknown preset 'nope'"),
        ("synth --unit nope", "unknown unit 'nope' (known: mxu,"),
        ("synth --unit mxu --cores 2", "--unit is of one machine: it does not go with --cores"),
        ("synth --speed 5", "target 'ecp5-85f' has no speed '5' (6, 7, 8)"),
        ("synth --target up5k --speed 6", "target 'up5k' has no speed '6' (only one)"),
        ("synth --seeds -1", "must be at least 0, not -1"),
        ("synth --json nowhere/j", "cannot write nowhere/j"),
        (
            "bitstream --board nope",
            "unknown board 'nope' (known: ulx3s, ulx3s-25f, ulx3s-12f, ecpix5, tang-nano-20k, ",
        ),
        ("bitstream", "--board"),
        ("bitstream --board ulx3s --preset nope", "unknown preset 'nope'"),
        ("bitstream --board ulx3s --preset tiny --mhz 1", "PLL makes no 1 MHz, the nearest is"),
        ("bitstream --board ulx3s --preset tiny --baud 9000000", "makes no 9000000 baud"),
        ("bitstream --board ulx3s --preset tiny --memory 9000", "multiple of 4096 bytes"),
        ("bitstream --board ulx3s --preset v1", "must be equally wide"),
        ("selftest", "--port"),
        ("selftest --port nowhere", "cannot open serial port nowhere"),
        ("deliver -o out --preset nope", "unknown preset 'nope'"),
        ("deliver -o out --shared-memory 64", "--shared-memory goes with --cores"),
        ("verilog -o v.v --cores 2 --shared-memory 8", "the shared port has 8 bytes"),
        ("deliver -o empty", "cannot write empty: file exists"),
        ("deliver -o out --fabric nope", "--fabric: invalid choice"),
        ("info --preset nope", "unknown preset 'nope'"),
        ("info --json nowhere/j", "cannot write nowhere/j"),
        ("demo --preset nope", "unknown preset 'nope'"),
    ],
)
def test_mistakes(
    command: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    status, out, err = run(command, capsys)
    assert status == 2
    assert out == ""
    assert re.fullmatch(r"tpu: error: [^\n]+\n", err), err
    assert says in err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "command",
    [
        "gemm 4 4 4 --preset tiny",
        "run p.tpu --input x.npz --output y.npz",
        "synth --preset tiny --unit counters --seeds 0",
        "bitstream --board ulx3s --preset tiny",
    ],
)
def test_no_place_to_build(
    command: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SYSTOLA_BUILD", "/dev/null/nowhere")
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"tpu: error: cannot build in /dev/null/nowhere\S*: not a dir[^\n]+\n", err)
    assert "SYSTOLA_BUILD names another folder" in err
    assert not Path("y.npz").exists()


def test_no_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: int) -> None:
        raise MemoryError

    monkeypatch.setattr(gemm, "random_gemm", refuse)
    status, _, err = run("gemm 4 4 4 --backend iss", capsys)
    assert (status, err) == (2, "tpu: error: not enough memory for this\n")


def test_control_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gemm, "random_gemm", interrupt)
    assert run("gemm 4 4 4 --backend iss", capsys) == (130, "", "")


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "systola.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background inherits an ignored SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_signal_ends_a_long_run() -> None:
    with start("gemm", "2000", "2000", "2000", "--preset", "tiny", "--backend", "iss") as process:
        try:
            # After 5 seconds Python has started, even on a busy machine. The run takes minutes.
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""


def test_reader_goes_away(tmp_path: Path) -> None:
    program = tmp_path / "long.bin"
    program.write_bytes(bytes(16 * 100_000))  # a program with 4 MB of text, more than a pipe holds
    with start("disasm", str(program)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f".word 0x{0:032x}\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        # Either status is right: Python sees no error in a write that a closed pipe cuts short.
        assert process.wait(timeout=60) in (0, 1)
