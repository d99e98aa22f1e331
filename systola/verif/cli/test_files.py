# SPDX-License-Identifier: Apache-2.0
"""Tests that no command destroys a user's file, for each option of the parser that names a file."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from systola.cli.file_names import InputName, OutputName
from systola.cli.parser import COMMANDS, make_parser
from systola.hdl import verilog
from systola.synth import flow
from systola.training import Sequential
from systola.training.checkpoint_names import CheckpointNames
from systola.verif.cli.test_errors import MODEL, run
from systola.verif.compiler import float_tflite
from systola.verif.kit.user_files import (
    as_nobody,
    full_disk,
    null_device,
    protected_folder,
    tree,
)
from systola.verif.plan.selection import thorough

RUNS = {
    "run": "run model --input a --backend iss --preset tiny --limit 1",
    "quantize": "quantize float --data floats --preset tiny",
    "check": "check model --preset tiny",
    "compile": "compile model --preset tiny --batch 1",
    "train": "train 10 --data a --backend iss --preset 4x4-training -q",
    "demo": "demo --backend iss --preset small -q",
    "asm": "asm s",
    "gemm": "gemm 3 4 5 --preset tiny --backend iss",
    "verilog": "verilog --preset tiny",
    "synth": "synth --preset tiny --unit counters --seeds 0",
    "info": "info --preset tiny",
}
"""Command line of each command that writes files, without the options that name these files."""
READS = {
    ("run", "model"): "run {} --input a",
    ("run", "input"): "run model --input {}",
    ("run", "calibrate"): "run model --input a --calibrate {}",
    ("run", "port"): "run model --input a --backend serial --port {}",
    ("quantize", "model"): "quantize {} --data a",
    ("quantize", "data"): "quantize model --data {}",
    ("check", "model"): "check {}",
    ("compile", "model"): "compile {}",
    ("train", "model"): "train {} --data a",
    ("train", "data"): "train 10 --data {}",
    ("demo", "port"): "demo --backend serial --port {}",
    ("gemm", "port"): "gemm 3 4 5 --backend serial --port {}",
    ("asm", "file"): "asm {}",
}
"""Command line with {} in place of an input file, by the names of the command and the argument.

Only commands that also write files are listed.
"""
NO_FILES = {
    ("run", "key"): "names of arrays",
    ("run", "scheduler"): "an address",
    ("run", "labels"): "the name of an array",
    ("quantize", "key"): "names of arrays",
    ("quantize", "labels"): "the name of an array",
    ("synth", "unit"): "a name",
    ("synth", "speed"): "a name",
    ("deliver", "output"): "a folder",
    ("image", "output"): "a folder",
}
"""Arguments of plain text that name no files, each with its meaning."""
SLOW = {"verilog", "synth"}
"""Commands that take seconds, so that only thorough tests run them."""
LONG = {"run", "compile", "demo"}
"""Commands that quick tests do not run with every kind of output (link, FIFO, device)."""


@dataclass(frozen=True)
class Option:
    """An argument of a command that names a file to read or to write."""

    command: str
    dest: str
    flag: str
    kind: type
    required: bool

    def __str__(self) -> str:
        return f"{self.command}-{self.dest}"


def arguments() -> Iterator[tuple[str, argparse.Action]]:
    """Yield every argument of every command of `tpu`, with the command's name."""
    (commands,) = (action for action in make_parser()._actions if isinstance(action.choices, dict))
    for command, parser in commands.choices.items():
        for action in parser._actions:
            yield command, action


def named_files() -> list[Option]:
    """Return all arguments that name files, recognised by the types of their values."""
    found: list[Option] = []
    for command, action in arguments():
        try:
            value = action.type("file") if callable(action.type) else None
        except (argparse.ArgumentTypeError, ValueError):
            continue
        if isinstance(value, (InputName, OutputName, CheckpointNames)):
            flag = max(action.option_strings, key=len, default="")
            found.append(Option(command, action.dest, flag, type(value), action.required))
    return found


