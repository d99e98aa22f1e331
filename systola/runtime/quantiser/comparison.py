# SPDX-License-Identifier: Apache-2.0
"""Compares the results of a quantised network with the results of the float network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.compiler.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Measures of a quantised network on the samples that calibrated it."""

    float_accuracy: float | None
    """Share of samples that the float network classifies as the labels have it, 0 to 1.

    None without labels."""
    accuracy: float | None
    """Share of samples that the quantised network classifies as the labels have it, 0 to 1.

    None without labels.
    """
    agreement: float | None
    """Share of samples to which both give the same class; None if outputs are no classes."""
    signal_to_noise: tuple[float, ...]
    """Decibels of each output: the float results against the difference from them."""


def compare(
    expected: Sequence[NDArray[Any]],
    found: Sequence[NDArray[Any]],
    labels: NDArray[np.integer[Any]] | None,
) -> Comparison:
    """Compare the outputs of the quantised network, `found`, with the float network's, and with
    labels.
    """
    classes, quantised = _classes(expected), _classes(found)
    return Comparison(
        float_accuracy=_equal(classes, labels),
        accuracy=_equal(quantised, labels),
        agreement=_equal(classes, quantised),
        signal_to_noise=tuple(map(_decibels, expected, found)),
    )


def check_labels(labels: ArrayLike, expected: Sequence[NDArray[Any]]) -> NDArray[np.integer[Any]]:
    """Return `labels` as an array, one class for each sample of the float outputs `expected`.

    Raises ModelError if `labels` are not such classes, or if the network has no classes.
    """
    array = np.asarray(labels)
    if _classes(expected) is None:
        raise ModelError("labels need a model with one output that has a number for each class")
    samples, classes = len(expected[0]), expected[0][0].size
    if array.shape != (samples,) or not np.issubdtype(array.dtype, np.integer):
        raise ModelError(
            f"labels are {samples} whole numbers here, not {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() >= classes:
        raise ModelError(
            f"labels are from {array.min()} to {array.max()}, classes 0 to {classes - 1}"
        )
    return array


def accuracy(results: NDArray[Any], labels: NDArray[np.integer[Any]]) -> float:
    """Return the share of samples with the largest number of their row of results at the label's
    place.
    """
    return float(np.count_nonzero(results.argmax(axis=1) == labels) / len(labels))


def _classes(outputs: Sequence[NDArray[Any]]) -> NDArray[np.int64] | None:
    """Return the largest number's place for each sample; None if outputs are no classes."""
    if len(outputs) != 1 or outputs[0].ndim < 2:
        return None
    samples, *sizes = outputs[0].shape
    if sizes[-1] < 2 or np.prod(sizes) != sizes[-1]:
        return None
    return outputs[0].reshape(samples, -1).argmax(axis=1)


def _equal(
    classes: NDArray[np.integer[Any]] | None, others: NDArray[np.integer[Any]] | None
) -> float | None:
    """Return the share of equal numbers; None if one of the arrays is missing."""
    if classes is None or others is None:
        return None
    return float(np.count_nonzero(classes == others) / len(classes))


def _decibels(signal: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the ratio of signal to noise; infinity where both are equal."""
    exact = signal.astype(np.float64)
    # Results may be infinite.
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = float(np.sum((exact - found) ** 2))
        power = float(np.sum(exact**2))
        return float(10 * np.log10(power / noise)) if noise else float("inf")
