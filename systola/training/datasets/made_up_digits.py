# SPDX-License-Identifier: Apache-2.0
"""Images in the shape of MNIST's, made of scikit-learn's digits of 8 × 8 pixels."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.training.datasets.parts import BLOCK, generators

SIDE = 28
"""Pixels in a row or column of an image."""
_SMALL = 8
_LARGE = 3 * _SMALL
_BRIGHTNESS = (160, 255)
_NOISE = 8
"""The standard deviation of the noise of an image, in the scale of pixel values, 0 to 255."""
_ARRAYS = (("x", "y"), ("x_test", "y_test"))


def made_up_digits(part: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make `count` images and the digits that they show.

    Part 0, for training, and part 1, for tests, are made of different digits. Each digit is
    enlarged, moved by up to two pixels, and gets a brightness and noise of its own.
    """
    with np.load(str(files("systola.models") / "digits.npz")) as digits:
        small, labels = (digits[name] for name in _ARRAYS[part])
    weights = _interpolation()
    large = weights @ small.reshape(-1, _SMALL, _SMALL).astype(np.float32) @ weights.T
    images: list[NDArray[np.uint8]] = []
    shown: list[NDArray[np.uint8]] = []
    for rng in generators(part, count):
        chosen = rng.integers(len(large), size=BLOCK)
        images.append(_framed(rng, large[chosen]))
        shown.append(labels[chosen])
    return np.concatenate(images)[:count], np.concatenate(shown)[:count]


def _interpolation() -> NDArray[np.float32]:
    """Return the matrix that enlarges a row of _SMALL pixels to _LARGE pixels by linear
    interpolation.
    """
    places = np.clip((np.arange(_LARGE) + 0.5) / 3 - 0.5, 0, _SMALL - 1)
    distances = np.abs(places[:, None] - np.arange(_SMALL))
    return np.maximum(0, 1 - distances).astype(np.float32)


def _framed(rng: np.random.Generator, large: NDArray[Any]) -> NDArray[np.uint8]:
    """Put each enlarged digit at a random place in an image, with a random brightness and noise.

    `large`: digits with pixels from 0 to 1.
    """
    count = len(large)
    places = rng.integers(0, SIDE - _LARGE + 1, (2, count, 1)) + np.arange(_LARGE)
    rows, columns = places[0, :, :, None], places[1, :, None, :]
    image = np.zeros((count, SIDE, SIDE), np.float32)
    image[np.arange(count)[:, None, None], rows, columns] = large
    image *= rng.uniform(*_BRIGHTNESS, (count, 1, 1)).astype(np.float32)
    image += _NOISE * rng.standard_normal(image.shape, np.float32)
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)
