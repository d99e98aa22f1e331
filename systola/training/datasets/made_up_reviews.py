# SPDX-License-Identifier: Apache-2.0
"""Texts of words that praise, blame or say nothing, in the shape of IMDB's reviews."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.training.datasets.parts import BLOCK, generators
from systola.training.datasets.word_lists import Words

_WORDS = 88_584
"""Number of the least frequent word; the most frequent word is number 1."""
_LENGTHS = (10, 1000)
"""Smallest and largest number of words of a text."""
_MEDIAN = 175
_SPREAD = 0.7
"""The standard deviation of the logarithm of the length of a text."""
_FIRST = 20
"""Number of the most frequent word that praises, and the distance from it to the next such word."""
_NOT = 4
"""Number of the word that reverses the next word that praises or blames."""
_AGREEING = 0.85
"""The fraction of praising or blaming words that agree with the label of their text."""


def made_up_reviews(part: int, count: int) -> tuple[list[Words], NDArray[np.int64]]:
    """Make `count` texts, and labels: 1 for a text that praises, 0 for a text that blames.

    Words have frequencies by Zipf's law. Words 20, 40, 60 and so on praise; words 21, 41, 61 and so
    on blame. Word 4 before such a word turns it into its opposite, so order matters.
    """
    texts: list[Words] = []
    labels: list[NDArray[np.int64]] = []
    for rng in generators(part, count):
        praise = rng.permutation(BLOCK) % 2
        lengths = np.rint(_MEDIAN * np.exp(_SPREAD * rng.standard_normal(BLOCK)))
        ends = np.cumsum(np.clip(lengths, *_LENGTHS).astype(np.int64))
        # Word n has the probability log(1 + 1 / n) / log(1 + _WORDS), close to Zipf's 1 / n.
        words = np.exp(rng.random(int(ends[-1])) * np.log(1 + _WORDS)).astype(np.int64)
        words = np.minimum(words, _WORDS)
        _take_sides(rng, words, ends, praise)
        texts += np.split(words, ends[:-1])
        labels.append(praise)
    return texts[:count], np.concatenate(labels)[:count]


def _take_sides(
    rng: np.random.Generator, words: Words, ends: Words, praise: NDArray[np.int64]
) -> None:
    """Replace words that praise or blame, in place, by words that fit the labels of their texts.

    `words`: the words of all texts, one text after the other. `ends`: for each text the index in
    `words` after its last word. `praise`: the labels.
    """
    places = np.flatnonzero((words % _FIRST < 2) & (words >= _FIRST))
    text = np.searchsorted(ends, places, side="right")
    turns = np.cumsum(words == _NOT)
    turns_at = turns[places]
    turns_before_text = np.concatenate([[0], turns[ends[:-1] - 1]])[text]
    turns_before_word = np.concatenate([[0], turns_at[:-1]])
    turned = turns_at > np.maximum(turns_before_text, turns_before_word)
    agrees = rng.random(len(places)) < _AGREEING
    praises = (praise[text] == 1) ^ turned ^ ~agrees
    words[places] = words[places] - words[places] % 2 + ~praises
