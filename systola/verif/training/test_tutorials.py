# SPDX-License-Identifier: Apache-2.0
"""Tests that the tutorials in examples/ run unchanged, with a few made-up samples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from systola.verif.kit.checkout import ROOT

EXAMPLES = ROOT / "examples"


def output(name: str, samples: int, folder: Path) -> tuple[str, str]:
    """Run a tutorial in `folder`; return its standard output and its standard error."""
    environment = {
        **os.environ,
        "KERAS_HOME": str(folder),
        "SYSTOLA_DATASET_SAMPLES": str(samples),
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_mnist(tmp_path: Path) -> None:
    """Check that the first tutorial learns: more than three predictions in ten are right.

    The tutorial trains for five epochs of one step with 256 digits.
    """
    out, err = output("tutorial_mnist.py", 256, tmp_path)
    assert "Number of cores: 8\n" in out
    assert err.startswith("The images are made up: there is no file ")
    assert "Epoch 5/5" in err and "Epoch 6" not in err
    accuracy = re.search(r"^Test loss: [\d.]+, test accuracy: ([\d.]+)$", out, re.MULTILINE)
    assert accuracy and float(accuracy[1]) > 0.3
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_reviews(tmp_path: Path) -> None:
    """Check that the second tutorial runs, and stores all its weights.

    The weights are 15,000 × 32 for words, 4 × (32 + 100 + 1) × 100 for cells, and 101 for the
    output.
    """
    out, err = output("tutorial_reviews.py", 8, tmp_path)
    assert err.startswith("The reviews are made up: there is no file ")
    assert "Epoch 20/20" in err and "val_accuracy" in err
    assert "533,301" in out
    assert re.search(r"^Test loss: [\d.]+, test accuracy: [\d.]+$", out, re.MULTILINE)
    assert len(re.findall(r"0\.\d+", out.partition("\n[[")[2])) == 6
    with np.load(tmp_path / "reviews.npz") as file:
        assert sum(file[name].size for name in file) == 533_301
