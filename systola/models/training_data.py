# SPDX-License-Identifier: Apache-2.0
"""The data on which the networks of make_networks.py are trained, made from seeds.

Each function returns `count` samples and their classes. Samples are float32 (int32 for words),
[count, *shape of a sample]; classes are int32 [count]. The samples are simple, but a network has to
look at all of a sample to distinguish the classes. Noise, place and strength differ from sample to
sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Samples = tuple[NDArray[Any], NDArray[np.int32]]

TRAINING_SEED = 4
TEST_SEED = 5
KEYWORDS = 12
VOCABULARY = 1000
WORDS = 80
ACTIVITIES = 6
TEXTURES = 125
"""Number of kinds of picture that textures() makes, among the IMAGE_CLASSES of its network."""
IMAGE_CLASSES = 1000


def digits(count: int, seed: int) -> Samples:
    """Make digits of scikit-learn, enlarged to 32 x 32 x 1, with values from 0 to 1.

    With TRAINING_SEED, they are the first `count` of the 1437 training images in README.md. With
    any other seed, they are the first of the 360 test images.
    """
    stored = load_digits()
    order = np.random.RandomState(0).permutation(len(stored.target))
    chosen = (order[:1437] if seed == TRAINING_SEED else order[1437:])[:count]
    images = np.kron(stored.images[chosen] / 16, np.ones((1, 4, 4)))
    # A mean over 3 x 3 removes the edges of the enlarged pixels.
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    smooth = sum(padded[:, y : y + 32, x : x + 32] for y in range(3) for x in range(3)) / 9
    return smooth[..., None].astype(np.float32), stored.target[chosen].astype(np.int32)


def keywords(count: int, seed: int) -> Samples:
    """Make spectra over time, 49 x 10 x 1: three bands that rise and fall differently for each
    keyword.
    """
    courses = np.random.default_rng(12).uniform(0, 9, (KEYWORDS, 3, 4))
    random = np.random.default_rng(seed)
    labels = random.integers(0, KEYWORDS, count).astype(np.int32)
    time, bands = np.arange(49), np.arange(10)
    samples = random.normal(0, 0.5, (count, 49, 10))
    for sample, label in zip(samples, labels, strict=True):
        start, length = random.integers(0, 12), random.integers(30, 38)
        spoken = (time >= start) & (time < start + length)
        for course in courses[label]:
            knots = start + length * np.linspace(0, 1, 4)
            centre = np.interp(time, knots, course)[:, None]
            shape = np.exp(-((bands - centre) ** 2) / 1.5)
            sample += random.uniform(1.5, 3) * shape * spoken[:, None]
    return samples[..., None].astype(np.float32), labels


def figures(count: int, seed: int) -> Samples:
    """Make pictures, 96 x 96 x 3 from -1 to 1, with a standing figure (class 1) or without (class
    0).

    All pictures have other things in them, of the same colours.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count).astype(np.int32)
    y, x = np.mgrid[0:96, 0:96]
    samples = np.empty((count, 96, 96, 3))
    for number, label in enumerate(labels):
        picture = _clouds(random, 96)
        for _ in range(random.integers(1, 4)):
            top, left, height, width = random.integers((0, 0, 8, 20), (80, 80, 20, 60))
            picture[top : top + height, left : left + width] = random.uniform(-1, 1, 3)
        if label:
            size, foot, middle = random.integers((40, 70, 25), (60, 95, 70))
            head = (x - middle) ** 2 + (y - foot + 0.85 * size) ** 2 < (0.13 * size) ** 2
            body = (abs(x - middle) < 0.16 * size) & (y > foot - 0.7 * size) & (y < foot)
            picture[body] = random.uniform(-1, 1, 3)
            picture[head] = random.uniform((0.2, 0.0, -0.3), (0.9, 0.5, 0.2))
        samples[number] = picture + random.normal(0, 0.05, picture.shape)
    return samples.clip(-1, 1).astype(np.float32), labels


