# SPDX-License-Identifier: Apache-2.0
"""Samples and labels as the user gives them: checked, and as the machine takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.training.checks import numbers
from systola.training.errors import TrainingError
from systola.training.numbers import LOGIT_BITS, codes
from systola.training.stages import Stage


def samples(x: Any, features: int | None, name: str = "x") -> NDArray[np.float64]:
    """Samples as rows of numbers. Raises TrainingError for what is none."""
    array = numbers(x, name)
    if array.ndim < 2 or not len(array):
        raise TrainingError(f"{name} must have a row of numbers for each sample, not {array.shape}")
    rows = array.reshape(len(array), -1)
    if features is not None and rows.shape[1] != features:
        raise TrainingError(f"{name} has {rows.shape[1]} numbers a sample, not {features}")
    return rows


def words(rows: NDArray[np.float64], vocabulary: int, name: str = "x") -> None:
    """Raises TrainingError where samples are not words, 0 to `vocabulary` - 1."""
    wrong = (rows != np.floor(rows)) | (rows < 0) | (rows >= vocabulary)
    if wrong.any():
        bad = rows[wrong][0]
        raise TrainingError(f"{name} has word {bad:g}, not a whole number 0 to {vocabulary - 1}")


def targets(y: Any, count: int, stage: Stage, loss: str, name: str = "y") -> NDArray[np.int16]:
    """What the outputs should be, int16, (samples, units). Raises TrainingError for bad ones."""
    array = numbers(y, name)
    if len(array) != count:
        raise TrainingError(f"{name} has {len(array)} labels for {count} samples")
    if loss == "sparse_categorical_crossentropy":
        labels = array.reshape(count, -1)
        if labels.shape[1] != 1 or np.any(labels != np.floor(labels)):
            raise TrainingError(f"{name} must have one whole number for each sample")
        wrong = (labels < 0) | (labels >= stage.units)
        if wrong.any():
            bad = int(labels[wrong][0])
            raise TrainingError(f"{name} has label {bad}, not 0 to {stage.units - 1}")
        return (np.arange(stage.units) == labels).astype(np.int16) * np.int16(32767)
    rows = array.reshape(count, -1)
    if rows.shape[1] != stage.units:
        raise TrainingError(f"{name} has {rows.shape[1]} numbers a sample, not {stage.units}")
    if loss == "mse":
        return codes(rows, LOGIT_BITS, np.int16)
    if rows.min() < 0 or rows.max() > 1:
        raise TrainingError(f"{name} must be probabilities, from 0 to 1")
    return np.rint(rows * 32767).astype(np.int16)
