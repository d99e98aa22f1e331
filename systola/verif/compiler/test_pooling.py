# SPDX-License-Identifier: Apache-2.0
"""Tests of average pooling against LiteRT's formula.

LiteRT divides a sum by the number of its taps. The machine multiplies the sum by a reciprocal.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.isa import Rounding
from systola.compiler.lower.pooling import reciprocal
from systola.compiler.operations import Window
from systola.verif.kit.seeds import random_seed


def multiplied(sums: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the machine's means for sums of `count` taps, by isa.md's formula of SINGLE."""
    output = reciprocal(count)
    assert output.rounding == Rounding.SINGLE
    q, shift = int(output.multiplier[0]), int(output.shift[0])
    assert 0 <= q < 1 << 31
    left, right = max(shift, 0), max(-shift, 0)
    return ((sums << left) * q + (1 << (30 + right))) >> (31 + right)


def divided(sums: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the means of LiteRT's AVERAGE_POOL_2D for sums of `count` taps.

    The mean of a sum a of n taps is (a + n / 2) / n, or (a - n / 2) / n if a is below 0. Divisions
    are as in C.
    """
    return np.sign(sums) * ((np.abs(sums) + count // 2) // count)


@pytest.mark.parametrize("first", range(1, 257, 32))
def test_every_sum(first: int) -> None:
    for count in range(first, first + 32):
        sums = np.arange(-128 * count, 127 * count + 1, dtype=np.int64)
        assert np.array_equal(multiplied(sums, count), divided(sums, count)), count


def test_large_windows() -> None:
    rng = np.random.default_rng(random_seed())
    for count in (255 * 255, *rng.integers(257, 255 * 255, 200).tolist()):
        # The sums are at each half-way point between two means, one below the point, and one above
        # it.
        halves = (2 * np.arange(-128, 128, dtype=np.int64) + 1) * count // 2
        sums = np.concatenate([halves - 1, halves, halves + 1])
        sums = sums[(sums >= -128 * count) & (sums <= 127 * count)]
        assert np.array_equal(multiplied(sums, count), divided(sums, count)), count


def test_windows_at_the_edge() -> None:
    inside = Window(kernel=(3, 2), stride=(2, 1), out=(3, 4))
    assert not inside.counts_differ(7, 5)
    assert inside.counts_differ(6, 5)
    assert inside.counts_differ(7, 4)
    assert Window(kernel=(3, 2), first=(-1, 0), out=(3, 4)).counts_differ(7, 5)
    assert Window(kernel=(3, 2), first=(0, -1), out=(3, 4)).counts_differ(7, 5)
    assert Window(kernel=(3, 2), dilation=(1, 5), out=(3, 4)).counts_differ(7, 5)