def _clouds(random: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Make a soft picture, size x size x 3, from -1 to 1."""
    coarse = random.uniform(-1, 1, (5, 5, 3))
    at = np.linspace(0, 4, size)
    low = np.minimum(at.astype(int), 3)
    part = (at - low)[:, None, None]
    rows = coarse[low] * (1 - part) + coarse[low + 1] * part
    columns = rows.transpose(1, 0, 2)
    return (columns[low] * (1 - part) + columns[low + 1] * part).transpose(1, 0, 2)


def textures(count: int, seed: int) -> Samples:
    """Make stripes, 96 x 96 x 3 from -1 to 1, of 5 directions, 5 widths and 5 colours.

    The 125 kinds are every eighth of the 1000 classes.
    """
    colours = np.array(
        [(1, -0.6, -0.6), (-0.6, 1, -0.6), (-0.6, -0.6, 1), (1, 1, -0.6), (-0.6, 1, 1)]
    )
    random = np.random.default_rng(seed)
    kinds = random.integers(0, TEXTURES, count)
    y, x = np.mgrid[0:96, 0:96]
    samples = np.empty((count, 96, 96, 3))
    for number, kind in enumerate(kinds):
        direction = np.pi * (kind % 5 + random.uniform(-0.25, 0.25)) / 5
        width = 5 * 1.6 ** (kind // 5 % 5 + random.uniform(-0.25, 0.25))
        along = x * np.cos(direction) + y * np.sin(direction)
        wave = np.sin(2 * np.pi * (along / width + random.uniform()))
        colour = colours[kind // 25] * random.uniform(0.6, 1)
        samples[number] = 0.3 * _clouds(random, 96) + wave[..., None] * colour
        samples[number] += random.normal(0, 0.1, (96, 96, 3))
    return samples.clip(-1, 1).astype(np.float32), (kinds * 8).astype(np.int32)


def reviews(count: int, seed: int) -> Samples:
    """Make texts of 80 words from a vocabulary of 1000; class 1 is praise.

    The text stands at the end. Zeros stand before it, and sometimes the end of another text before
    the zeros. The network has to learn to ignore the text before the zeros: the converter measures
    ranges without a reset of the state of an LSTM between samples. Words 2 to 41 praise, words 42
    to 81 blame, word 1 reverses the next of these words. Most of these words in a text agree with
    its class. All other words are neutral, and frequent words have small numbers.
    """
    random = np.random.default_rng(seed)
    samples = np.zeros((count, WORDS), np.int32)
    labels = random.integers(0, 2, count).astype(np.int32)
    for sample, label in zip(samples, labels, strict=True):
        length = random.integers(WORDS // 2, WORDS * 4 // 5)
        gap = random.integers(WORDS // 10, WORDS // 5 + 1)
        sample[WORDS - length :] = _text(random, length, label)
        before = WORDS - length - gap
        if before > 0 and random.uniform() < 0.5:
            sample[:before] = _text(random, length, random.integers(0, 2))[-before:]
    return samples, labels


def _text(random: np.random.Generator, length: int, praise: int) -> NDArray[np.int32]:
    text = (82 + (VOCABULARY - 82) * random.uniform(size=length) ** 3).astype(np.int32)
    for place in random.choice(length // 2, 1 + length // 6, replace=False) * 2:
        agrees, turned = random.uniform() < 0.85, random.uniform() < 0.25
        text[place] = 1 if turned else text[place]
        text[place + 1] = random.integers(2, 42) + 40 * (praise ^ agrees ^ turned)
    return text


def movements(count: int, seed: int) -> Samples:
    """Make three accelerations over 128 moments, 128 x 3: swings that differ in form and pace from
    class to class.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, ACTIVITIES, count).astype(np.int32)
    time = np.arange(128)
    samples = random.normal(0, 0.2, (count, 128, 3))
    for sample, label in zip(samples, labels, strict=True):
        period = (40, 18, 9)[label % 3] * random.uniform(0.85, 1.15)
        phase = 2 * np.pi * (time / period + random.uniform())
        wave = np.sin(phase) + (0.8 * np.sin(2 * phase + 1) if label >= 3 else 0)
        sample += wave[:, None] * random.uniform((0.5, 0.2, 0.1), (1.2, 0.6, 0.4))
        sample += (0, 0, 1)
    return samples.astype(np.float32), labels
