# SPDX-License-Identifier: Apache-2.0
"""IMDB: film reviews as lists of words, with labels for praise or blame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.runtime.npz import Npz
from systola.training.arguments import takes
from systola.training.checks import whole
from systola.training.datasets.made_up_reviews import made_up_reviews
from systola.training.datasets.parts import labels, read_or_make_up, samples_limit
from systola.training.datasets.word_lists import Words, read_word_lists
from systola.training.errors import TrainingError

Part = tuple[NDArray[np.object_], NDArray[Any]]
"""Reviews, a list of words each, and their labels: 1 for praise, 0 for blame."""
_COUNTS = (25_000, 25_000)
_MOST_WORD = (1 << 31) - 1
_MOST_SEED = (1 << 32) - 1


@takes()
def load_data(
    path: str = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
) -> tuple[Part, Part]:
    """Return 25,000 reviews to train with, and 25,000 to test, in a random order that `seed`
    chooses.

    A word is its rank by frequency, from 1 on, plus `index_from`; a review begins with
    `start_char`. Reviews of `maxlen` words or more are left out. Words below `skip_top`, and words
    from `num_words` on, become `oov_char`. If `oov_char` is None, these words are left out. If
    `num_words` is None, the largest word stands for `num_words`. All of this is as in Keras.

    The reviews come from Keras's file `path`, see systola.training.datasets. Without such a file,
    reviews are made up in the same shape. SYSTOLA_DATASET_SAMPLES=N leaves only the first N reviews
    of each part. Raises TrainingError for a file with anything else, for wrong arguments, and where
    `maxlen` leaves no review.
    """
    num_words = _number("num_words", num_words)
    skip_top = whole("skip_top", skip_top, 0, _MOST_WORD)
    maxlen = _number("maxlen", maxlen)
    start_char = _number("start_char", start_char)
    oov_char = _number("oov_char", oov_char)
    index_from = whole("index_from", index_from, 0, _MOST_WORD)
    rng = np.random.RandomState(whole("seed", seed, 0, _MOST_SEED))
    limit = samples_limit()

    parts: list[tuple[list[Words], NDArray[Any]]] = []
    for texts, praise in read_or_make_up(path, "reviews", _read, made_up_reviews, _COUNTS):
        order = np.arange(len(texts))
        rng.shuffle(order)
        first = np.array([] if start_char is None else [start_char], np.int64)
        found = [np.concatenate([first, texts[n] + index_from]) for n in order]
        kept = [n for n, words in enumerate(found) if not maxlen or len(words) < maxlen]
        if not kept:
            raise TrainingError(f"no review has less than maxlen={maxlen} words")
        parts.append(([found[n] for n in kept], praise[order][kept]))

    most = num_words or max(int(words.max(initial=0)) for texts, _ in parts for words in texts)
    train, test = [
        (_lists(texts[:limit], skip_top, most, oov_char), praise[:limit]) for texts, praise in parts
    ]
    return train, test


def _number(name: str, value: int | None) -> int | None:
    """Return a value that is a whole number or None; raise TrainingError for anything else."""
    return None if value is None else whole(name, value, 0, _MOST_WORD)


def _lists(texts: list[Words], least: int, end: int, instead: int | None) -> NDArray[np.object_]:
    """Return words as lists, with `instead` for words that are not from `least` to `end` - 1.

    If `instead` is None, these words are left out.
    """
    found: list[list[int]] = []
    for words in texts:
        right = (words >= least) & (words < end)
        chosen = words[right] if instead is None else np.where(right, words, instead)
        found.append(chosen.tolist())
    return np.fromiter(found, np.object_, len(found))


def _read(archive: Npz, part: str) -> tuple[list[Words], NDArray[Any]]:
    try:
        texts = read_word_lists(archive.pickled(f"x_{part}"))
    except TrainingError as error:
        raise TrainingError(f"x_{part} {error}") from None
    return texts, labels(archive, part, len(texts))
