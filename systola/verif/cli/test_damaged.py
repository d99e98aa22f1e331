# SPDX-License-Identifier: Apache-2.0
"""Tests of damaged files on the command line: one line on stderr and status 2, or a result."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from systola.cli import main
from systola.runtime import api
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.compiler.mutants import make_mutant, model_file, model_files
from systola.verif.compiler.mutations import mutated_bytes
from systola.verif.kit.seeds import random_seed

MODEL = "mlp_floatio.tflite"
MODELS = 60
PROGRAMS = 30

Check = Callable[[str, str], int]


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Return a function that runs a command, checks its behaviour and returns its exit status.

    The command reads the file `m` and writes `out`. The function's second argument describes `m`.
    """
    monkeypatch.chdir(tmp_path)

    def run(command: str, what: str) -> int:
        before = sorted(tmp_path.iterdir())
        try:
            status = main.main(command.split())
        except SystemExit as exit_:
            status = int(str(exit_.code))
        captured = capsys.readouterr()
        assert status in (0, 2), what
        if status == 2:
            assert captured.out == "", what
            assert re.fullmatch(r"tpu: error: [^\n]+\n", captured.err), (what, captured.err)
            assert sorted(tmp_path.iterdir()) == before, what
        Path("out").unlink(missing_ok=True)
        return status

    return run


def test_models(check: Check) -> None:
    command = "compile m -o out --preset small --batch 2"
    check_whole_and_cut(check, command)
    for number in range(MODELS):
        mutant = make_mutant(model_files(large=False), random_seed(), number)
        Path("m").write_bytes(mutant.content)
        check(command, mutant.name)


def test_running_models(check: Check) -> None:
    """Check damaged models in `tpu run`, which compiles a model and runs it."""
    np.savez("x.npz", x=np.zeros((2, 1, 64), np.float32))
    command = "run m --preset small --backend iss --input x.npz --output out"
    check_whole_and_cut(check, command)
    for number in range(PROGRAMS):
        mutant = make_mutant((MODEL,), random_seed(), number)
        Path("m").write_bytes(mutant.content)
        check(command, mutant.name)


def check_whole_and_cut(check: Check, command: str) -> None:
    """Check that `command` accepts the whole file of the model MODEL, and refuses the first half.

    So the exit status for a damaged model depends on the damage, not on the command.
    """
    whole = model_file(MODEL)
    for content, status in ((whole, 0), (whole[: len(whole) // 2], 2)):
        Path("m").write_bytes(content)
        assert check(command, f"{len(content)} bytes") == status


def test_programs(check: Check) -> None:
    np.savez("x.npz", x=np.zeros((2, 1, 64), np.float32))
    program = api.compile(model_file(MODEL), preset="small", batch=2).to_bytes()
    rng = Random(random_seed())
    for _ in range(PROGRAMS):
        content, done = mutated_bytes(rng, program, model_file(MODEL))
        Path("m").write_bytes(content)
        check("run m --backend iss --input x.npz --output out", done)


def test_a_model_of_no_work(check: Check) -> None:
    """Check a model that only changes a shape, so that the machine has no program to run."""
    writer = ModelWriter()
    source, target = writer.tensor((1, 4), "int8", 0.1), writer.tensor((2, 2), "int8", 0.1)
    shape = writer.tensor((2,), "int32", data=np.array([2, 2], np.int32))
    writer.operator("RESHAPE", [source, shape], [target])
    Path("m").write_bytes(writer.content([source], [target]))
    np.savez("x.npz", x=np.zeros((3, 1, 4), np.int8))
    assert check("compile m -o out", "no work") == 0
    assert check("run m --backend iss --input x.npz --output out", "no work") == 0
