# SPDX-License-Identifier: Apache-2.0
"""Data sets on which the tests train networks."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = tuple[NDArray[np.float32], NDArray[Any]]


def digits() -> tuple[Samples, Samples]:
    """Return scikit-learn's handwritten digits: 1437 images to train with, 360 to test.

    An image has 64 pixels from 0 to 1.
    """
    content = (files("systola.models") / "digits.npz").read_bytes()
    with np.load(io.BytesIO(content)) as archive:
        x, y, x_test, y_test = (archive[name] for name in ("x", "y", "x_test", "y_test"))
    return (x.astype(np.float32), y.astype(int)), (x_test.astype(np.float32), y_test.astype(int))


def images() -> tuple[Samples, Samples]:
    """Return scikit-learn's handwritten digits as maps of 8 x 8 pixels with one channel."""
    (x, y), (x_test, y_test) = digits()
    return (x.reshape(-1, 8, 8, 1), y), (x_test.reshape(-1, 8, 8, 1), y_test)


def reviews(count: int, *, words: int, vocabulary: int, seed: int) -> Samples:
    """Return random texts of up to `words` words, with zeros before them; label 1 is praise.

    The texts are like the texts of models/training_data.py, but short. A fifth of the words praise
    and a fifth blame. Word 1 reverses the meaning of a word of praise or blame after it. Most words
    of praise or blame agree with the label. All other words mean nothing.
    """
    rng = np.random.default_rng(seed)
    samples, labels = np.zeros((count, words), int), rng.integers(0, 2, count)
    kinds = vocabulary // 5
    for sample, label in zip(samples, labels, strict=True):
        length = rng.integers(words // 2, words + 1)
        text = rng.integers(2 + 2 * kinds, vocabulary, length)
        for place in rng.choice(length // 2, 1 + length // 4, replace=False) * 2:
            agrees, turned = rng.uniform() < 0.9, rng.uniform() < 0.15
            text[place] = 1 if turned else text[place]
            text[place + 1] = 2 + rng.integers(kinds) + kinds * (label ^ agrees ^ turned)
        sample[words - length :] = text
    return samples.astype(np.float32), labels


def clusters(count: int, *, features: int, classes: int, seed: int) -> Samples:
    """Return random points of several classes, with numbers from 0 to 1.

    The points lie around three middles for each class, with noise that mixes the classes.
    """
    rng = np.random.default_rng(seed)
    middles = rng.uniform(0, 1, (classes, 3, features))
    labels = rng.integers(0, classes, count)
    points = middles[labels, rng.integers(0, 3, count)] + rng.normal(0, 0.5, (count, features))
    return points.clip(0, 1).astype(np.float32), labels