FILES = named_files()
OUTPUTS = [option for option in FILES if option.kind is not InputName]
WRITING = list(dict.fromkeys(option.command for option in OUTPUTS))
PAIRS = [(a, b) for a, b in permutations(OUTPUTS, 2) if a.command == b.command]
READ_AND_WRITTEN = [
    (read, written)
    for read in FILES
    for written in OUTPUTS
    if read.kind is InputName and read.command == written.command
]


def test_all_names_of_files_are_known() -> None:
    """Check that NO_FILES, READS and RUNS are complete, so that no argument stays untested."""
    plain = {
        (command, action.dest)
        for command, action in arguments()
        if action.type in (None, str) and action.nargs != 0 and action.choices is None
    }
    assert plain == NO_FILES.keys()
    assert {str(option) for option in OUTPUTS} >= {"run-output", "train-save", "gemm-timeline"}
    assert RUNS.keys() == set(WRITING)
    read = {(option.command, option.dest) for option in FILES if option.kind is InputName}
    assert READS.keys() == {(command, dest) for command, dest in read if command in WRITING}
    assert set(COMMANDS) >= set(WRITING)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a working directory with input files, some of which have further names (links)."""
    monkeypatch.chdir(tmp_path)
    Path("model").write_bytes((files("systola.models") / MODEL).read_bytes())
    y = np.arange(20) % 10
    with open("a", "wb") as file:
        np.savez(file, allow_pickle=True, x=np.zeros((20, 1, 64), np.int8), y=y)
    Path("float").write_bytes(float_tflite.sum_of_two(np.random.default_rng(1)))
    with open("floats", "wb") as file:
        np.savez(file, allow_pickle=True, x0=np.eye(6), x1=np.ones((6, 9)))
    Path("s").write_text("halt\n")
    Path("old").write_text("old")
    Path("old").chmod(0o640)
    Path("below").mkdir()
    for name in ("model", "a", "s", "old"):
        Path(f"below/to_{name}").symlink_to(f"../{name}")
        os.link(name, f"below/hard_{name}")
    Path("below/to_new").symlink_to("../new")
    return tmp_path


def line_of(begin: str, given: Mapping[Option, str], others: str = "out") -> str:
    """Return `begin` with output options: the options `given`, and other required options.

    The file of each other required option is `others`.
    """
    words = [begin, *(f"{option.flag} {name}" for option, name in given.items())]
    command = begin.split()[0]
    for option in OUTPUTS:
        if option.command == command and option.required and option not in given:
            words.append(f"{option.flag} {others}")
    return " ".join(words)


def assert_refused(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a command is refused in one line with the text `says`, and changes no file."""
    before = tree(Path())
    status, out, err = run(command, capsys)
    assert (status, out) == (2, ""), command
    assert re.fullmatch(r"tpu: error: [^\n]+\n", err), (command, err)
    assert says in err, command
    assert tree(Path()) == before, command


@pytest.mark.parametrize("pair", READ_AND_WRITTEN, ids=lambda pair: f"{pair[0]}-{pair[1].dest}")
def test_an_input_is_no_output(
    pair: tuple[Option, Option], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, written = pair
    begin = READS[read.command, read.dest].format("old")
    for name in ("old", "./old", str(folder / "old"), "below/to_old", "below/hard_old"):
        says = "old is named twice" if name == "old" else f"{name} is old, too"
        assert_refused(line_of(begin, {written: name}), says, capsys)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1].dest}")
