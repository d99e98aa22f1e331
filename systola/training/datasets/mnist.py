# SPDX-License-Identifier: Apache-2.0
"""MNIST: images of handwritten digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.runtime.npz import Npz
from systola.training.arguments import takes
from systola.training.datasets.made_up_digits import SIDE, made_up_digits
from systola.training.datasets.parts import labels, read_or_make_up, samples_limit
from systola.training.errors import TrainingError

Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images, (samples, 28, 28), and the digits that they show."""
_COUNTS = (60_000, 10_000)


@takes()
def load_data(path: str = "mnist.npz") -> tuple[Part, Part]:
    """Return 60,000 images of 28 × 28 pixels with their digits to train with, and 10,000 to test.

    The images come from Keras's file `path`, see systola.training.datasets. Without such a file,
    images are made up in the same shape: scikit-learn's digits, enlarged and moved.
    SYSTOLA_DATASET_SAMPLES=N leaves only the first N images of each part. Raises TrainingError for
    a file with anything else.
    """
    limit = samples_limit()
    parts = read_or_make_up(path, "images", _read, made_up_digits, _COUNTS)
    train, test = [(x[:limit], y[:limit]) for x, y in parts]
    return train, test


def _read(archive: Npz, part: str) -> Part:
    x: NDArray[Any] = archive.read(f"x_{part}")
    if x.dtype != np.uint8 or x.shape[1:] != (SIDE, SIDE):
        raise TrainingError(
            f"x_{part} is {x.dtype} of shape {x.shape}, not uint8 of (samples, {SIDE}, {SIDE})"
        )
    return x, labels(archive, part, len(x))
