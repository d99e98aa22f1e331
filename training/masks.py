# SPDX-License-Identifier: Apache-2.0
"""Tables that make masks: 1 for what passes, 0 for the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B1
"""2^32 over the golden ratio, odd: seeds of blocks are far from each other."""
_STEP_PLACE = 19
"""Bits for the number of a block of samples, below the number of a step."""


def positive_table() -> NDArray[np.int8]:
    """1 for numbers above zero."""
    return (np.arange(256) % 128 * (np.arange(256) < 128) > 0).astype(np.int8)


def block_seed(seed: int, block: int, step: int = 0) -> int:
    """The seed of Random for a block of C samples, the first one of the batch being 0.

    So a sample has the same mask on whichever core of a pod it is. `step`: a step in time, below
    2^12, where each of them has a mask of its own.
    """
    return (seed + (block + (step << _STEP_PLACE)) * _GOLDEN) % 2**31


def kept_codes(rate: float) -> int:
    """How many of the 256 random bytes let a unit pass: the nearest to 1 - `rate`."""
    return min(255, round(256 * (1 - rate)))


def keep_table(rate: float) -> NDArray[np.int8]:
    """1 for the bytes that let a unit pass: 1 to `kept_codes`, read as unsigned.

    Zero never does: so the product of a byte and a mask does not where the mask is 0.
    """
    codes = np.arange(256)
    return ((codes >= 1) & (codes <= kept_codes(rate))).astype(np.int8)


def zero_table() -> NDArray[np.int8]:
    """1 for zero."""
    return (np.arange(256) == 0).astype(np.int8)