def test_two_outputs_are_two_files(
    pair: tuple[Option, Option], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = pair
    for one, other in (
        ("new", "new"),
        ("new", "./new"),
        ("new", "below/../new"),
        ("new", "below/to_new"),
        ("old", "below/to_old"),
        ("old", "below/hard_old"),
    ):
        # The message names the two files in the order of the parser's options.
        says = "is named twice" if one == other else ", too: the output would be written over it"
        line = line_of(RUNS[first.command], {first: one, second: other})
        assert_refused(line, says, capsys)


@pytest.mark.parametrize("option", OUTPUTS, ids=str)
def test_what_cannot_be_written(
    option: Option, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = RUNS[option.command]
    Path("below/loop").symlink_to("loop")
    for name, reason in (
        ("below", "is a directory"),
        ("nowhere/new", "no such file or directory"),
        ("old/new", "not a directory"),
        ("below/loop", "too many levels of symbolic links"),
        ("n" * 256, "file name too long"),
    ):
        line = line_of(begin, {option: name})
        assert_refused(line, f"cannot write {name}: {reason}", capsys)
    assert_refused(line_of(begin, {option: "''"}), f"{option.flag}: ", capsys)


@pytest.mark.parametrize("option", OUTPUTS, ids=str)
def test_what_must_not_be_written(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    # Modules are loaded here, as the process then runs as `nobody` without the right to read them.
    make_parser()
    with protected_folder(), as_nobody():
        for name in ("old", "below/new", "below/old", "below/to_old"):
            line = line_of(RUNS[option.command], {option: name})
            assert_refused(line, f"cannot write {name}: permission denied", capsys)


def outputs(command: str) -> list[Option]:
    """Return a command's options for output files that a run on the golden model can write."""
    return [each for each in OUTPUTS if each.command == command and each.dest != "timeline"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        thorough(command, kind)
        if command in SLOW or (command in LONG and kind != "device")
        else (command, kind)
        for command in WRITING
        for kind in ("device", "fifo", "link")
    ],
)
def test_what_is_there_stays_what_it_is(
    command: str, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check a command that writes all of its outputs to links, FIFOs or devices."""
    words, read = [RUNS[command]], dict[str, bytes]()
    readers: list[Thread] = []

    def read_all(name: str) -> None:
        read[name] = Path(name).read_bytes()

    for option in outputs(command):
        name = f"below/{option.dest}"
        words += [option.flag, name]
        if kind == "link":
            Path(option.dest).write_text("old")
            Path(option.dest).chmod(0o640)
            Path(name).symlink_to(f"../{option.dest}")
        elif kind == "fifo":
            os.mkfifo(name)
            readers.append(Thread(target=read_all, args=(name,), daemon=True))
            readers[-1].start()
        else:
            null_device(Path(name))
    before = tree(folder)
    status, _, err = run(" ".join(words), capsys)
    assert status == 0, err
    for reader in readers:
        reader.join(timeout=10)
    after = tree(folder)
    for option in outputs(command):
        name = f"below/{option.dest}"
        if kind == "link":
            mode, content = after.pop(option.dest)
            assert mode == before.pop(option.dest)[0]
            assert len(str(content)) > 10
        elif kind == "fifo":
            assert len(read[name]) > 10
    assert after == before


@pytest.mark.parametrize(
    "option", [option for command in WRITING for option in outputs(command)], ids=str
)
def test_a_full_disk(
    option: Option,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # On the full disk, Yosys would have no room for its own files, so it does not run.
    monkeypatch.setattr(verilog, "generate", lambda *_: "module tpu; endmodule\n")
    monkeypatch.setattr(flow, "measure", lambda *_, **__: {"lacks": []})
    null_device(folder / "null")
    line = line_of(RUNS[option.command], {option: "old"}, others="null")
    with full_disk():
        assert_refused(line, "old: file too large", capsys)


@pytest.mark.thorough
def test_a_timeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the file of a timeline, which only a run on the RTL has."""
    line = "gemm 3 4 5 --preset tiny --timeline below/to_old -q"
    before = tree(folder)
    assert run(line, capsys)[0] == 0  # This run builds the simulator if it is missing.
    after = tree(folder)
    assert after.pop("old")[0] == before.pop("old")[0]
    assert json.loads(Path("old").read_text())["traceEvents"]
    assert after == before
    with full_disk():
        assert_refused(line, "below/to_old: file too large", capsys)


def test_devices_can_be_named_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    null_device(folder / "null")
    assert run(f"{RUNS['run']} --output null --json null", capsys)[0] == 0
    assert_refused(f"{RUNS['run']} --output - --json -", "- is named twice", capsys)


@pytest.mark.parametrize(
    "name", ["/dev/stdout", "here", *map(thorough, ("/proc/self/fd/1", "pipe"))]
)
def test_names_of_standard_output(name: str, folder: Path) -> None:
    """Check that an output sent to standard output is neither mixed with printed text nor lost."""
    command = [sys.executable, "-m", "systola.cli.main", "info", "--preset", "tiny", "--json"]
    if name == "pipe":
        done = subprocess.run([*command, "/dev/stdout"], capture_output=True, text=True)
        text = done.stdout
    else:
        with open("here", "w") as here:
            here.write("first\n")
            here.flush()
            done = subprocess.run([*command, name], stdout=here, stderr=subprocess.PIPE, text=True)
        first, _, text = Path("here").read_text().partition("\n")
        assert first == "first"
    assert (done.returncode, done.stderr or "") == (0, "")
    assert json.loads(text)["preset"] == "tiny"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--data d1.npz --save d{epoch}.npz", "d{epoch}.npz is d1.npz, too"),
        ("--data d1.npz --save d{epoch:x}.npz", "d{epoch:x}.npz is d1.npz, too"),
        ("--data d1.npz --save link/d{epoch}.npz", "link/d{epoch}.npz is d1.npz, too"),
        ("--data a --save d{epoch}.npz", "d{epoch}.npz is a, too"),
        ("--data a --save below/hard_{epoch}", "below/hard_{epoch} is a, too"),
        ("--data a --save m{loss:.1f}.tpu --json m0.2.tpu", "m{loss:.1f}.tpu is m0.2.tpu, too"),
        ("--data a --save m{epoch}.tpu --json link/m7.tpu", "m{epoch}.tpu is link/m7.tpu, too"),
        ("--data a --save {epoch}/m.tpu", "has a field in its folder: only its file may"),
        ("--data a --save m{epoch", "'m{epoch' is no pattern of names"),
        ("--data a --save m{val_loss}.tpu", "--save: 'm{val_loss}.tpu' has a field 'val_loss'"),
        ("--data a --save m{epok}.tpu", "--save: 'm{epok}.tpu' has a field 'epok'"),
        ("--data a --save nowhere/m{epoch}.tpu", "cannot write nowhere/m{epoch}.tpu: no such"),
        ("--data a --save old/m{epoch}.tpu", "cannot write old/m{epoch}.tpu: not a directory"),
        ("--data a --save n{epoch}.tpu", "cannot write n{epoch}.tpu: is a directory"),
    ],
)
def test_checkpoints_are_looked_at_before_the_first_epoch(
    options: str,
    says: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delattr(Sequential, "_epoch")
    os.link("a", "d1.npz")
    os.link("a", "below/hard_1")
    Path("link").symlink_to(".")
    Path("n3.tpu").mkdir()
    assert_refused(f"train 10 --backend iss --preset 4x4-training {options}", says, capsys)


def test_a_model_that_was_read_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m1.keras").write_text("a model")
    for options in ("--json m1.keras", "--save m1.keras", "--save m{epoch}.keras"):
        assert_refused(f"train m1.keras --data a {options}", "m1.keras", capsys)


def test_a_description_is_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a network can be saved to a file called 10, which also describes a network."""
    assert run(f"{RUNS['train']} --save 10", capsys)[0] == 0
    assert run(f"{RUNS['train']} --save m.tpu", capsys)[0] == 0
    assert Path("10").read_bytes() == Path("m.tpu").read_bytes()
