# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu train`: its output, its files, and mistakes of the user."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from systola.training import SGD, Adam, load
from systola.verif.cli.test_errors import run
from systola.verif.training.data import digits

MACHINE = "--backend iss --preset 8x8-training"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (x, y), (x_test, y_test) = digits()
    np.savez("d.npz", x=x[:200], y=y[:200], x_test=x_test[:50], y_test=y_test[:50])
    np.savez("plain.npz", x=x[:50], y=y[:50])
    np.savez("bad.npz", x=x[:50], y=y[:50] - 1)
    np.savez("none.npz", y=y[:50])
    np.save("array.npy", x)
    Path("text").write_text("no model")
    Path("m.keras").write_text("no model")
    return tmp_path


def test_train_and_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = f"--data d.npz --learning-rate 0.2 --momentum 0.5 --seed 3 -q {MACHINE}"
    status, out, err = run(f"train 24,dropout=0.1,10 --epochs 2 --save m.tpu {options}", capsys)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [
        *("loss", "accuracy", "val_loss", "val_accuracy", "energy", "of"),
    ]
    status, out, err = run(f"train m.tpu --data plain.npz -q --json - {MACHINE}", capsys)
    assert (status, err) == (0, "")
    figures = json.loads(out)
    # Two epochs of 200 samples had four batches each; one epoch of 50 samples has one batch.
    assert (figures["epochs"], figures["steps"], figures["preset"]) == (3, 9, "8x8-training")
    assert len(figures["loss"]) == 1 and "val_loss" not in figures
    step = figures["step_energy"]
    assert step["operations"] == 2 * 50 * (2 * 64 * 24 + 3 * 24 * 10)
    assert figures["step_cycles"] is step["cycles"] is None
    assert set(step["energy"]) == {"45 nm", "7 nm"}
    for model, options in (("m.tpu", "--preset 8x8"), ("p", "")):
        if model == "p":
            assert run("compile m.tpu -o p --preset 8x8 --batch 20", capsys)[0] == 0
        command = f"run {model} --input d.npz --key x_test --output y.npz --backend iss {options}"
        status, out, err = run(command, capsys)
        assert (status, err) == (0, "") and "results as of training" in out
        expected = load("m.tpu", backend="iss").predict(np.load("d.npz")["x_test"])
        assert np.array_equal(np.load("y.npz")["y"], expected)


def test_a_saved_model_goes_on_with_its_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that training continues with preset, cores, batch and optimiser from the file.

    Options on the command line replace values from the file.
    """
    machine = "--backend iss --preset 8x8-training --cores 2 --latency 3"
    options = "--batch-size 20 --learning-rate 0.25 --momentum 0.5 --loss categorical_crossentropy"
    np.savez("hot.npz", x=np.load("plain.npz")["x"], y=np.eye(10)[np.load("plain.npz")["y"]])
    command = f"train 12,10 --data hot.npz --save m.tpu -q {options} {machine}"
    assert run(command, capsys)[0] == 0
    for given, expected, steps in (
        ("", SGD(0.25, 0.5), 3),
        ("--momentum 0.75", SGD(0.25, 0.75), 3),
        ("--learning-rate 0.125 --batch-size 50", SGD(0.125, 0.5), 1),
        ("--momentum 0 --rounding stochastic", SGD(0.25, 0, "stochastic"), 3),
    ):
        command = f"train m.tpu --data hot.npz -q --json - --save n.tpu {given}"
        status, out, err = run(command, capsys)
        assert (status, err) == (0, "")
        figures = json.loads(out)
        found = [figures[name] for name in ("preset", "backend", "cores", "steps")]
        assert found == ["8x8-training", "iss", 2, 3 + steps]
        settings = load("n.tpu").settings
        assert settings
        assert (settings["optimizer"], settings["latency"]) == (expected, 3)
    found = json.loads(run("train m.tpu --data hot.npz -q --json - --cores 1", capsys)[1])
    assert (found["cores"], found["backend"]) == (1, "iss")
    status, out, err = run("train m.tpu --data hot.npz -q --rounding stochastic", capsys)
    assert (status, out) == (2, "") and "take no momentum" in err and err.count("\n") == 1


def test_adam(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--data plain.npz -q --preset 8x8-training"
    command = f"train 24,10 --optimizer adam --backend fast --save m.tpu {options}"
    assert run(command, capsys)[0::2] == (0, "")
    assert load("m.tpu").optimizer.beta_2 == 0.999
    assert run(f"train m.tpu --learning-rate 0.01 --save n.tpu {options}", capsys)[0] == 0
    model = load("n.tpu")
    assert model.settings and model.settings["optimizer"] == Adam(0.01)
    assert model.state().moments.updates == 2  # type: ignore[union-attr]
    assert run(f"train n.tpu --optimizer sgd --save o.tpu {options}", capsys)[0] == 0
    assert load("o.tpu").settings["optimizer"] == SGD()  # type: ignore[index]
    status, _, err = run(f"train m.tpu --optimizer adam --momentum 0.9 {options}", capsys)
    assert status == 2 and err.count("\n") == 1
    assert err.startswith("tpu: error: Adam() does not take")


def test_adam_on_a_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--data plain.npz -q --preset 8x8-training --json -"
    found = [
        json.loads(run(f"train 12,10 --optimizer adam --backend {each} {options}", capsys)[1])
        for each in ("iss", "fast")
    ]
    assert found[0].pop("backend") == "iss" and found[1].pop("backend") == "fast"
    assert found[0] == found[1]


def test_cores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[dict[str, object]] = []
    for cores in (1, 2):
        command = f"train 12,10 --data plain.npz -q --json - --cores {cores} {MACHINE}"
        status, out, err = run(command, capsys)
        assert (status, err) == (0, "")
        found.append(json.loads(out))
    one, two = found
    assert (one.pop("cores"), two.pop("cores")) == (1, 2)
    steps = [figures.pop("step_energy") for figures in found]
    assert steps[0]["operations"] == steps[1]["operations"]
    assert [bool(step["activity"]["links"]) for step in steps] == [False, True]
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train 10", "--data"),
        ("train 10 --data d.npz --cores 0", "--cores"),
        (f"train 10 --data d.npz --cores 1025 {MACHINE}", "--cores"),
        (f"train 10 --data nofile {MACHINE}", "cannot read nofile"),
        (f"train 10 --data text {MACHINE}", "text is not a .npz file"),
        (f"train 10 --data array.npy {MACHINE}", "array.npy is not a .npz file"),
        (f"train 10 --data none.npz {MACHINE}", "none.npz has no array 'x' (it has: y)"),
        (f"train 10 --data bad.npz {MACHINE}", "bad.npz: y has label -1"),
        (f"train text --data d.npz {MACHINE}", "text: it is no model that was saved by training"),
        (f"train nofile --data d.npz {MACHINE}", "nofile: no such file"),
        (f"train m.keras --data d.npz {MACHINE}", "m.keras"),
        (f"train 10,dropout=1.5,10 --data d.npz {MACHINE}", "rate from 0 to 0.99"),
        (f"train 10 --data d.npz --momentum 1 {MACHINE}", "momentum must be"),
        ("train 10 --data d.npz --backend iss --preset base", "take 'base-training'"),
        (f"train 10 --data d.npz --save d.npz {MACHINE}", "d.npz"),
    ],
)
def test_mistakes(
    arguments: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().iterdir())
    status, out, err = run(arguments, capsys)
    assert (status, out) == (2, "")
    assert says in err and err.count("\n") == 1
    assert sorted(Path().iterdir()) == before
