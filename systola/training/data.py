# SPDX-License-Identifier: Apache-2.0
"""Checks samples and labels as the user gives them, and converts them for the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from systola.compiler.host_stage import RealRescale
from systola.training.checks import numbers, real, shown, whole
from systola.training.errors import TrainingError
from systola.training.layers import Layer, Rescaling
from systola.training.numbers import LOGIT_BITS, codes
from systola.training.stages import Stage

_HALF = 1 << 14
"""Code of the label 1/2, which is halfway between the two classes of a binary loss."""


class Data(NamedTuple):
    """A set of samples with labels, and with a weight for each sample if samples have weights.

    Shapes: rows (samples, numbers), labels (samples, units), weights (samples,).
    """

    rows: NDArray[np.float64]
    labels: NDArray[np.int16]
    weights: NDArray[np.float64] | None

    def chosen(self, which: NDArray[np.integer[Any]] | slice) -> Data:
        """Return the samples that `which` selects, with their labels and weights."""
        weights = None if self.weights is None else self.weights[which]
        return Data(self.rows[which], self.labels[which], weights)


def samples(x: Any, features: int | None, name: str = "x") -> NDArray[np.float64]:
    """Return samples as an array (samples, numbers).

    Raises TrainingError for anything else, and for rows that do not have `features` numbers.
    """
    array = numbers(x, name)
    if array.ndim < 2 or not len(array):
        raise TrainingError(f"{name} must have a row of numbers for each sample, not {array.shape}")
    rows = array.reshape(len(array), -1)
    if features is not None and rows.shape[1] != features:
        raise TrainingError(f"{name} has {rows.shape[1]} numbers a sample, not {features}")
    return rows


def rescaled(
    rows: NDArray[np.float64], layers: Sequence[Layer], name: str = "x"
) -> NDArray[np.float64]:
    """Return samples after all Rescaling layers, which the host computes.

    Raises TrainingError if float32 cannot hold the results.
    """
    for layer in layers:
        if isinstance(layer, Rescaling):
            rows = RealRescale(layer.scale, layer.offset)(rows).astype(np.float64)
    if not np.isfinite(rows).all():
        raise TrainingError(f"{name} has numbers that are too large for Rescaling")
    return rows


def words(rows: NDArray[np.float64], vocabulary: int, name: str = "x") -> None:
    """Check that samples are words, whole numbers from 0 to `vocabulary` - 1.

    Raises TrainingError for any other number.
    """
    wrong = (rows != np.floor(rows)) | (rows < 0) | (rows >= vocabulary)
    if wrong.any():
        bad = rows[wrong][0]
        raise TrainingError(f"{name} has word {bad:g}, not a whole number 0 to {vocabulary - 1}")


def targets(y: Any, count: int, stage: Stage, loss: str, name: str = "y") -> NDArray[np.int16]:
    """Return labels as wanted outputs of the network, int16 codes (samples, units).

    Raises TrainingError for labels that do not fit the samples, the last stage or the loss.
    """
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


def sample_weights(
    given: Any, classes: Any, labels: NDArray[np.int16], name: str
) -> NDArray[np.float64] | None:
    """Return the weight of each sample; None if neither samples nor classes have weights.

    `given`: a weight for each sample. `classes`: weights by the number of a class; other classes
    have weight 1. Raises TrainingError for anything else, for negative weights, and if all weights
    are zero.
    """
    if given is None and classes is None:
        return None
    weights = np.ones(len(labels)) if given is None else numbers(given, name).reshape(-1)
    if len(weights) != len(labels):
        raise TrainingError(f"{name} has {len(weights)} numbers for {len(labels)} samples")
    if classes is not None:
        weights = weights * _class_weights(classes, labels)
    if weights.min() < 0 or not weights.max() > 0:
        raise TrainingError(f"{name} must not be negative, nor all zero")
    return weights


def _class_weights(given: object, labels: NDArray[np.int16]) -> NDArray[np.float64]:
    if not isinstance(given, Mapping):
        raise TrainingError(f"class_weight must be weights by class, not {shown(given)}")
    units = labels.shape[1]
    found = labels.argmax(axis=1) if units > 1 else (labels[:, 0] > _HALF).astype(int)
    weights = np.ones(max(units, 2))
    for number, weight in cast("Mapping[object, object]", given).items():
        which = whole("a class of class_weight", number, 0, len(weights) - 1)
        weights[which] = real(f"class_weight of {which}", weight)
        if weights[which] < 0:
            raise TrainingError(f"class_weight of {which} must not be negative")
    return weights[found]
