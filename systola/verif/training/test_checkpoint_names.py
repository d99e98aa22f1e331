# SPDX-License-Identifier: Apache-2.0
"""Tests that names, folders and files of checkpoints are checked before the first epoch."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from systola.training import Dense, ModelCheckpoint, Sequential, TrainingError, load
from systola.training.checkpoint_names import CheckpointNames

LABELS = np.arange(40) % 3
SAMPLES = np.eye(3)[LABELS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("below").mkdir()
    Path("below/m2.tpu").mkdir()
    Path("link").symlink_to("below")
    return tmp_path


def fitted(path: str | Path, *, epochs: int = 2) -> Sequential:
    """Train a model that saves a checkpoint at `path` after each epoch; return the model.

    Fail if the model has run only some of the epochs, also when fit() raises an error.
    """
    model = Sequential([Dense(3)])
    model.compile(metrics=["accuracy"], preset="4x4-training", backend="iss")
    saver = ModelCheckpoint(path)
    try:
        model.fit(SAMPLES, LABELS, epochs=epochs, verbose=0, callbacks=[saver])
    finally:
        assert model.epochs in (0, epochs)
    return model


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("m{epok}.tpu", "field 'epok' that is not there (known: epoch, loss, accuracy)"),
        ("m{val_loss}.tpu", "field 'val_loss' that is not there"),
        ("m{epoch:.tpu", "'m{epoch:.tpu' is no pattern of names"),
        ("m}.tpu", "'m}.tpu' is no pattern of names"),
        ("m{}.tpu", "'' is no name of a field"),
        ("m{0}.tpu", "'0' is no name of a field"),
        ("m{epoch.real}.tpu", "'epoch.real' is no name of a field"),
        ("m{loss:d}.tpu", "is no pattern of names"),
        ("m{epoch:{width}}.tpu", "is no pattern of names"),
        ("{epoch}/m.tpu", "has a field in its folder"),
        ("below/", "names no file"),
        ("", "names no file"),
    ],
)
def test_wrong_names(path: str, says: str, folder: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        fitted(path)
    assert says in str(caught.value)
    assert sorted(os.listdir()) == ["below", "link"]


@pytest.mark.parametrize(
    ("path", "error", "named"),
    [
        ("nowhere/m{epoch}.tpu", FileNotFoundError, "nowhere/m1.tpu"),
        ("nowhere/m.tpu", FileNotFoundError, "nowhere/m.tpu"),
        ("below/m2.tpu", IsADirectoryError, "below/m2.tpu"),
        ("below/m{epoch}.tpu", IsADirectoryError, "below/m2.tpu"),
    ],
)
def test_files_that_cannot_be_written(
    path: str, error: type[OSError], named: str, folder: Path
) -> None:
    with pytest.raises(error) as caught:
        fitted(path)
    assert caught.value.filename == named
    assert os.listdir("below") == ["m2.tpu"]


def test_names_of_each_epoch(folder: Path) -> None:
    Path("m1.tpu.part").write_text("mine")
    model = fitted(folder / "m{epoch}.tpu")
    assert sorted(os.listdir()) == ["below", "link", "m1.tpu", "m1.tpu.part", "m2.tpu"]
    assert Path("m1.tpu.part").read_text() == "mine"
    assert (load("m1.tpu").epochs, load("m2.tpu").epochs) == (1, 2)
    assert np.array_equal(load("m2.tpu").predict(SAMPLES), model.predict(SAMPLES))
    fitted("{{{accuracy:.3f}-{loss:.0e}}}.tpu", epochs=1)
    (name,) = [name for name in os.listdir() if name.startswith("{")]
    assert CheckpointNames("{{{accuracy:.3f}-{loss:.0e}}}.tpu").could_be(str(folder / name))


@pytest.mark.parametrize(
    ("pattern", "name", "could"),
    [
        ("d{epoch}.npz", "d1.npz", True),
        ("d{epoch}.npz", "d123.npz", True),
        ("d{epoch}.npz", "d.npz", False),
        ("d{epoch}.npz", "digits.npz", False),
        ("d{epoch}.npz", "d1xnpz", False),
        ("d{epoch}.npz", "d1.npz.old", False),
        ("d{epoch:03}.npz", "d001.npz", True),
        ("d{epoch:x}.npz", "dfe.npz", True),
        ("d{epoch:*^9}.npz", "d****1****.npz", True),
        ("d{loss}.npz", "d1.5e-05.npz", True),
        ("d{loss}.npz", "dnan.npz", True),
        ("d{loss}.npz", "d-inf.npz", True),
        ("d{loss:.1%}.npz", "d12.3%.npz", True),
        ("d{epoch}-{loss:.2f}.npz", "d7-0.25.npz", True),
        ("d{epoch}-{loss:.2f}.npz", "d7.npz", False),
        ("d{{epoch}}.npz", "d{epoch}.npz", True),
        ("d{{epoch}}.npz", "d1.npz", False),
        ("below/d{epoch}", "below/d1", True),
        ("below/d{epoch}", "d1", False),
        ("link/d{epoch}", "below/d1", True),
        ("below/../d{epoch}", "d1", True),
    ],
)
def test_what_a_pattern_could_be(pattern: str, name: str, could: bool, folder: Path) -> None:
    assert CheckpointNames(pattern).could_be(str(folder.resolve() / name)) is could
